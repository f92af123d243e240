//! Elements of lists, maps and messages, and tests for membership.

use std::sync::Arc;

use super::Context;
use crate::value::{EvalError, Evaluated, List, Value, equal, fail, no_such_overload, show};

/// Returns the item at an index, or `None` if the index is out of bounds.
pub(crate) fn index_list(list: &List, index: &Value) -> Result<Option<Value>, EvalError> {
    let i = match index {
        Value::Int(i) => usize::try_from(*i).ok(),
        Value::Uint(i) => usize::try_from(*i).ok(),
        Value::Double(i) if i.fract() == 0.0 && *i >= 0.0 => Some(*i as usize),
        Value::Double(i) if i.fract() != 0.0 => {
            let shown = crate::go::float(*i);
            return Err(fail(format!("unsupported index value {shown} in list")));
        }
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

/// Evaluates `target[index]`.
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
            None => Err(missing(index)),
        },
        Value::Message(_) | Value::Lazy(_) => Err(no_such_overload()),
        _ => Err(missing(index)),
    }
}

fn missing(key: &Value) -> EvalError {
    fail(format!("no such key: {}", show(key)))
}

/// Evaluates `target[?index]` and `target.?field`.
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
        _ => None,
    };
    Ok(Value::Optional(found.map(Arc::new)))
}

/// Evaluates `item in list` and `key in map`.
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
