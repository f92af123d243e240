//! Parses quantities.

use std::fmt;
use std::str::FromStr;

use super::{Amount, Decimal, Quantity, QuantityError, Suffixes};

/// The smallest power of ten.
const NANO: i64 = -9;

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Number => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

struct Parts<'a> {
    negative: bool,
    /// Without leading zeros, but at least one digit.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    has_number: bool,
}

/// Splits a string. Missing numbers are zero.
fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        None => return Err(QuantityError::Format),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let power = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let power = power.strip_prefix(['-', '+']).unwrap_or(power);
    if digits(power) < power.len() {
        return Err(QuantityError::Format);
    }
    let has_number = !whole.is_empty() || !fraction.is_empty();
    let whole = whole.trim_start_matches('0');
    Ok(Parts {
        negative,
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
        has_number,
    })
}

/// Returns the format of a suffix, and the power of ten or two that it stands for.
fn interpret(suffix: &str) -> Option<(Suffixes, i32)> {
    let exponent = match suffix {
        "" => 0,
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        "Ki" => return Some((Suffixes::Binary, 10)),
        "Mi" => return Some((Suffixes::Binary, 20)),
        "Gi" => return Some((Suffixes::Binary, 30)),
        "Ti" => return Some((Suffixes::Binary, 40)),
        "Pi" => return Some((Suffixes::Binary, 50)),
        "Ei" => return Some((Suffixes::Binary, 60)),
        other => {
            let power: i64 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Upstream truncates large exponents to 32 bits.
            return Some((Suffixes::Exponent, power as i32));
        }
    };
    Some((Suffixes::Decimal, exponent))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = split(text)?;
        let (suffixes, exponent) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
        if let Some((amount, is_canonical)) = as_integer(&parts, suffixes, exponent) {
            let as_written = is_canonical || text == "0";
            return Ok(Self {
                amount,
                suffixes,
                written: as_written.then(|| text.into()),
            });
        }
        if !parts.has_number {
            return Err(QuantityError::Number);
        }
        Ok(as_decimal(&parts, suffixes, exponent))
    }
}

/// Returns a quantity as an integer times a power of ten, and whether it counts as canonical.
/// Returns `None` if upstream's estimate says that it may not fit.
fn as_integer(parts: &Parts<'_>, suffixes: Suffixes, exponent: i32) -> Option<(Amount, bool)> {
    let digits = parts.whole.len() + parts.fraction.len();
    let (room, factor, scale) = if suffixes == Suffixes::Binary {
        // Three digits for ten bits.
        let used = parts.whole.len() + usize::try_from(exponent * 3 / 10).ok()?;
        let room = parts.fraction.is_empty() && used <= 14;
        (room, 1_i64.checked_shl(exponent.unsigned_abs())?, 0)
    } else {
        let places = i32::try_from(parts.fraction.len()).ok()?;
        (digits <= 18, 1, exponent.wrapping_sub(places))
    };
    if !room || i64::from(scale) < NANO {
        return None;
    }
    let shifted = [parts.whole, parts.fraction].concat();
    let number: i64 = shifted.parse().ok()?;
    let value = number.checked_mul(factor)?;
    let is_canonical = match suffixes {
        Suffixes::Binary => number & 7 != 0,
        _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    let value = if parts.negative { -value } else { value };
    Some((Amount::Int { value, scale }, is_canonical))
}

fn as_decimal(parts: &Parts<'_>, mut suffixes: Suffixes, exponent: i32) -> Quantity {
    let digits = parts.whole.bytes().chain(parts.fraction.bytes());
    let places = parts.fraction.len() as i64;
    let value = if suffixes == Suffixes::Binary {
        let whole = Decimal::new(false, digits, -places).times(1 << exponent);
        let rounded = whole.rounded_up(NANO);
        // Binary quantities are capped at the largest integer.
        let rounded = rounded.min(Decimal::of(i64::MAX, 0));
        if rounded < Decimal::of(1, 0) && !rounded.is_zero() {
            suffixes = Suffixes::Decimal;
        }
        rounded
    } else {
        Decimal::new(false, digits, i64::from(exponent) - places).rounded_up(NANO)
    };
    let amount = Amount::Decimal {
        value: Decimal {
            negative: parts.negative && !value.is_zero(),
            ..value
        },
        places: -NANO,
    };
    Quantity::computed(amount, suffixes)
}
