//! Expands macros while parsing.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Id, Literal};
use crate::parser::{Parser, Stop};

/// The variable that a comprehension accumulates into. Sources cannot name it.
pub(crate) const ACCU: &str = "@result";
const LEGACY_ACCU: &str = "__result__";
/// The iteration variable of a comprehension that never iterates.
pub(crate) const UNUSED: &str = "#unused";

/// Builds `function(args)`, or expands the macro of that name.
pub(crate) fn global(parser: &mut Parser<'_>, function: &str, args: Vec<Id>, at: usize) -> Id {
    if function == "has" && args.len() == 1 {
        return match parser.ast.expr(args[0]).clone() {
            Expr::Select { operand, field, .. } => parser.add(
                Expr::Select {
                    operand,
                    field,
                    test: true,
                },
                at,
            ),
            Expr::Invalid => args[0],
            _ => {
                let place = parser.ast.at(args[0]);
                parser.error(place, "invalid argument to has() macro")
            }
        };
    }
    parser.call(function, args, at)
}

/// Builds `target.function(args)`, or expands the macro of that name.
pub(crate) fn receiver(
    parser: &mut Parser<'_>,
    function: &str,
    target: Id,
    args: Vec<Id>,
    at: usize,
) -> Result<Id, Stop> {
    let count = args.len();
    let mut expansion = Expansion { parser, target, at };
    let expanded = match (function, count) {
        ("all" | "exists" | "exists_one" | "existsOne", 2) => {
            expansion.quantifier(function, &args[..1], args[1])
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3) => {
            expansion.quantifier(function, &args[..2], args[2])
        }
        ("map", 2 | 3) => expansion.map(&args),
        ("filter", 2) => expansion.filter(&args),
        ("transformList", 3 | 4) => expansion.transform_list(&args),
        ("transformMap", 3 | 4) => expansion.transform_map(&args, true),
        ("transformMapEntry", 3 | 4) => expansion.transform_map(&args, false),
        ("optMap" | "optFlatMap", 2) => return expansion.optional(function, &args),
        ("sortBy", 2) => expansion.sort_by(&args),
        _ => {
            let call = Expr::Call {
                function: function.into(),
                target: Some(target),
                args,
            };
            return Ok(parser.add(call, at));
        }
    };
    Ok(expanded)
}

struct Expansion<'p, 'e> {
    parser: &'p mut Parser<'e>,
    target: Id,
    at: usize,
}

/// The parts of a comprehension besides its variables.
struct Parts {
    init: Id,
    condition: Id,
    step: Id,
    result: Id,
}

impl Expansion<'_, '_> {
    fn literal(&mut self, literal: Literal) -> Id {
        self.parser.add(Expr::Literal(literal), self.at)
    }

    fn ident(&mut self, name: &str) -> Id {
        self.parser.add(Expr::Ident(name.into()), self.at)
    }

    fn accu(&mut self) -> Id {
        self.ident(ACCU)
    }

    fn call(&mut self, function: &str, args: Vec<Id>) -> Id {
        self.parser.call(function, args, self.at)
    }

    fn member(&mut self, function: &str, target: Id, args: Vec<Id>) -> Id {
        let call = Expr::Call {
            function: function.into(),
            target: Some(target),
            args,
        };
        self.parser.add(call, self.at)
    }

    fn list(&mut self, items: &[Id]) -> Id {
        let items = items.iter().map(|&item| (item, false)).collect();
        self.parser.add(Expr::List(items), self.at)
    }

    /// Reads the names of iteration variables.
    fn names(&mut self, args: &[Id], wrong: &str) -> Result<Vec<Arc<str>>, Id> {
        let mut names: Vec<Arc<str>> = Vec::new();
        for &arg in args {
            let place = self.parser.ast.at(arg);
            match self.parser.ast.expr(arg).clone() {
                Expr::Ident(name) if name.starts_with('.') => {
                    return Err(self.parser.error(place, wrong));
                }
                Expr::Ident(name) => {
                    if names.contains(&name) {
                        let why = format!("duplicate variable name: {name}");
                        return Err(self.parser.error(place, &why));
                    }
                    names.push(name);
                }
                Expr::Invalid => return Err(arg),
                _ => return Err(self.parser.error(place, wrong)),
            }
        }
        for (name, &arg) in names.iter().zip(args) {
            if &**name == ACCU || &**name == LEGACY_ACCU {
                let why = "iteration variable overwrites accumulator variable";
                return Err(self.parser.error(self.parser.ast.at(arg), why));
            }
        }
        Ok(names)
    }

    fn fold(&mut self, range: Id, names: &[Arc<str>], accu: &str, parts: &Parts) -> Id {
        let fold = Fold {
            range,
            var: names[0].clone(),
            var2: names.get(1).cloned(),
            accu: accu.into(),
            init: parts.init,
            condition: parts.condition,
            step: parts.step,
            result: parts.result,
        };
        self.parser.add(Expr::Fold(Box::new(fold)), self.at)
    }

    fn quantifier(&mut self, kind: &str, vars: &[Id], predicate: Id) -> Id {
        let names = match self.names(vars, "argument must be a simple name") {
            Ok(names) => names,
            Err(id) => return id,
        };
        let parts = match kind {
            "all" => {
                let init = self.literal(Literal::Bool(true));
                let accu = self.accu();
                let condition = self.call("@not_strictly_false", vec![accu]);
                let accu = self.accu();
                let step = self.call("_&&_", vec![accu, predicate]);
                Parts {
                    init,
                    condition,
                    step,
                    result: self.accu(),
                }
            }
            "exists" => {
                let init = self.literal(Literal::Bool(false));
                let accu = self.accu();
                let not = self.call("!_", vec![accu]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let accu = self.accu();
                let step = self.call("_||_", vec![accu, predicate]);
                Parts {
                    init,
                    condition,
                    step,
                    result: self.accu(),
                }
            }
            _ => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let (accu, one) = (self.accu(), self.literal(Literal::Int(1)));
                let next = self.call("_+_", vec![accu, one]);
                let accu = self.accu();
                let step = self.call("_?_:_", vec![predicate, next, accu]);
                let (accu, one) = (self.accu(), self.literal(Literal::Int(1)));
                let result = self.call("_==_", vec![accu, one]);
                Parts {
                    init,
                    condition,
                    step,
                    result,
                }
            }
        };
        self.fold(self.target, &names, ACCU, &parts)
    }

    /// Builds a comprehension that starts from `init` and continues with `next` where `filter` is
    /// true.
    fn collect(
        &mut self,
        range: Id,
        names: &[Arc<str>],
        init: Id,
        next: Id,
        filter: Option<Id>,
    ) -> Id {
        let condition = self.literal(Literal::Bool(true));
        let step = match filter {
            Some(filter) => {
                let accu = self.accu();
                self.call("_?_:_", vec![filter, next, accu])
            }
            None => next,
        };
        let result = self.accu();
        self.fold(
            range,
            names,
            ACCU,
            &Parts {
                init,
                condition,
                step,
                result,
            },
        )
    }

    fn append(&mut self, item: Id) -> Id {
        let accu = self.accu();
        let one = self.list(&[item]);
        self.call("_+_", vec![accu, one])
    }

    fn map(&mut self, args: &[Id]) -> Id {
        self.map_over(self.target, args)
    }

    fn map_over(&mut self, range: Id, args: &[Id]) -> Id {
        let names = match self.names(&args[..1], "argument is not an identifier") {
            Ok(names) => names,
            Err(id) => return id,
        };
        let filter = (args.len() == 3).then(|| args[1]);
        let init = self.list(&[]);
        let next = self.append(args[args.len() - 1]);
        self.collect(range, &names, init, next, filter)
    }

    fn filter(&mut self, args: &[Id]) -> Id {
        let names = match self.names(&args[..1], "argument is not an identifier") {
            Ok(names) => names,
            Err(id) => return id,
        };
        let init = self.list(&[]);
        let next = self.append(args[0]);
        self.collect(self.target, &names, init, next, Some(args[1]))
    }

    fn transform_list(&mut self, args: &[Id]) -> Id {
        let names = match self.names(&args[..2], "argument must be a simple name") {
            Ok(names) => names,
            Err(id) => return id,
        };
        let filter = (args.len() == 4).then(|| args[2]);
        let init = self.list(&[]);
        let next = self.append(args[args.len() - 1]);
        self.collect(self.target, &names, init, next, filter)
    }

    fn transform_map(&mut self, args: &[Id], keyed: bool) -> Id {
        let names = match self.names(&args[..2], "argument must be a simple name") {
            Ok(names) => names,
            Err(id) => return id,
        };
        let filter = (args.len() == 4).then(|| args[2]);
        let init = self.parser.add(Expr::Map(Vec::new()), self.at);
        let mut insert = vec![self.accu()];
        if keyed {
            insert.push(self.ident(&names[0]));
        }
        insert.push(args[args.len() - 1]);
        let next = self.call("cel.@mapInsert", insert);
        self.collect(self.target, &names, init, next, filter)
    }

    /// Builds an expression that evaluates `result` with `name` bound to `value`.
    fn bind(&mut self, name: &str, value: Id, result: Id) -> Id {
        let range = self.list(&[]);
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        let parts = Parts {
            init: value,
            condition,
            step,
            result,
        };
        self.fold(range, &[UNUSED.into()], name, &parts)
    }

    fn optional(&mut self, function: &str, args: &[Id]) -> Result<Id, Stop> {
        let Expr::Ident(name) = self.parser.ast.expr(args[0]).clone() else {
            let why = format!("{function}() variable name must be a simple identifier");
            return Ok(self.parser.error(self.parser.ast.at(args[0]), &why));
        };
        let present = self.member("hasValue", self.target, Vec::new());
        let copy = self.parser.copy(self.target)?;
        let value = self.member("value", copy, Vec::new());
        let mut result = self.bind(&name, value, args[1]);
        if function == "optMap" {
            result = self.call("optional.of", vec![result]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![present, result, none]))
    }

    fn sort_by(&mut self, args: &[Id]) -> Id {
        const INPUT: &str = "@__sortBy_input__";
        let sortable = !matches!(
            self.parser.ast.expr(self.target),
            Expr::Literal(_) | Expr::Map(_) | Expr::Struct { .. }
        );
        if !sortable {
            let why = "sortBy can only be applied to a list, identifier, comprehension, call or \
                       select expression";
            return self.parser.error(self.parser.ast.at(self.target), why);
        }
        let input = self.ident(INPUT);
        let keys = self.map_over(input, args);
        let input = self.ident(INPUT);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        self.bind(INPUT, self.target, sorted)
    }
}
