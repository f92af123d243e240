//! Operators, conversions and optional values.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Native, time};
use crate::decl::ListType;
use crate::eval::Context;
use crate::go;
use crate::value::{
    EvalError, Evaluated, Key, Library, List, Map, Value, compare, equal, fail, list_key,
    no_such_overload,
};

/// The longest list that an expression may build. Requests cannot contain longer ones.
pub(crate) const MAX_LIST: usize = 2_000_000;

/// The longest string that an expression may build, in bytes.
pub(crate) const MAX_STRING: usize = 16 * 1024 * 1024;

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "!_" => |_, args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!value)),
            _ => Err(no_such_overload()),
        },
        "_==_" => |context, args| Ok(Value::Bool(same(context, args)?)),
        "_!=_" => |context, args| Ok(Value::Bool(!same(context, args)?)),
        "_<_" => |_, args| Ok(Value::Bool(order(args)? == Ordering::Less)),
        "_<=_" => |_, args| Ok(Value::Bool(order(args)? != Ordering::Greater)),
        "_>_" => |_, args| Ok(Value::Bool(order(args)? == Ordering::Greater)),
        "_>=_" => |_, args| Ok(Value::Bool(order(args)? != Ordering::Less)),
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => |_, args| match args {
            [Value::Int(n)] => n.checked_neg().map(Value::Int).ok_or_else(int_overflow),
            [Value::Double(n)] => Ok(Value::Double(-n)),
            _ => Err(no_such_overload()),
        },
        "size" => |_, args| {
            let size = match args {
                [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                    value.cost_size()
                }
                _ => return Err(no_such_overload()),
            };
            Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
        },
        "type" => |_, args| match args {
            [value] => Ok(Value::Type(value.type_name().into())),
            _ => Err(no_such_overload()),
        },
        "dyn" => |_, args| args.first().cloned().ok_or_else(no_such_overload),
        "bool" => to_bool,
        "bytes" => |context, args| match args {
            [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
            [Value::String(text)] => {
                bounded(context, text.len())?;
                Ok(Value::Bytes(text.as_bytes().into()))
            }
            _ => Err(no_such_overload()),
        },
        "double" => to_double,
        "int" => to_int,
        "uint" => to_uint,
        "string" => to_string,
        "duration" => |_, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Duration(*nanos)),
            [Value::String(text)] => match go::parse_duration(text) {
                Ok(nanos) => Ok(Value::Duration(nanos)),
                Err(_) => Err(conversion("string", "google.protobuf.Duration")),
            },
            [Value::Int(_)] => Err(conversion("int", "google.protobuf.Duration")),
            _ => Err(no_such_overload()),
        },
        "timestamp" => |_, args| match args {
            [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
            [Value::String(text)] => time::parse_timestamp(text).map(Value::Timestamp),
            [Value::Int(seconds)] => time::from_unix(*seconds).map(Value::Timestamp),
            _ => Err(no_such_overload()),
        },
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => {
            return time::native(name);
        }
        "optional.of" => |_, args| match args {
            [value] => Ok(Value::some(value.clone())),
            _ => Err(no_such_overload()),
        },
        "optional.ofNonZeroValue" => |_, args| match args {
            [value] if value.is_zero() => Ok(Value::Optional(None)),
            [value] => Ok(Value::some(value.clone())),
            _ => Err(no_such_overload()),
        },
        "optional.none" => |_, _| Ok(Value::Optional(None)),
        "value" => |_, args| match args {
            [Value::Optional(Some(value))] => (**value).clone().read(),
            [Value::Optional(None)] => Err(fail("optional.none() dereference")),
            _ => Err(no_such_overload()),
        },
        "hasValue" => |_, args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(no_such_overload()),
        },
        "optional.unwrap" | "unwrapOpt" => |context, args| match args {
            [Value::List(list)] => {
                context.work.spend(list.items.len())?;
                let mut present = Vec::new();
                for item in &list.items {
                    match item {
                        Value::Optional(value) => {
                            present.extend(value.as_ref().map(|value| (**value).clone()));
                        }
                        _ => return Err(fail("value is not optional")),
                    }
                }
                Ok(Value::list(present))
            }
            _ => Err(no_such_overload()),
        },
        "cel.@mapInsert" => |context, args| match args {
            [Value::Map(into), rest @ ..] => {
                context.work.spend(into.len())?;
                let mut into = (**into).clone();
                insert(context, &mut into, rest)?;
                Ok(Value::Map(Arc::new(into)))
            }
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}

pub(crate) fn int_overflow() -> EvalError {
    fail("integer overflow")
}

fn uint_overflow() -> EvalError {
    fail("unsigned integer overflow")
}

fn duration_overflow() -> EvalError {
    fail("duration overflow")
}

pub(crate) fn conversion(from: &str, to: &str) -> EvalError {
    fail(format!("type conversion error from '{from}' to '{to}'"))
}

fn same(context: &mut Context, args: &[Value]) -> Result<bool, EvalError> {
    match args {
        [a, b] => equal(a, b, &mut context.work),
        _ => Err(no_such_overload()),
    }
}

fn order(args: &[Value]) -> Result<Ordering, EvalError> {
    match args {
        [a, b] => compare(a, b),
        _ => Err(no_such_overload()),
    }
}

/// Checks the size of a string that is about to be built.
pub(crate) fn bounded(context: &mut Context, size: usize) -> Result<(), EvalError> {
    if size > MAX_STRING {
        return Err(fail(format!("string exceeds {MAX_STRING} bytes")));
    }
    context.work.spend(size / 16)
}

pub(crate) fn add(context: &mut Context, args: &[Value]) -> Evaluated {
    let [a, b] = args else {
        return Err(no_such_overload());
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => {
            a.checked_add(*b).map(Value::Int).ok_or_else(int_overflow)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            a.checked_add(*b).map(Value::Uint).ok_or_else(uint_overflow)
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            bounded(context, a.len() + b.len())?;
            Ok([&**a, &**b].concat().into())
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            bounded(context, a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::Duration(a), Value::Duration(b)) => a
            .checked_add(*b)
            .map(Value::Duration)
            .ok_or_else(duration_overflow),
        (Value::Duration(nanos), Value::Timestamp(at))
        | (Value::Timestamp(at), Value::Duration(nanos)) => time::shift(*at, *nanos),
        (Value::List(a), Value::List(b)) => concat(context, a, b),
        _ => Err(no_such_overload()),
    }
}

/// Concatenates lists. Sets drop duplicates, lists of type `map` replace items with the same key.
fn concat(context: &mut Context, a: &List, b: &List) -> Evaluated {
    let size = a.items.len() + b.items.len();
    if size > MAX_LIST {
        return Err(fail(format!("list exceeds {MAX_LIST} items")));
    }
    context.work.spend(size)?;
    let mut items = a.items.clone();
    match &a.list_type {
        ListType::Atomic => items.extend(b.items.iter().cloned()),
        list_type => {
            let mut places: BTreeMap<String, usize> = BTreeMap::new();
            for (i, item) in items.iter().enumerate() {
                places.insert(list_key(item, list_type), i);
            }
            for item in &b.items {
                let key = list_key(item, list_type);
                match places.get(&key) {
                    Some(&i) if *list_type != ListType::Set => items[i] = item.clone(),
                    Some(_) => {}
                    None => {
                        if *list_type == ListType::Set {
                            places.insert(key, items.len());
                        }
                        items.push(item.clone());
                    }
                }
            }
        }
    }
    Ok(Value::List(Arc::new(List {
        items,
        list_type: a.list_type.clone(),
    })))
}

fn subtract(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Int(a), Value::Int(b)] => {
            a.checked_sub(*b).map(Value::Int).ok_or_else(int_overflow)
        }
        [Value::Uint(a), Value::Uint(b)] => {
            a.checked_sub(*b).map(Value::Uint).ok_or_else(uint_overflow)
        }
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => a
            .checked_sub(*b)
            .map(Value::Duration)
            .ok_or_else(duration_overflow),
        [Value::Timestamp(at), Value::Duration(nanos)] => {
            let nanos = nanos.checked_neg().ok_or_else(duration_overflow)?;
            time::shift(*at, nanos)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            i64::try_from(nanos)
                .map(Value::Duration)
                .map_err(|_| int_overflow())
        }
        _ => Err(no_such_overload()),
    }
}

fn multiply(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Int(a), Value::Int(b)] => {
            a.checked_mul(*b).map(Value::Int).ok_or_else(int_overflow)
        }
        [Value::Uint(a), Value::Uint(b)] => {
            a.checked_mul(*b).map(Value::Uint).ok_or_else(uint_overflow)
        }
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(no_such_overload()),
    }
}

fn divide(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(fail("division by zero"))
        }
        [Value::Int(a), Value::Int(b)] => {
            a.checked_div(*b).map(Value::Int).ok_or_else(int_overflow)
        }
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a / b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(no_such_overload()),
    }
}

fn modulo(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(fail("modulus by zero"))
        }
        [Value::Int(a), Value::Int(b)] => {
            a.checked_rem(*b).map(Value::Int).ok_or_else(int_overflow)
        }
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a % b)),
        _ => Err(no_such_overload()),
    }
}

fn to_bool(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(conversion("string", "bool")),
        },
        _ => Err(no_such_overload()),
    }
}

fn to_double(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Double(n)] => Ok(Value::Double(*n)),
        [Value::Int(n)] => Ok(Value::Double(*n as f64)),
        [Value::Uint(n)] => Ok(Value::Double(*n as f64)),
        [Value::String(text)] => go::parse_float(text)
            .map(Value::Double)
            .ok_or_else(|| conversion("string", "double")),
        _ => Err(no_such_overload()),
    }
}

fn to_int(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Int(n) | Value::Duration(n)] => Ok(Value::Int(*n)),
        [Value::Uint(n)] => i64::try_from(*n)
            .map(Value::Int)
            .map_err(|_| int_overflow()),
        [Value::Double(n)] => {
            // As in cel-go, the limits themselves are excluded.
            let fits = *n > -9_223_372_036_854_775_808.0 && *n < 9_223_372_036_854_775_808.0;
            if fits {
                Ok(Value::Int(*n as i64))
            } else {
                Err(int_overflow())
            }
        }
        [Value::String(text)] => text
            .parse()
            .map(Value::Int)
            .map_err(|_| conversion("string", "int")),
        [Value::Timestamp(at)] => Ok(Value::Int(at.as_second())),
        _ => Err(no_such_overload()),
    }
}

fn to_uint(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [Value::Uint(n)] => Ok(Value::Uint(*n)),
        [Value::Int(n)] => u64::try_from(*n)
            .map(Value::Uint)
            .map_err(|_| uint_overflow()),
        [Value::Double(n)] => {
            let fits = *n >= 0.0 && *n < 18_446_744_073_709_551_616.0;
            if fits {
                Ok(Value::Uint(*n as u64))
            } else {
                Err(uint_overflow())
            }
        }
        // Unlike Rust, Go accepts no sign.
        [Value::String(text)] if text.starts_with('+') => Err(conversion("string", "uint")),
        [Value::String(text)] => text
            .parse()
            .map(Value::Uint)
            .map_err(|_| conversion("string", "uint")),
        _ => Err(no_such_overload()),
    }
}

fn to_string(_: &mut Context, args: &[Value]) -> Evaluated {
    match args {
        [value] => text_of(value),
        _ => Err(no_such_overload()),
    }
}

/// Converts a value as `string()` does.
pub(crate) fn text_of(value: &Value) -> Evaluated {
    Ok(match value {
        Value::String(_) => value.clone(),
        Value::Bool(value) => value.to_string().into(),
        Value::Int(n) => n.to_string().into(),
        Value::Uint(n) => n.to_string().into(),
        Value::Double(n) => go::float(*n).into(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => return Err(fail("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => time::show_duration(*nanos).into(),
        Value::Timestamp(at) => at.to_string().into(),
        Value::Type(name) => Value::String(name.clone()),
        Value::Library(Library::Ip(ip)) => ip.to_string().into(),
        Value::Library(Library::Cidr(ip, bits)) => format!("{ip}/{bits}").into(),
        _ => return Err(no_such_overload()),
    })
}

/// Inserts an entry, or all entries of a map. The keys must be new.
pub(crate) fn insert(
    context: &mut Context,
    into: &mut Map,
    args: &[Value],
) -> Result<(), EvalError> {
    let mut add = |key: Key, value: Value| {
        context.work.spend(1)?;
        if into.get(&key.value())?.is_some() {
            let shown = crate::value::show(&key.value());
            return Err(fail(format!("insert failed: key {shown} already exists")));
        }
        into.entries.insert(key, value);
        Ok(())
    };
    match args {
        [key, value] => add(Key::of(key)?, value.clone()),
        [Value::Map(other)] => {
            for (key, value) in &other.entries {
                add(key.clone(), value.clone())?;
            }
            Ok(())
        }
        _ => Err(no_such_overload()),
    }
}
