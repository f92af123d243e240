//! Functions on lists and sets.

use std::cmp::Ordering;

use super::Native;
use super::standard::{self, MAX_LIST};
use crate::eval::Context;
use crate::value::{EvalError, Evaluated, List, Value, compare, equal, fail, no_such_overload};

/// Returns the implementation of `sum`. The sum of an empty list depends on the type of its items.
pub(super) fn sum(overload: &str) -> Native {
    fn from(context: &mut Context, args: &[Value], zero: Value) -> Evaluated {
        let list = list(args)?;
        let mut items = list.items.iter();
        let mut sum = items.next().cloned().unwrap_or(zero);
        for item in items {
            sum = standard::add(context, &[sum, item.clone()])?;
        }
        Ok(sum)
    }
    match overload {
        "list_uint_sum_uint" => |context, args| from(context, args, Value::Uint(0)),
        "list_double_sum_double" => |context, args| from(context, args, Value::Double(0.0)),
        "list_duration_sum_duration" => |context, args| from(context, args, Value::Duration(0)),
        _ => |context, args| from(context, args, Value::Int(0)),
    }
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "isSorted" => |_, args| {
            let list = list(args)?;
            for pair in list.items.windows(2) {
                if compare(&pair[0], &pair[1])? == Ordering::Greater {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        },
        "max" => |_, args| extreme(args, "max", Ordering::Greater),
        "min" => |_, args| extreme(args, "min", Ordering::Less),
        "sets.contains" => |context, args| {
            let (a, b) = two(args)?;
            Ok(Value::Bool(within(context, b, a)?))
        },
        "sets.equivalent" => |context, args| {
            let (a, b) = two(args)?;
            Ok(Value::Bool(
                within(context, b, a)? && within(context, a, b)?,
            ))
        },
        "sets.intersects" => |context, args| {
            let (a, b) = two(args)?;
            for item in &a.items {
                if has(context, b, item)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        },
        "slice" => slice,
        "flatten" => |context, args| match args {
            [Value::List(list)] => flatten(context, list, 1),
            [Value::List(list), Value::Int(depth)] => flatten(context, list, *depth),
            _ => Err(no_such_overload()),
        },
        "lists.range" => |context, args| match args {
            [Value::Int(count)] => {
                let count = u64::try_from(*count).unwrap_or_default();
                if count > context.left() || count > MAX_LIST as u64 {
                    return Err(EvalError::CostLimit);
                }
                let numbers = 0..i64::try_from(count).unwrap_or_default();
                Ok(Value::list(numbers.map(Value::Int).collect()))
            }
            _ => Err(no_such_overload()),
        },
        "reverse" => |context, args| {
            let list = list(args)?;
            context.work.spend(list.items.len())?;
            Ok(Value::list(list.items.iter().rev().cloned().collect()))
        },
        "distinct" => |context, args| {
            let list = list(args)?;
            let mut found: Vec<Value> = Vec::new();
            for item in &list.items {
                if !seen(context, &found, item)? {
                    found.push(item.clone());
                }
            }
            Ok(Value::list(found))
        },
        "sort" => |context, args| {
            let list = list(args)?;
            sort(context, list, list)
        },
        "@sortByAssociatedKeys" => |context, args| {
            let (list, keys) = two(args)?;
            sort(context, list, keys)
        },
        "first" => |_, args| Ok(optional(list(args)?.items.first())),
        "last" => |_, args| Ok(optional(list(args)?.items.last())),
        _ => return None,
    })
}

fn optional(item: Option<&Value>) -> Value {
    item.map_or(Value::Optional(None), |item| Value::some(item.clone()))
}

fn list(args: &[Value]) -> Result<&List, EvalError> {
    match args {
        [Value::List(list)] => Ok(list),
        _ => Err(no_such_overload()),
    }
}

fn two(args: &[Value]) -> Result<(&List, &List), EvalError> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(no_such_overload()),
    }
}

fn extreme(args: &[Value], name: &str, wanted: Ordering) -> Evaluated {
    let mut items = list(args)?.items.iter();
    let mut best = items
        .next()
        .ok_or_else(|| fail(format!("{name} called on empty list")))?;
    for item in items {
        if compare(item, best)? == wanted {
            best = item;
        }
    }
    best.clone().read()
}

/// Finds the first or last item equal to a value.
pub(crate) fn index_of(context: &mut Context, args: &[Value], last: bool) -> Evaluated {
    let [Value::List(list), wanted] = args else {
        return Err(no_such_overload());
    };
    let mut found = -1;
    for (i, item) in list.items.iter().enumerate() {
        if equal(item, wanted, &mut context.work)? {
            found = i64::try_from(i).unwrap_or(i64::MAX);
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn seen(context: &mut Context, items: &[Value], wanted: &Value) -> Result<bool, EvalError> {
    for item in items {
        if equal(item, wanted, &mut context.work)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has(context: &mut Context, list: &List, wanted: &Value) -> Result<bool, EvalError> {
    seen(context, &list.items, wanted)
}

/// Returns true if all items of `inner` are in `outer`.
fn within(context: &mut Context, inner: &List, outer: &List) -> Result<bool, EvalError> {
    for item in &inner.items {
        if !has(context, outer, item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn slice(context: &mut Context, args: &[Value]) -> Evaluated {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(no_such_overload());
    };
    let length = list.items.len();
    let refuse = |why: String| Err(fail(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refuse("negative indexes not supported".into());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".into());
    }
    if to > length {
        return refuse(format!("list is length {length}"));
    }
    context.work.spend(to - from)?;
    Ok(Value::list(list.items[from..to].to_vec()))
}

fn flatten(context: &mut Context, list: &List, depth: i64) -> Evaluated {
    if depth < 0 {
        return Err(fail("level must be non-negative"));
    }
    context.work.spend(list.items.len())?;
    let mut items: Vec<Value> = list.items.clone();
    for _ in 0..depth {
        context.work.spend(items.len())?;
        if !items.iter().any(|item| matches!(item, Value::List(_))) {
            break;
        }
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::List(inner) => {
                    context.work.spend(inner.items.len())?;
                    flat.extend(inner.items.iter().cloned());
                }
                other => flat.push(other),
            }
            if flat.len() > MAX_LIST {
                return Err(fail(format!("list exceeds {MAX_LIST} items")));
            }
        }
        items = flat;
    }
    Ok(Value::list(items))
}

fn sort(context: &mut Context, list: &List, keys: &List) -> Evaluated {
    if list.items.len() != keys.items.len() {
        return Err(fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            list.items.len(),
            keys.items.len()
        )));
    }
    context.work.spend(list.items.len())?;
    let mut pairs: Vec<(&Value, &Value)> = keys.items.iter().zip(&list.items).collect();
    let first = keys.items.first().map(Value::type_name);
    if keys.items.iter().any(|key| Some(key.type_name()) != first) {
        return Err(fail("list elements must have the same type"));
    }
    if let Some(key) = keys.items.first()
        && compare(key, key).is_err()
        && !matches!(key, Value::Double(_))
    {
        return Err(fail("list elements must be comparable"));
    }
    pairs.sort_by(|a, b| compare(a.0, b.0).unwrap_or(Ordering::Equal));
    Ok(Value::list(
        pairs.into_iter().map(|(_, item)| item.clone()).collect(),
    ))
}
