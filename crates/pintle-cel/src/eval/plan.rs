//! Prepares an expression before it runs: the function of each call, and constants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Context;
use crate::ast::{Ast, Expr, Id, Literal};
use crate::checker::Checked;
use crate::functions;
use crate::library::{self, Native};
use crate::re2::Pattern;
use crate::runtime_cost::{self, CallKind};
use crate::types::Type;
use crate::value::{EvalError, Key, Map, Value, fail};

/// How a call is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    And,
    Or,
    Conditional,
    NotStrictlyFalse,
    OptionalOr,
    OptionalOrValue,
    /// Part of a value: `a[b]` or, if the flag is set, `a[?b]` and `a.?b`.
    Part(Native, bool),
    Native(Native, CallKind),
    Unknown,
}

/// Prepared calls, by node.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(super) ops: BTreeMap<Id, Op>,
    /// The values of constants, which cost nothing: cel-go computes them once, when it plans the
    /// expression.
    pub(super) constants: BTreeMap<Id, Value>,
    /// Calls whose overload depends on the types of their arguments at run time.
    pub(super) ambiguous: BTreeSet<Id>,
}

/// Prepares a checked expression. Fails if a constant part of it cannot be evaluated or a literal
/// pattern is invalid.
pub(crate) fn plan(ast: &Ast, checked: &Checked) -> Result<Plan, EvalError> {
    let mut planner = Planner {
        ast,
        checked,
        bound: bound_names(ast),
        known: BTreeMap::new(),
    };
    let (mut ops, mut ambiguous) = (BTreeMap::new(), BTreeSet::new());
    for id in 0..ast.len() {
        let id = Id::try_from(id).unwrap_or(Id::MAX);
        planner.constant(id)?;
        let Expr::Call { function, args, .. } = ast.expr(id) else {
            continue;
        };
        ops.insert(id, planner.op(id, function, args)?);
        if checked.overloads(id).len() > 1 {
            ambiguous.insert(id);
        }
        if let ("find" | "findAll", Some(&pattern)) = (&**function, args.first())
            && let Some(text) = ast.literal_string(pattern)
        {
            Pattern::parse(text.clone()).map_err(fail)?;
        }
    }
    let known = planner.known.into_iter();
    Ok(Plan {
        ops,
        constants: known.filter_map(|(id, value)| Some((id, value?))).collect(),
        ambiguous,
    })
}

/// Returns the names of the variables that macros declare.
fn bound_names(ast: &Ast) -> BTreeSet<Arc<str>> {
    let all = (0..ast.len()).map(|id| ast.expr(Id::try_from(id).unwrap_or(Id::MAX)));
    let folds = all.filter_map(|expr| match expr {
        Expr::Fold(fold) => Some(fold),
        _ => None,
    });
    let names = folds.flat_map(|fold| {
        let names = [Some(&fold.accu), Some(&fold.var), fold.var2.as_ref()];
        names.into_iter().flatten().cloned()
    });
    names.collect()
}

struct Planner<'a> {
    ast: &'a Ast,
    checked: &'a Checked,
    bound: BTreeSet<Arc<str>>,
    /// Whether a node is constant, and its value.
    known: BTreeMap<Id, Option<Value>>,
}

impl Planner<'_> {
    fn op(&mut self, id: Id, function: &str, args: &[Id]) -> Result<Op, EvalError> {
        let overload = match self.checked.overloads(id) {
            [one] => one,
            _ => "",
        };
        Ok(match function {
            "_&&_" => Op::And,
            "_||_" => Op::Or,
            "_?_:_" => Op::Conditional,
            "@not_strictly_false" => Op::NotStrictlyFalse,
            "or" if args.len() == 1 => Op::OptionalOr,
            "orValue" if args.len() == 1 => Op::OptionalOrValue,
            name => match library::native_for(name, overload) {
                None => Op::Unknown,
                Some(native) if name == "_[_]" => Op::Part(native, false),
                Some(native) if matches!(name, "_[?_]" | "_?._") => Op::Part(native, true),
                // cel-go turns this into a set lookup when it plans, and charges nothing for it.
                Some(native) if name == "@in" && self.is_constant_list(args)? => {
                    Op::Native(native, CallKind::Fixed(0))
                }
                Some(native) => Op::Native(native, runtime_cost::kind(name, overload)),
            },
        })
    }

    fn is_constant_list(&mut self, args: &[Id]) -> Result<bool, EvalError> {
        Ok(match args {
            &[_, list] => matches!(self.constant(list)?, Some(Value::List(_))),
            _ => false,
        })
    }

    /// Returns the value of a constant: a literal, a type, a list or map of constants, a conversion
    /// of a constant, or a test of membership in an empty list.
    fn constant(&mut self, id: Id) -> Result<Option<Value>, EvalError> {
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let value = match self.ast.expr(id) {
            Expr::Literal(literal) => Some(literal_value(literal)),
            Expr::Ident(name)
                if matches!(self.checked.type_of(id), Type::Type(_))
                    && !self.bound.contains(name) =>
            {
                functions::type_name(name).map(|ty| Value::Type(ty.runtime_name().into()))
            }
            Expr::List(items) => {
                let mut values = Vec::with_capacity(items.len());
                for &(item, optional) in items {
                    match self.constant(item)? {
                        Some(value) if !optional => values.push(value),
                        _ => break,
                    }
                }
                (values.len() == items.len()).then(|| Value::list(values))
            }
            Expr::Map(entries) => {
                let mut values = Map::default();
                let mut all = true;
                for entry in entries {
                    match (self.constant(entry.key)?, self.constant(entry.value)?) {
                        (Some(key), Some(value)) if !entry.optional && Key::of(&key).is_ok() => {
                            values.entries.insert(Key::of(&key)?, value);
                        }
                        _ => all = false,
                    }
                }
                all.then(|| Value::Map(Arc::new(values)))
            }
            Expr::Call {
                function,
                target: None,
                args,
            } => self.constant_call(function, args)?,
            _ => None,
        };
        self.known.insert(id, value.clone());
        Ok(value)
    }

    fn constant_call(&mut self, function: &str, args: &[Id]) -> Result<Option<Value>, EvalError> {
        Ok(match (function, args) {
            (
                "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp"
                | "type" | "uint",
                &[arg],
            ) => match (self.constant(arg)?, library::native(function)) {
                (Some(value), Some(native)) => Some(native(&mut Context::new(u64::MAX), &[value])?),
                _ => None,
            },
            ("@in", &[_, list]) => match self.constant(list)? {
                Some(Value::List(list)) if list.items().is_empty() => Some(Value::Bool(false)),
                _ => None,
            },
            _ => None,
        })
    }
}

fn literal_value(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(n) => Value::Int(*n),
        Literal::Uint(n) => Value::Uint(*n),
        Literal::Double(n) => Value::Double(*n),
        Literal::String(text) => Value::String(text.clone()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}
