//! Kubernetes quantities: `1500m`, `2Gi`, `1e3`.

use std::cmp::Ordering;

use super::Native;
use crate::eval::Context;
use crate::value::{EvalError, Evaluated, Library, Value, fail, no_such_overload};

/// A quantity, in billionths.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    /// The power of ten by which upstream stores the quantity as an integer, if it does. Only those
    /// count as integers, whatever their value.
    scale: Option<i32>,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

const NANO: i128 = 1_000_000_000;

/// Parses a quantity.
pub(crate) fn parse(text: &str) -> Result<Quantity, String> {
    const FORM: &str = "quantities must match the regular expression \
                        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    const SUFFIX: &str = "unable to parse quantity's suffix";
    const NUMBER: &str = "unable to parse quantity's numeric part";
    if text.is_empty() {
        return Err(FORM.into());
    }
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let length = rest
        .bytes()
        .take_while(|c| c.is_ascii_digit() || *c == b'.')
        .count();
    let (number, suffix) = rest.split_at(length);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.is_empty() || fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(if number.is_empty() || fraction.contains('.') {
            FORM
        } else {
            NUMBER
        }
        .into());
    }
    let known = |c: u8| b"eEinumkKMGTP+-".contains(&c) || c.is_ascii_digit();
    if !suffix.bytes().all(known) {
        return Err(FORM.into());
    }
    let (base, exponent): (u32, i32) = match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        other => match other
            .strip_prefix(['e', 'E'])
            .and_then(|n| n.parse::<i32>().ok())
        {
            Some(exponent) => (10, exponent),
            None => return Err(SUFFIX.into()),
        },
    };
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let point = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let scale = stored_scale(digits_of(whole), fraction, base, exponent);
    let nanos = if base == 2 {
        let value: i128 = digits
            .get(..digits.len().min(30))
            .unwrap_or_default()
            .parse()
            .unwrap_or(0);
        let scaled = value
            .saturating_mul(1_i128 << exponent)
            .saturating_mul(NANO);
        divide_up(scaled, power(point))
    } else {
        shift(digits, exponent.saturating_sub(point).saturating_add(9))
    };
    // Binary quantities end at the largest integer of 64 bits.
    let nanos = if base == 2 {
        nanos.min(i128::from(i64::MAX) * NANO)
    } else {
        nanos
    };
    Ok(Quantity {
        nanos: if negative { -nanos } else { nanos },
        scale,
    })
}

/// Returns the number of digits before the point, without leading zeros.
fn digits_of(whole: &str) -> i32 {
    let digits = whole.trim_start_matches('0').len().max(1);
    i32::try_from(digits).unwrap_or(i32::MAX)
}

/// Returns the power of ten by which upstream stores a parsed quantity as an integer. It estimates
/// whether the number fits, and keeps the rest as a decimal.
fn stored_scale(digits: i32, fraction: &str, base: u32, exponent: i32) -> Option<i32> {
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let (precision, scale) = if base == 10 {
        (
            18_i32.saturating_sub(digits.saturating_add(places)),
            exponent.saturating_sub(places),
        )
    } else if places == 0 {
        (14_i32.saturating_sub(digits) - exponent * 3 / 10, 0)
    } else {
        (-1, 0)
    };
    (precision >= 0 && scale >= -9).then_some(scale)
}

fn power(exponent: i32) -> i128 {
    10_i128
        .checked_pow(u32::try_from(exponent).unwrap_or_default())
        .unwrap_or(i128::MAX)
}

/// Rounds away from zero, as quantities do below their smallest unit.
fn divide_up(value: i128, by: i128) -> i128 {
    value / by + i128::from(value % by != 0)
}

/// Multiplies digits by a power of ten.
fn shift(digits: &str, exponent: i32) -> i128 {
    let Ok(value) = digits.parse::<i128>() else {
        return if digits.is_empty() { 0 } else { i128::MAX / 2 };
    };
    if exponent >= 0 {
        value.saturating_mul(power(exponent)).min(i128::MAX / 2)
    } else {
        divide_up(value, power(exponent.saturating_neg()))
    }
}

impl Quantity {
    /// Returns the value if it is an integer of 64 bits.
    fn whole(self) -> Option<i64> {
        match self.scale {
            Some(scale) if scale >= 0 => i64::try_from(self.nanos / NANO).ok(),
            _ => None,
        }
    }
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "quantity" => |_, args| match args {
            [Value::String(text)] => parse(text).map(value).map_err(fail),
            _ => Err(no_such_overload()),
        },
        "isQuantity" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
            _ => Err(no_such_overload()),
        },
        "sign" => |_, args| {
            Ok(Value::Int(
                i64::try_from(one(args)?.nanos.signum()).unwrap_or(0),
            ))
        },
        "isGreaterThan" => |_, args| Ok(Value::Bool(order(args)? == Ordering::Greater)),
        "isLessThan" => |_, args| Ok(Value::Bool(order(args)? == Ordering::Less)),
        "compareTo" => |_, args| Ok(Value::Int(order(args)? as i64)),
        "asApproximateFloat" => |_, args| Ok(Value::Double(one(args)?.nanos as f64 / NANO as f64)),
        "asInteger" => |_, args| {
            let whole = one(args)?.whole();
            whole
                .map(Value::Int)
                .ok_or_else(|| fail("cannot convert value to integer"))
        },
        "isInteger" => |_, args| Ok(Value::Bool(one(args)?.whole().is_some())),
        "add" => |context, args| combine(context, args, 1),
        "sub" => |context, args| combine(context, args, -1),
        _ => return None,
    })
}

fn value(quantity: Quantity) -> Value {
    Value::Library(Library::Quantity(quantity))
}

fn one(args: &[Value]) -> Result<Quantity, EvalError> {
    match args {
        [Value::Library(Library::Quantity(quantity)), ..] => Ok(*quantity),
        _ => Err(no_such_overload()),
    }
}

fn order(args: &[Value]) -> Result<Ordering, EvalError> {
    match args {
        [a, b] => Ok(one(std::slice::from_ref(a))?
            .nanos
            .cmp(&one(std::slice::from_ref(b))?.nanos)),
        _ => Err(no_such_overload()),
    }
}

fn combine(_: &mut Context, args: &[Value], sign: i128) -> Evaluated {
    let first = one(args)?;
    let second = match args {
        [_, Value::Int(n)] => Quantity {
            nanos: i128::from(*n) * NANO,
            scale: Some(0),
        },
        [_, Value::Library(Library::Quantity(quantity))] => *quantity,
        _ => return Err(no_such_overload()),
    };
    let nanos = first.nanos.saturating_add(sign * second.nanos);
    // The sum takes the smaller power of ten, if it still fits.
    let scale = match (first.scale, second.scale) {
        (Some(scale), Some(_)) if second.nanos == 0 => Some(scale),
        (Some(_), Some(scale)) if first.nanos == 0 => Some(scale),
        (Some(a), Some(b)) => {
            let scale = a.min(b);
            i64::try_from(nanos / power(scale + 9)).ok().map(|_| scale)
        }
        _ => None,
    };
    Ok(value(Quantity { nanos, scale }))
}
