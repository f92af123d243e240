//! The functions of quantities.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Native;
use crate::eval::Context;
use crate::quantity::{Quantity, QuantityError};
use crate::value::{EvalError, Evaluated, Library, Value, fail, no_such_overload};

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "quantity" => |_, args| match args {
            [Value::String(text)] => {
                let parsed: Result<_, QuantityError> = text.parse();
                parsed.map(value).map_err(|error| fail(error.to_string()))
            }
            _ => Err(no_such_overload()),
        },
        "isQuantity" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
            _ => Err(no_such_overload()),
        },
        "sign" => |_, args| Ok(Value::Int(one(args)?.signum())),
        "isGreaterThan" => {
            |context, args| Ok(Value::Bool(order(context, args)? == Ordering::Greater))
        }
        "isLessThan" => |context, args| Ok(Value::Bool(order(context, args)? == Ordering::Less)),
        "compareTo" => |context, args| Ok(Value::Int(order(context, args)? as i64)),
        "asApproximateFloat" => |context, args| {
            let quantity = one(args)?;
            context.work.spend(quantity.digits())?;
            Ok(Value::Double(quantity.as_approximate_float()))
        },
        "asInteger" => |_, args| {
            let whole = one(args)?.as_integer();
            whole
                .map(Value::Int)
                .ok_or_else(|| fail("cannot convert value to integer"))
        },
        "isInteger" => |_, args| Ok(Value::Bool(one(args)?.as_integer().is_some())),
        "add" => |context, args| combine(context, args, Quantity::plus),
        "sub" => |context, args| combine(context, args, Quantity::minus),
        _ => return None,
    })
}

fn value(quantity: Quantity) -> Value {
    Value::Library(Library::Quantity(Arc::new(quantity)))
}

fn one(args: &[Value]) -> Result<&Quantity, EvalError> {
    match args {
        [Value::Library(Library::Quantity(quantity)), ..] => Ok(quantity),
        _ => Err(no_such_overload()),
    }
}

fn order(context: &mut Context, args: &[Value]) -> Result<Ordering, EvalError> {
    let [a, b] = args else {
        return Err(no_such_overload());
    };
    let (a, b) = (one(std::slice::from_ref(a))?, one(std::slice::from_ref(b))?);
    context.work.spend(a.digits().min(b.digits()) / 64)?;
    Ok(a.cmp(b))
}

type Combine = fn(&Quantity, &Quantity) -> Option<Quantity>;

fn combine(context: &mut Context, args: &[Value], with: Combine) -> Evaluated {
    let first = one(args)?;
    let second = match args {
        [_, Value::Int(n)] => &Quantity::from(*n),
        [_, Value::Library(Library::Quantity(second))] => &**second,
        _ => return Err(no_such_overload()),
    };
    // Long sums cost more than the call is charged for, even if they fail.
    context.work.spend(first.sum_digits(second))?;
    let sum = with(first, second).ok_or_else(|| fail("quantity has too many digits"))?;
    Ok(value(sum))
}
