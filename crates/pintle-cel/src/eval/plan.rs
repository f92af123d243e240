//! What is decided before an expression runs: the function of each call, and constants.

use std::collections::BTreeMap;

use super::Context;
use crate::ast::{Ast, Entry, Expr, Id, Literal};
use crate::checker::Checked;
use crate::library::{self, Native};
use crate::re2::Pattern;
use crate::runtime_cost::{self, CallKind};
use crate::value::{EvalError, Value, fail};

/// How a call is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
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
    pub(super) ops: BTreeMap<Id, Op>,
    pub(super) literals: BTreeMap<Id, Value>,
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
pub(super) fn is_constant(ast: &Ast, id: Id) -> bool {
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
