//! Evaluates checked expressions under a budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

use crate::ast::{Ast, Entry, Expr, Field, Fold, Id, Literal};
use crate::checker::Checked;
use crate::cost::{LIST_COST, MAP_COST, STRUCT_COST};
use crate::functions;
use crate::library::{self, Native};
use crate::macros::ACCU;
use crate::re2::Pattern;
use crate::runtime_cost::{self, CallKind};
use crate::value::{
    EvalError, Evaluated, Key, List, Map, Message, Value, Work, equal, fail, no_such_overload, show,
};

/// The work of one evaluation that costs do not cover: comparisons and copies of large values.
const MAX_WORK: u64 = 20_000_000;

/// How a call is evaluated.
#[derive(Debug, Clone, Copy)]
enum Op {
    And,
    Or,
    Conditional,
    NotStrictlyFalse,
    OptionalOr,
    OptionalOrValue,
    Native(Native, CallKind),
    Unknown,
}

/// Prepared calls, by node.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    ops: BTreeMap<Id, Op>,
    literals: BTreeMap<Id, Value>,
}

/// Prepares a checked expression. Fails if a constant part of it cannot be evaluated.
pub(crate) fn plan(ast: &Ast, checked: &Checked) -> Result<Plan, EvalError> {
    let mut plan = Plan {
        ops: BTreeMap::new(),
        literals: BTreeMap::new(),
    };
    for id in 0..ast.len() {
        let id = Id::try_from(id).unwrap_or(Id::MAX);
        match ast.expr(id) {
            Expr::Call { function, args, .. } => {
                let overload = match checked.overloads(id) {
                    [one] => one,
                    _ => "",
                };
                let op = match &**function {
                    "_&&_" => Op::And,
                    "_||_" => Op::Or,
                    "_?_:_" => Op::Conditional,
                    "@not_strictly_false" => Op::NotStrictlyFalse,
                    "or" if args.len() == 1 => Op::OptionalOr,
                    "orValue" if args.len() == 1 => Op::OptionalOrValue,
                    name => match library::native_for(name, overload) {
                        // cel-go computes these once, when it plans the expression.
                        Some(native) if is_free(ast, name, args) => {
                            if let Some(value) = conversion_of(ast, name, args) {
                                native(&mut Context::new(u64::MAX), &[value])?;
                            }
                            Op::Native(native, CallKind::Fixed(0))
                        }
                        Some(native) => Op::Native(native, runtime_cost::kind(name, overload)),
                        None => Op::Unknown,
                    },
                };
                if let ("find" | "findAll", Some(&pattern)) = (&**function, args.first())
                    && let Some(text) = ast.literal_string(pattern)
                {
                    Pattern::parse(text.clone()).map_err(fail)?;
                }
                plan.ops.insert(id, op);
            }
            Expr::Literal(literal) => {
                plan.literals.insert(id, literal_value(literal));
            }
            _ => {}
        }
    }
    Ok(plan)
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

/// Returns the literal that a conversion is applied to.
fn conversion_of(ast: &Ast, function: &str, args: &[Id]) -> Option<Value> {
    match (function, args) {
        ("@in", _) => None,
        (_, &[arg]) => match ast.expr(arg) {
            Expr::Literal(literal) => Some(literal_value(literal)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true for conversions of literals and tests for membership in a literal list.
fn is_free(ast: &Ast, function: &str, args: &[Id]) -> bool {
    match (function, args) {
        ("@in", &[_, list]) => is_constant(ast, list),
        (
            "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp"
            | "type" | "uint",
            &[arg],
        ) => matches!(ast.expr(arg), Expr::Literal(_)),
        _ => false,
    }
}

/// Returns true for a list or map of literals.
fn is_constant(ast: &Ast, id: Id) -> bool {
    let literal = |id: Id| matches!(ast.expr(id), Expr::Literal(_)) || is_constant(ast, id);
    match ast.expr(id) {
        Expr::List(items) => {
            !items.is_empty()
                && items
                    .iter()
                    .all(|&(item, optional)| !optional && literal(item))
        }
        Expr::Map(entries) => {
            let plain = |e: &Entry| !e.optional && literal(e.key) && literal(e.value);
            !entries.is_empty() && entries.iter().all(plain)
        }
        _ => false,
    }
}

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
            Value::Lazy(_) if test => return Ok(Value::Bool(true)),
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

    /// Adds the function to the error of a call that no overload fits, where cel-go does: operators
    /// and conversions are not named, and functions that dispatch on what their argument can do are
    /// named without types.
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

    fn fold(&mut self, fold: &'a Fold) -> Evaluated {
        let range = self.eval(fold.range)?;
        // A binding is only an error where it is used.
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
            _ => return Err(no_such_overload()),
        }
        match append {
            Some((_, Append::Item(_))) => self.scopes[depth].1 = Value::list(collected.items),
            Some((_, Append::Insert(..))) => {
                self.scopes[depth].1 = Value::Map(Arc::new(collected.entries));
            }
            None => {}
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

    /// Appends to the list of a `map` or `filter`, or the map of a `transformMap`, with the costs of
    /// the expression that the macro stands for, but without copying the whole each time.
    fn push(
        &mut self,
        filter: Option<Id>,
        append: Append<'a>,
        into: &mut Collected,
    ) -> Result<(), EvalError> {
        if let Some(filter) = filter {
            match self.eval(filter)? {
                Value::Bool(true) => {}
                // The accumulator is read.
                Value::Bool(false) => return self.context.charge(1),
                _ => return Err(no_such_overload()),
            }
        }
        self.context.charge(1)?;
        match append {
            Append::Item(item) => {
                let value = self.eval(item)?;
                self.context.charge(LIST_COST + 1)?;
                into.items.push(value);
            }
            Append::Insert(call, args) => {
                let mut values = Vec::with_capacity(args.len());
                for &arg in args {
                    values.push(self.eval(arg)?);
                }
                let cost = match self.plan.ops.get(&call) {
                    Some(Op::Native(_, CallKind::Fixed(cost))) => *cost,
                    _ => 1,
                };
                self.context.charge(cost)?;
                library::insert(&mut self.context, &mut into.entries, &values)?;
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
                    &[(item, false)] => Some((filter, Append::Item(item))),
                    _ => None,
                },
                _ => None,
            },
            ("cel.@mapInsert", _) => Some((filter, Append::Insert(add, rest))),
            _ => None,
        }
    }
}

/// What a comprehension adds to its result in each step.
#[derive(Debug, Clone, Copy)]
enum Append<'a> {
    /// An item of a list.
    Item(Id),
    /// An entry, or all entries of a map: the call, and its arguments without the accumulator.
    Insert(Id, &'a [Id]),
}

/// The result of such a comprehension so far, which nothing can observe before the end.
#[derive(Debug, Default)]
struct Collected {
    items: Vec<Value>,
    entries: Map,
}

/// Returns the item of a list.
pub(crate) fn index_list(list: &List, index: &Value) -> Result<Option<Value>, EvalError> {
    let i = match index {
        Value::Int(i) => usize::try_from(*i).ok(),
        Value::Uint(i) => usize::try_from(*i).ok(),
        Value::Double(i) if i.fract() == 0.0 && *i >= 0.0 => Some(*i as usize),
        other => {
            return Err(fail(format!(
                "unsupported index type '{}' in list",
                other.type_name()
            )));
        }
    };
    i.and_then(|i| list.items.get(i))
        .cloned()
        .map(Value::read)
        .transpose()
}

/// `target[index]`
pub(crate) fn index(context: &mut Context, args: &[Value]) -> Evaluated {
    let [target, index] = args else {
        return Err(no_such_overload());
    };
    match target {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(_)) => optional_index(context, args),
        Value::List(list) => index_list(list, index)?
            .ok_or_else(|| fail(format!("index out of bounds: {}", show(index)))),
        Value::Map(map) => match map.get(index)? {
            Some(value) => value.clone().read(),
            None => Err(fail(format!("no such key: {}", show(index)))),
        },
        _ => Err(no_such_overload()),
    }
}

/// `target[?index]` and `target.?field`
pub(crate) fn optional_index(_: &mut Context, args: &[Value]) -> Evaluated {
    let [target, index] = args else {
        return Err(no_such_overload());
    };
    let target = match target {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => inner,
        other => other,
    };
    let found = match target {
        Value::List(list) => index_list(list, index)?,
        Value::Map(map) => map.get(index)?.cloned().map(Value::read).transpose()?,
        Value::Message(message) => match index {
            Value::String(name) => message.field(name).cloned(),
            _ => return Err(no_such_overload()),
        },
        Value::Lazy(lazy) => match index {
            Value::String(name) => Arc::clone(lazy).get(name).transpose()?,
            _ => return Err(no_such_overload()),
        },
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Optional(found.map(Arc::new)))
}

/// `item in list`, `key in map`
pub(crate) fn contains(context: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [item, Value::List(list)] => {
            let mut failed = None;
            for other in &list.items {
                match equal(other, item, &mut context.work) {
                    Ok(true) => return Ok(Value::Bool(true)),
                    Ok(false) => {}
                    Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            failed.map_or(Ok(Value::Bool(false)), Err)
        }
        [key, Value::Map(map)] => Ok(Value::Bool(map.get(key)?.is_some())),
        _ => Err(no_such_overload()),
    }
}
