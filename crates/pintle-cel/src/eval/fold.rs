//! Loops: the expansion of macros such as `all` and `map`.

use std::sync::Arc;

use super::{Evaluator, Op};
use crate::ast::{Expr, Fold, Id};
use crate::cost::LIST_COST;
use crate::library;
use crate::macros::ACCU;
use crate::runtime_cost::CallKind;
use crate::value::{EvalError, Evaluated, Map, Value, fail, no_such_overload};

impl<'a> Evaluator<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Evaluated {
        let range = self.eval(fold.range)?;
        // An error in a binding surfaces only where the binding is used.
        let start = match self.eval(fold.init) {
            Err(EvalError::Failed(why)) if &*fold.accu != ACCU => Value::Fault(why.into()),
            other => other?,
        };
        let depth = self.scopes.len();
        let result = self.iterate(fold, &range, start);
        self.scopes.truncate(depth);
        result
    }

    fn iterate(&mut self, fold: &'a Fold, range: &Value, start: Value) -> Evaluated {
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), start));
        let append = self.append(fold);
        let mut collected = Collected::default();
        let two = fold.var2.is_some();
        match range {
            Value::List(list) => {
                for (i, item) in list.items.iter().enumerate() {
                    let index = Value::Int(i64::try_from(i).unwrap_or(i64::MAX));
                    let (first, second) = if two {
                        (index, Some(item.clone()))
                    } else {
                        (item.clone(), None)
                    };
                    if !self.step(fold, append, &mut collected, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in &map.entries {
                    let second = two.then(|| value.clone());
                    if !self.step(fold, append, &mut collected, key.value(), second)? {
                        break;
                    }
                }
            }
            other => {
                return Err(match (range_type(other), two) {
                    (None, _) => no_such_overload(),
                    (Some(name), false) => fail(format!("got '{name}', expected iterable type")),
                    (Some(name), true) => {
                        fail(format!("unsupported comprehension range type: {name}"))
                    }
                });
            }
        }
        match (append, collected.failed) {
            (Some(_), Some(why)) => self.scopes[depth].1 = Value::Fault(why),
            (Some((_, Append::Item { .. })), None) => {
                self.scopes[depth].1 = Value::list(collected.items);
            }
            (Some((_, Append::Insert(..))), None) => {
                self.scopes[depth].1 = Value::Map(Arc::new(collected.entries));
            }
            (None, _) => {}
        }
        self.eval(fold.result)
    }

    /// Runs one iteration. Returns false if the loop ends before it.
    fn step(
        &mut self,
        fold: &'a Fold,
        append: Option<(Option<Id>, Append<'a>)>,
        collected: &mut Collected,
        first: Value,
        second: Option<Value>,
    ) -> Result<bool, EvalError> {
        // A step can be free, as in cel-go, which relies on a deadline.
        self.context.work.spend(1)?;
        let depth = self.scopes.len();
        self.scopes.push((fold.var.clone(), first));
        if let (Some(name), Some(value)) = (&fold.var2, second) {
            self.scopes.push((name.clone(), value));
        }
        let Value::Bool(going) = self.eval(fold.condition)? else {
            return Err(no_such_overload());
        };
        if going {
            if let Some((filter, item)) = append {
                self.push(filter, item, collected)?;
            } else {
                let next = match self.eval(fold.step) {
                    Err(EvalError::Failed(why)) => Value::Fault(why.into()),
                    other => other?,
                };
                self.scopes[depth - 1].1 = next;
            }
        }
        self.scopes.truncate(depth);
        Ok(going)
    }

    /// Appends to the list of a `map` or `filter`, or the map of a `transformMap`. This costs as
    /// much as the expression the macro expands to, but the collection is not copied each time.
    fn push(
        &mut self,
        filter: Option<Id>,
        append: Append<'a>,
        into: &mut Collected,
    ) -> Result<(), EvalError> {
        if let Some(filter) = filter {
            match self.eval(filter) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(()),
                Ok(_) => return into.fail(no_such_overload()),
                Err(error) => return into.fail(error),
            }
        }
        self.context.charge(1)?;
        match append {
            Append::Item { item, list } => {
                let value = self.eval(item);
                if matches!(value, Err(EvalError::CostLimit)) {
                    return Err(EvalError::CostLimit);
                }
                let constant = self.plan.constants.contains_key(&list);
                self.context
                    .charge(if constant { 1 } else { LIST_COST + 1 })?;
                match value {
                    Ok(value) if into.failed.is_none() => into.items.push(value),
                    Err(error) if into.failed.is_none() => return into.fail(error),
                    _ => {}
                }
            }
            Append::Insert(call, args) => {
                // The call also has the accumulator as an argument; see `native`.
                let pair = args.len() == 1;
                if into.failed.is_some() && !pair {
                    return Ok(());
                }
                let mut values = Vec::with_capacity(args.len());
                let mut failed = None;
                for &arg in args {
                    match self.eval(arg) {
                        Ok(value) => values.push(value),
                        Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    }
                }
                let reached = values.len() + usize::from(failed.is_some());
                if reached == args.len() {
                    let cost = match self.plan.ops.get(&call) {
                        Some(Op::Native(_, CallKind::Fixed(cost))) => *cost,
                        _ => 1,
                    };
                    self.context.charge(cost)?;
                }
                if into.failed.is_some() {
                    return Ok(());
                }
                if failed.is_none() {
                    let inserted = library::insert(&mut self.context, &mut into.entries, &values);
                    failed = inserted.err();
                }
                if let Some(error) = failed {
                    return into.fail(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the filter and the addition of a comprehension that only appends.
    fn append(&self, fold: &Fold) -> Option<(Option<Id>, Append<'a>)> {
        let empty = match self.ast.expr(fold.init) {
            Expr::List(items) => items.is_empty(),
            Expr::Map(entries) => entries.is_empty(),
            _ => false,
        };
        if !empty || &*fold.accu != ACCU {
            return None;
        }
        let (filter, add) = match self.ast.expr(fold.step) {
            Expr::Call { function, args, .. } if &**function == "_?_:_" => (Some(args[0]), args[1]),
            _ => (None, fold.step),
        };
        let Expr::Call { function, args, .. } = self.ast.expr(add) else {
            return None;
        };
        let (&accu, rest) = args.split_first()?;
        if !matches!(self.ast.expr(accu), Expr::Ident(name) if &**name == ACCU) {
            return None;
        }
        match (&**function, rest) {
            ("_+_", &[list]) => match self.ast.expr(list) {
                Expr::List(items) => match items.as_slice() {
                    &[(item, false)] => Some((filter, Append::Item { item, list })),
                    _ => None,
                },
                _ => None,
            },
            ("cel.@mapInsert", _) => Some((filter, Append::Insert(add, rest))),
            _ => None,
        }
    }
}

/// Names the type of a value as cel-go does if it cannot be iterated.
fn range_type(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Optional(_) => "*types.Optional",
        _ => return None,
    })
}

/// The part that a comprehension adds to its result in each step.
#[derive(Debug, Clone, Copy)]
enum Append<'a> {
    /// An item of a list, and the list that contains only this item.
    Item { item: Id, list: Id },
    /// An entry, or all entries of a map: the call, and its arguments without the accumulator.
    Insert(Id, &'a [Id]),
}

/// The result so far of a comprehension that only appends. Nothing can observe it before the end.
#[derive(Debug, Default)]
struct Collected {
    items: Vec<Value>,
    entries: Map,
    /// Why a step failed. As in cel-go, the loop goes on, and its result is this error.
    failed: Option<Arc<str>>,
}

impl Collected {
    fn fail(&mut self, error: EvalError) -> Result<(), EvalError> {
        match error {
            EvalError::Failed(why) => {
                self.failed = Some(why.into());
                Ok(())
            }
            limit @ EvalError::CostLimit => Err(limit),
        }
    }
}
