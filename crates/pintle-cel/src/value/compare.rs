//! Equality and order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{EvalError, Key, Library, List, Map, Message, Value, fail, no_such_overload, show};
use crate::decl::ListType;

/// The remaining budget for work that CEL costs do not cover, such as comparisons and copies.
#[derive(Debug)]
pub(crate) struct Work {
    left: u64,
}

impl Work {
    pub(crate) fn new(left: u64) -> Self {
        Self { left }
    }

    /// Deducts some work. Fails if not enough is left.
    pub(crate) fn spend(&mut self, amount: usize) -> Result<(), EvalError> {
        match self.left.checked_sub(amount as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(EvalError::CostLimit),
        }
    }
}

/// Compares two values for equality.
pub(crate) fn equal(a: &Value, b: &Value, work: &mut Work) -> Result<bool, EvalError> {
    work.spend(1)?;
    Ok(match (a, b) {
        (Value::Fault(why), _) | (_, Value::Fault(why)) => return Err(fail(&**why)),
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => compare_numbers(a, b) == Some(Ordering::Equal),
        (Value::String(a), Value::String(b)) => {
            work.spend(a.len().min(b.len()) / 64)?;
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            work.spend(a.len().min(b.len()) / 64)?;
            a == b
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, work)?,
            (a, b) => a.is_none() && b.is_none(),
        },
        (Value::List(a), Value::List(b)) => equal_lists(a, b, work)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, work)?,
        (Value::Message(a), Value::Message(b)) => equal_messages(a, b, work)?,
        (Value::Library(a), Value::Library(b)) => match (a, b) {
            (Library::Ip(a), Library::Ip(b)) => a == b,
            (Library::Cidr(a, n), Library::Cidr(b, m)) => a == b && n == m,
            (Library::Url(a), Library::Url(b)) => a.text() == b.text(),
            (Library::Quantity(a), Library::Quantity(b)) => {
                work.spend(a.digits().min(b.digits()) / 64)?;
                a == b
            }
            (Library::Semver(a), Library::Semver(b)) => a == b,
            (Library::Format(a), Library::Format(b)) => a.name == b.name,
            _ => false,
        },
        _ => false,
    })
}

/// Returns a form of a scalar that can be a key, to find items without comparing all pairs.
fn scalar_key(value: &Value) -> String {
    match value {
        Value::Timestamp(time) => format!("t{}", time.as_nanosecond()),
        Value::Duration(nanos) => format!("d{nanos}"),
        Value::Bytes(bytes) => format!("b{bytes:?}"),
        Value::Int(n) => format!("n{n}"),
        Value::Uint(n) => format!("n{n}"),
        Value::Double(n) if n.fract() == 0.0 => format!("n{n:.0}"),
        other => format!("{}:{}", other.type_name(), show(other)),
    }
}

/// Returns the key of an item in a list of type `map`.
pub(crate) fn item_key(item: &Value, keys: &[String]) -> String {
    let Value::Map(map) = item else {
        return scalar_key(item);
    };
    let mut out = String::new();
    for name in keys {
        let name = crate::decl::escape(name).unwrap_or_else(|| name.clone());
        match map.entries.get(&Key::String(name.into())) {
            Some(value) => {
                let part = scalar_key(value);
                let _ = write!(out, "{}:{part},", part.len());
            }
            None => out.push('-'),
        }
    }
    out
}

/// Returns the key by which a list of type `set` or `map` finds an item.
pub(crate) fn list_key(item: &Value, list_type: &ListType) -> String {
    match list_type {
        ListType::Map(keys) => item_key(item, keys),
        _ => scalar_key(item),
    }
}

fn equal_lists(a: &List, b: &List, work: &mut Work) -> Result<bool, EvalError> {
    if a.items.len() != b.items.len() {
        return Ok(false);
    }
    work.spend(a.items.len())?;
    if a.list_type == ListType::Atomic {
        for (a, b) in a.items.iter().zip(&b.items) {
            if !equal(a, b, work)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    // Sets and lists of type `map` compare regardless of order.
    let mut known = BTreeMap::new();
    for item in &a.items {
        known.insert(list_key(item, &a.list_type), item);
    }
    for item in &b.items {
        match known.get(&list_key(item, &a.list_type)) {
            None => return Ok(false),
            Some(_) if a.list_type == ListType::Set => {}
            Some(same) => {
                if !equal(same, item, work)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

fn equal_maps(a: &Map, b: &Map, work: &mut Work) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    work.spend(a.len())?;
    for (key, value) in &a.entries {
        match b.get(&key.value())? {
            Some(other) => {
                if !equal(value, other, work)? {
                    return Ok(false);
                }
            }
            None => return Ok(false),
        }
    }
    for (name, value) in &a.hidden {
        let escaped = crate::decl::escape(name).unwrap_or_else(|| name.clone());
        // A field that is null on one side only.
        if b.field(&escaped.into()).is_some() {
            return Ok(false);
        }
        // A field that the schema does not know is only compared if both sides have it, as
        // upstream.
        if b.hidden.get(name).is_some_and(|other| other != value) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_messages(a: &Message, b: &Message, work: &mut Work) -> Result<bool, EvalError> {
    if a.name != b.name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for (name, value) in &a.fields {
        match b.fields.get(name) {
            Some(other) if equal(value, other, work)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

pub(crate) fn compare_numbers(a: &Value, b: &Value) -> Option<Ordering> {
    // Integers are compared as floats, unless the float is beyond all of them.
    fn with_float(n: &Value, float: f64) -> Option<Ordering> {
        let (n, least, most) = match n {
            Value::Int(n) => (*n as f64, i64::MIN as f64, i64::MAX as f64),
            Value::Uint(n) => (*n as f64, 0.0, u64::MAX as f64),
            _ => return None,
        };
        if float < least {
            Some(Ordering::Greater)
        } else if float > most {
            Some(Ordering::Less)
        } else {
            n.partial_cmp(&float)
        }
    }
    let wide = |value: &Value| match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::Uint(n) => Some(i128::from(*n)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(float), b) => Some(with_float(b, *float)?.reverse()),
        (a, Value::Double(float)) => with_float(a, *float),
        (a, b) => Some(wide(a)?.cmp(&wide(b)?)),
    }
}

/// Orders two values.
pub(crate) fn compare(a: &Value, b: &Value) -> Result<Ordering, EvalError> {
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => compare_numbers(a, b).ok_or_else(|| fail("NaN values cannot be ordered"))?,
        _ => return Err(no_such_overload()),
    })
}
