//! Evaluates checked expressions under a budget.

mod construct;
mod fold;
mod index;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

pub(crate) use self::index::{contains, index, optional_index};
use self::plan::Op;
pub(crate) use self::plan::{Plan, plan};
use crate::ast::{Ast, Expr, Id};
use crate::functions;
use crate::library::Native;
use crate::runtime_cost::{self, CallKind};
use crate::value::{EvalError, Evaluated, Value, Work, fail, no_such_overload};

/// The limit on work that CEL costs do not cover: comparisons and copies of large values.
const MAX_WORK: u64 = 20_000_000;

/// State that functions use besides their arguments.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) work: Work,
    /// Patterns compiled so far.
    pub(crate) patterns: BTreeMap<Arc<str>, Regex>,
    /// Time zones read so far.
    pub(crate) zones: BTreeMap<String, jiff::tz::TimeZone>,
    cost: u64,
    limit: u64,
    /// How much of the next charges is waived.
    waived: u64,
}

impl Context {
    fn new(limit: u64) -> Self {
        Self {
            work: Work::new(MAX_WORK),
            patterns: BTreeMap::new(),
            zones: BTreeMap::new(),
            cost: 0,
            limit,
            waived: 0,
        }
    }

    /// Adds to the cost. Fails if that exceeds the limit.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        let waived = self.waived.min(cost);
        self.waived -= waived;
        self.cost = self.cost.saturating_add(cost - waived);
        if self.cost > self.limit {
            Err(EvalError::CostLimit)
        } else {
            Ok(())
        }
    }

    /// Takes back the cost of an attribute whose presence could not be tested.
    fn refund(&mut self) {
        self.cost = self.cost.saturating_sub(1);
    }

    /// Returns the remaining budget.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.cost)
    }
}

/// Evaluates an expression. Returns the result and its cost.
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
        let expr = self.ast.expr(id);
        if let Expr::Literal(_) | Expr::List(_) | Expr::Map(_) | Expr::Call { .. } = expr
            && let Some(constant) = self.plan.constants.get(&id)
        {
            return Ok(constant.clone());
        }
        match expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select {
                operand,
                field,
                test,
            } => self.select(*operand, field, *test),
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::List(items) => self.list(items),
            Expr::Map(_) => self.map(id),
            Expr::Struct { name, fields } => self.message(name, fields),
            Expr::Fold(fold) => self.fold(fold),
            Expr::Literal(_) | Expr::Invalid => Err(no_such_overload()),
        }
    }

    /// Returns true for variables and parts of values. cel-go plans a chain of them as one
    /// attribute, whose cost is one for its start and one for every part.
    fn is_attribute(&self, id: Id) -> bool {
        match self.ast.expr(id) {
            Expr::Ident(_) => !self.plan.constants.contains_key(&id),
            Expr::Select { test, .. } => !test,
            Expr::Call { .. } => matches!(self.plan.ops.get(&id), Some(Op::Part(..))),
            _ => false,
        }
    }

    /// Evaluates the operand of a selection. A computed value starts a new attribute.
    fn start(&mut self, id: Id) -> Evaluated {
        let value = self.eval(id);
        let conditional = matches!(self.plan.ops.get(&id), Some(Op::Conditional));
        if !conditional && !self.is_attribute(id) {
            self.context.charge(1)?;
        }
        value
    }

    /// Returns true if an attribute with a cost begins here. An attribute that a conditional
    /// selects is free.
    fn begins(&self, mut id: Id) -> bool {
        if !self.is_attribute(id) {
            return false;
        }
        loop {
            id = match self.ast.expr(id) {
                Expr::Select { operand, .. } => *operand,
                Expr::Call { args, .. } => match self.plan.ops.get(&id) {
                    Some(Op::Part(..)) => args[0],
                    op => return !matches!(op, Some(Op::Conditional)),
                },
                _ => return true,
            };
        }
    }

    /// Evaluates an expression. If it is an attribute, its start is free.
    fn uncharged(&mut self, id: Id) -> Evaluated {
        self.context.waived += u64::from(self.begins(id));
        let result = self.eval(id);
        self.context.waived = 0;
        result
    }

    fn part(&mut self, native: Native, optional: bool, args: &'a [Id]) -> Evaluated {
        let &[target, key] = args else {
            return Err(no_such_overload());
        };
        let target = self.start(target)?;
        if matches!(target, Value::Optional(None)) {
            return Ok(target);
        }
        let index = self.uncharged(key);
        let optional = optional || matches!(target, Value::Optional(_));
        if !optional {
            self.context.charge(1)?;
        }
        let index = index?;
        let found = native(&mut self.context, &[target, index])?;
        // Absent values cost nothing.
        if optional && !matches!(found, Value::Optional(None)) {
            self.context.charge(1)?;
        }
        Ok(found)
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
        let target = self.start(operand);
        if test && target.is_err() {
            self.context.refund();
        }
        let (target, optional) = match target? {
            Value::Optional(None) => return Ok(self.absent(test)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        if !test && !optional {
            self.context.charge(1)?;
        }
        let (found, missing) = match &target {
            Value::Map(map) => (map.field(field).cloned(), None),
            Value::Lazy(lazy) if test => (lazy.contains(field).then_some(Value::Null), None),
            Value::Lazy(lazy) => (Arc::clone(lazy).get(field).transpose()?, None),
            // A message has all fields, which are null if they are not set.
            Value::Message(message) => (message.field(field).cloned(), Some(Value::Null)),
            Value::List(_) => return Err(fail("unsupported index type 'string' in list")),
            _ => (None, None),
        };
        match (found, test, optional) {
            (Some(_), true, _) => Ok(Value::Bool(true)),
            (None, true, false) => Ok(Value::Bool(false)),
            (None, _, true) => Ok(self.absent(test)),
            (Some(value), false, false) => value.read(),
            (Some(value), false, true) => {
                self.context.charge(1)?;
                Ok(Value::some(value.read()?))
            }
            (None, false, false) => missing.ok_or_else(|| fail(format!("no such key: {field}"))),
        }
    }

    /// Returns the result of selecting an absent field of an optional, or of testing for it, which
    /// costs nothing.
    fn absent(&mut self, test: bool) -> Value {
        if test {
            self.context.refund();
            return Value::Bool(false);
        }
        Value::Optional(None)
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &'a [Id]) -> Evaluated {
        match self.plan.ops.get(&id).copied().unwrap_or(Op::Unknown) {
            Op::And => self.logic(args, false),
            Op::Or => self.logic(args, true),
            Op::Conditional => match self.eval(args[0])? {
                Value::Bool(true) => self.uncharged(args[1]),
                Value::Bool(false) => self.uncharged(args[2]),
                _ => Err(no_such_overload()),
            },
            Op::NotStrictlyFalse => {
                let value = self.eval(args[0]);
                self.context.charge(1)?;
                match value {
                    Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                    Err(EvalError::CostLimit) => Err(EvalError::CostLimit),
                    _ => Ok(Value::Bool(true)),
                }
            }
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
            Op::Part(native, optional) => self.part(native, optional, args),
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
        let count = args.len() + usize::from(target.is_some());
        let mut values = Vec::with_capacity(count);
        let mut failed = None;
        for &arg in target.iter().chain(args) {
            match self.eval(arg) {
                Ok(value) => values.push(value),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(error) => {
                    failed = failed.or(Some(error));
                    values.push(Value::Null);
                    if self.stops_at_failure(id, args, count) {
                        break;
                    }
                }
            }
        }
        // cel-go charges a call with failed arguments too, unless it skipped some of them.
        if let Some(error) = failed {
            if values.len() == count {
                let cost = runtime_cost::before(kind, &values)
                    .unwrap_or_else(|| runtime_cost::after(kind, &Value::Null));
                self.context.charge(cost)?;
            }
            return Err(error);
        }
        // Charge before doing the work if the arguments determine the cost.
        let before = runtime_cost::before(kind, &values);
        self.context.charge(before.unwrap_or_default())?;
        let result = native(&mut self.context, &values);
        if before.is_none() {
            let cost = runtime_cost::after(kind, result.as_ref().unwrap_or(&Value::Null));
            self.context.charge(cost)?;
        }
        result.map_err(|error| self.named(id, error, &values))
    }

    /// Returns whether a failed argument keeps the next ones from being evaluated. cel-go evaluates
    /// both arguments of a binary call, unless it has to choose between overloads and some of them
    /// have more arguments, or an optimization has the same effect.
    fn stops_at_failure(&self, id: Id, args: &[Id], count: usize) -> bool {
        let Expr::Call { function, .. } = self.ast.expr(id) else {
            return true;
        };
        let is_constant = |id: &Id| {
            matches!(self.ast.expr(*id), Expr::Literal(_)) || self.plan.constants.contains_key(id)
        };
        count > 2
            || match &**function {
                "format" => true,
                "add" | "compareTo" | "containsCIDR" | "containsIP" | "indexOf"
                | "isGreaterThan" | "isLessThan" | "lastIndexOf" | "sub" => {
                    self.plan.ambiguous.contains(&id)
                }
                "find" | "findAll" | "matches" => args.last().is_some_and(is_constant),
                _ => false,
            }
    }

    /// Returns the error of a call that no overload fits. It names the function where cel-go does:
    /// not for conversions and most operators, and for some functions without argument types.
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
            "containsIP" if matches!(values, [Value::Library(_), Value::String(_)]) => error,
            name @ ("matches" | "size") => fail(format!("no such overload: {name}")),
            name if name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                fail(format!("no such overload: {name}({})", types()))
            }
            name if values
                .first()
                .is_some_and(|first| lacks_operator(first, name)) =>
            {
                fail(format!("no such overload: {name}"))
            }
            _ => error,
        }
    }

    /// Evaluates `&&` and `||`. The value `decisive` on either side outweighs errors on the other.
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
}

/// Returns true if the type of `value` does not implement an operator. cel-go then rejects the call
/// without consulting the value.
fn lacks_operator(value: &Value, operator: &str) -> bool {
    let has = match value {
        // These types reject unknown operators themselves.
        Value::String(_) | Value::Duration(_) | Value::Timestamp(_) => true,
        Value::Int(_) => operator != "!_",
        Value::Uint(_) => !matches!(operator, "!_" | "-_"),
        Value::Double(_) => !matches!(operator, "!_" | "_%_"),
        Value::Bool(_) => matches!(operator, "!_" | "-_" | "_<_" | "_<=_" | "_>_" | "_>=_"),
        Value::Bytes(_) => matches!(operator, "_+_" | "_<_" | "_<=_" | "_>_" | "_>=_"),
        Value::List(_) => operator == "_+_",
        _ => false,
    };
    let operators = [
        "!_", "-_", "_+_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_",
    ];
    !has && operators.contains(&operator)
}
