//! Evaluates checked expressions under a budget.

mod fold;
mod index;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

pub(crate) use self::index::{contains, index, optional_index};
use self::plan::{Op, is_constant};
pub(crate) use self::plan::{Plan, plan};
use crate::ast::{Ast, Expr, Field, Id};
use crate::cost::{LIST_COST, MAP_COST, STRUCT_COST};
use crate::functions;
use crate::library::Native;
use crate::runtime_cost::{self, CallKind};
use crate::value::{EvalError, Evaluated, Key, Map, Message, Value, Work, fail, no_such_overload};

/// The work of one evaluation that costs do not cover: comparisons and copies of large values.
const MAX_WORK: u64 = 20_000_000;

/// What functions may use besides their arguments.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) work: Work,
    /// Patterns compiled so far.
    pub(crate) patterns: BTreeMap<Arc<str>, Regex>,
    /// Time zones read so far.
    pub(crate) zones: BTreeMap<String, jiff::tz::TimeZone>,
    cost: u64,
    limit: u64,
}

impl Context {
    fn new(limit: u64) -> Self {
        Self {
            work: Work::new(MAX_WORK),
            patterns: BTreeMap::new(),
            zones: BTreeMap::new(),
            cost: 0,
            limit,
        }
    }

    /// Adds to the cost. Fails if that exceeds the limit.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            Err(EvalError::CostLimit)
        } else {
            Ok(())
        }
    }

    /// Returns the budget that is left.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.cost)
    }
}

/// Evaluates an expression. Returns the result and what it cost.
pub(crate) fn run(
    ast: &Ast,
    plan: &Plan,
    variables: &[(&str, Value)],
    limit: u64,
) -> (Evaluated, u64) {
    let mut evaluator = Evaluator {
        ast,
        plan,
        scopes: variables
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        context: Context::new(limit),
    };
    let result = evaluator.eval(ast.root);
    (result, evaluator.context.cost)
}

struct Evaluator<'a> {
    ast: &'a Ast,
    plan: &'a Plan,
    /// Variables, innermost last.
    scopes: Vec<(Arc<str>, Value)>,
    context: Context,
}

impl<'a> Evaluator<'a> {
    fn eval(&mut self, id: Id) -> Evaluated {
        match self.ast.expr(id) {
            Expr::Literal(_) => self
                .plan
                .literals
                .get(&id)
                .cloned()
                .ok_or_else(no_such_overload),
            Expr::Ident(name) => self.ident(name),
            Expr::Select {
                operand,
                field,
                test,
            } => self.select(*operand, field, *test),
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::List(items) => self.list(id, items),
            Expr::Map(_) => self.map(id),
            Expr::Struct { name, fields } => self.message(name, fields),
            Expr::Fold(fold) => self.fold(fold),
            Expr::Invalid => Err(no_such_overload()),
        }
    }

    fn ident(&mut self, name: &Arc<str>) -> Evaluated {
        if let Some((_, value)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            self.context.charge(1)?;
            return value.clone().read();
        }
        match functions::type_name(name).or_else(|| functions::patch_type(name).map(Into::into)) {
            Some(ty) => Ok(Value::Type(ty.runtime_name().into())),
            None => Err(fail(format!("no such attribute(s): {name}"))),
        }
    }

    fn select(&mut self, operand: Id, field: &Arc<str>, test: bool) -> Evaluated {
        let target = self.eval(operand)?;
        if !test {
            self.context.charge(1)?;
        }
        let (target, optional) = match target {
            Value::Optional(None) if test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        let (found, missing) = match &target {
            Value::Map(map) => (map.field(field).cloned(), None),
            Value::Lazy(lazy) if test => return Ok(Value::Bool(lazy.contains(field))),
            Value::Lazy(lazy) => (Arc::clone(lazy).get(field).transpose()?, None),
            // A message has all fields, which are null if they are not set.
            Value::Message(message) => (message.field(field).cloned(), Some(Value::Null)),
            _ => {
                return if test && !matches!(target, Value::Null) {
                    Ok(Value::Bool(false))
                } else {
                    Err(no_such_overload())
                };
            }
        };
        match (found, test, optional) {
            (found, true, _) => Ok(Value::Bool(found.is_some())),
            (Some(value), false, false) => value.read(),
            (Some(value), false, true) => Ok(Value::some(value.read()?)),
            (None, false, true) => Ok(Value::Optional(None)),
            (None, false, false) => missing.ok_or_else(|| fail(format!("no such key: {field}"))),
        }
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &'a [Id]) -> Evaluated {
        match self.plan.ops.get(&id).copied().unwrap_or(Op::Unknown) {
            Op::And => self.logic(args, false),
            Op::Or => self.logic(args, true),
            Op::Conditional => match self.eval(args[0])? {
                Value::Bool(true) => self.eval(args[1]),
                Value::Bool(false) => self.eval(args[2]),
                _ => Err(no_such_overload()),
            },
            Op::NotStrictlyFalse => match self.eval(args[0]) {
                Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                Err(EvalError::CostLimit) => Err(EvalError::CostLimit),
                _ => Ok(Value::Bool(true)),
            },
            Op::OptionalOr => match self.eval(target.ok_or_else(no_such_overload)?)? {
                Value::Optional(None) => self.eval(args[0]),
                present @ Value::Optional(_) => Ok(present),
                _ => Err(no_such_overload()),
            },
            Op::OptionalOrValue => match self.eval(target.ok_or_else(no_such_overload)?)? {
                Value::Optional(None) => self.eval(args[0]),
                Value::Optional(Some(value)) => Ok((*value).clone()),
                _ => Err(no_such_overload()),
            },
            Op::Native(native, kind) => self.native(id, native, kind, target, args),
            Op::Unknown => Err(no_such_overload()),
        }
    }

    fn native(
        &mut self,
        id: Id,
        native: Native,
        kind: CallKind,
        target: Option<Id>,
        args: &'a [Id],
    ) -> Evaluated {
        let mut values = Vec::with_capacity(args.len() + 1);
        for id in target.iter().chain(args) {
            values.push(self.eval(*id)?);
        }
        // Charged before the work is done where the arguments determine the cost.
        let before = runtime_cost::before(kind, &values);
        self.context.charge(before.unwrap_or_default())?;
        let result = native(&mut self.context, &values);
        let result = result.map_err(|error| self.named(id, error, &values))?;
        if before.is_none() {
            let cost = runtime_cost::after(kind, &result);
            self.context.charge(cost)?;
        }
        Ok(result)
    }

    /// Names the function in the error of a call that no overload fits, in the cases in which
    /// cel-go does: it omits operators and conversions, and names some functions without argument
    /// types.
    fn named(&self, id: Id, error: EvalError, values: &[Value]) -> EvalError {
        let Expr::Call { function, .. } = self.ast.expr(id) else {
            return error;
        };
        let types = || {
            let names: Vec<&str> = values.iter().map(Value::type_name).collect();
            names.join(", ")
        };
        if error != no_such_overload() {
            return error;
        }
        match &**function {
            "contains" | "startsWith" | "endsWith" | "bool" | "bytes" | "double" | "duration"
            | "int" | "string" | "timestamp" | "uint" => error,
            name @ ("matches" | "size") => fail(format!("no such overload: {name}")),
            name if name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                fail(format!("no such overload: {name}({})", types()))
            }
            _ => error,
        }
    }

    /// `&&` and `||`: the value `decisive` on either side outweighs errors on the other.
    fn logic(&mut self, args: &'a [Id], decisive: bool) -> Evaluated {
        let mut failed = None;
        for &arg in args {
            match self.eval(arg) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(no_such_overload())),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn list(&mut self, id: Id, items: &'a [(Id, bool)]) -> Evaluated {
        let mut values = Vec::with_capacity(items.len());
        for &(item, optional) in items {
            match (self.eval(item)?, optional) {
                (Value::Optional(inner), true) => {
                    values.extend(inner.map(|value| (*value).clone()));
                }
                (_, true) => {
                    return Err(fail(
                        "cannot initialize optional list element from non-optional value",
                    ));
                }
                (value, false) => values.push(value),
            }
        }
        self.context.charge(if is_constant(self.ast, id) {
            0
        } else {
            LIST_COST
        })?;
        Ok(Value::list(values))
    }

    fn map(&mut self, id: Id) -> Evaluated {
        let Expr::Map(list) = self.ast.expr(id) else {
            return Err(no_such_overload());
        };
        let mut entries = BTreeMap::new();
        for entry in list {
            let key = self.eval(entry.key)?;
            let value = match (self.eval(entry.value)?, entry.optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (_, true) => {
                    return Err(fail(
                        "cannot initialize optional entry from non-optional value",
                    ));
                }
                (value, false) => value,
            };
            entries.insert(Key::of(&key)?, value);
        }
        self.context.charge(if is_constant(self.ast, id) {
            0
        } else {
            MAP_COST
        })?;
        Ok(Value::Map(Arc::new(Map {
            entries,
            hidden: BTreeMap::new(),
        })))
    }

    fn message(&mut self, name: &Arc<str>, list: &'a [Field]) -> Evaluated {
        let mut fields = BTreeMap::new();
        for field in list {
            let value = match (self.eval(field.value)?, field.optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (_, true) => {
                    return Err(fail(format!(
                        "cannot initialize optional entry '{}' from non-optional value",
                        field.name
                    )));
                }
                (value, false) => value,
            };
            fields.insert(field.name.clone(), value);
        }
        self.context.charge(STRUCT_COST)?;
        let message = Message {
            name: name.trim_start_matches('.').into(),
            fields,
        };
        if let Some(field) = message.misfit() {
            return Err(fail(format!(
                "unexpected type for JSONPatchType '{field}' field"
            )));
        }
        Ok(Value::Message(Arc::new(message)))
    }
}
