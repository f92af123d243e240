//! Quantities such as `500m`, `1.5Gi` and `1e3`, and their canonical form.

mod amount;

pub(crate) use self::amount::Amount;

/// Why a string is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    /// Not a number with a suffix.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// An unknown suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The suffix format of a quantity.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    /// `k`, `M`, `m` …
    Decimal,
    /// `e3`
    Exponent,
    /// `Ki`, `Mi` …
    Binary,
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

/// Smaller scales are rounded up.
const NANO: i32 = -9;

/// Quantities with more digits are stored as written.
const MAX_DIGITS: usize = 18;

/// Returns the canonical form: the largest suffix that needs no fraction.
pub(crate) fn canonical(text: &str) -> Result<String, QuantityError> {
    let text = text.trim();
    let parts = Parts::of(text)?;
    let (format, exponent) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
    let digits: String = [parts.whole, parts.fraction].concat();
    if digits.len() > MAX_DIGITS || exponent.unsigned_abs() > 60 {
        // Binary quantities are capped at the largest 64-bit integer.
        let beyond = format == Format::Binary && parts.fraction.is_empty();
        return Ok(if beyond {
            i64::MAX.to_string()
        } else {
            text.to_owned()
        });
    }
    let number: i128 = digits.parse().map_err(|_| QuantityError::Format)?;
    if number == 0 {
        return Ok("0".into());
    }
    let fraction = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    if is_kept_as_written(&digits, number, format, exponent, fraction) {
        return Ok(text.to_owned());
    }
    let sign = if parts.negative { "-" } else { "" };
    let body = match format {
        Format::Binary => binary(number, exponent.unsigned_abs(), fraction),
        format => decimal(number, exponent - fraction, format),
    };
    Ok(format!("{sign}{body}"))
}

/// Returns true if `one` is less than `other`, and `None` if either is invalid.
pub(crate) fn less(one: &str, other: &str) -> Option<bool> {
    Some(nanos(one)? < nanos(other)?)
}

/// Returns a quantity in billionths, rounded away from zero. Quantities beyond what 128 bits hold
/// are as large as possible. `None` if the text is not a quantity.
fn nanos(text: &str) -> Option<i128> {
    let parts = Parts::of(text.trim()).ok()?;
    let (format, exponent) = suffix(parts.suffix)?;
    let fraction = parts.fraction.trim_end_matches('0');
    // What follows counts less than a billionth.
    let kept = match format {
        Format::Binary => MAX_DIGITS,
        _ => usize::try_from(exponent.saturating_sub(NANO)).unwrap_or(0),
    };
    let (fraction, cut) = fraction.split_at_checked(kept).unwrap_or((fraction, ""));
    let digits = [parts.whole, fraction].concat();
    let nanos = scaled(&digits, format, exponent, fraction.len()).unwrap_or(i128::MAX);
    let nanos = nanos.saturating_add(i128::from(!cut.is_empty()));
    Some(if parts.negative { -nanos } else { nanos })
}

/// Returns `digits` ÷ 10^`fraction`, times its suffix, in billionths. `None` if it overflows.
fn scaled(digits: &str, format: Format, exponent: i32, fraction: usize) -> Option<i128> {
    let number: i128 = digits.parse().ok()?;
    if number == 0 {
        return Some(0);
    }
    let scale = 9 - i32::try_from(fraction).ok()?;
    let (number, scale) = match format {
        Format::Binary => {
            let unit = 1_i128.checked_shl(exponent.unsigned_abs())?;
            (number.checked_mul(unit)?, scale)
        }
        _ => (number, exponent.saturating_add(scale)),
    };
    let power = 10_i128.checked_pow(scale.unsigned_abs());
    if scale >= 0 {
        return number.checked_mul(power?);
    }
    // A power that overflows is larger than the number.
    Some(power.map_or(1, |power| number / power + i128::from(number % power != 0)))
}

/// Returns true for forms that upstream stores unchanged.
fn is_kept_as_written(
    digits: &str,
    number: i128,
    format: Format,
    exponent: i32,
    fraction: i32,
) -> bool {
    if format == Format::Binary {
        return fraction == 0 && number & 7 != 0 && digits.len() < 5;
    }
    let scale = exponent - fraction;
    scale >= NANO && scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
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
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Format);
        }
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let power = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !power.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let whole = whole.trim_start_matches('0');
        Ok(Self {
            negative,
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            suffix,
        })
    }
}

fn suffix(suffix: &str) -> Option<(Format, i32)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Format::Decimal, *exponent));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((Format::Binary, i32::try_from(*exponent).ok()?));
    }
    let power = suffix.strip_prefix(['e', 'E'])?;
    Some((Format::Exponent, power.parse().ok()?))
}

/// Formats `number` × 10^`scale`.
fn decimal(mut number: i128, mut scale: i32, format: Format) -> String {
    while scale < NANO {
        number = number / 10 + i128::from(number % 10 != 0);
        scale += 1;
    }
    while number % 10 == 0 {
        number /= 10;
        scale += 1;
    }
    while scale % 3 != 0 {
        number = number.saturating_mul(10);
        scale -= 1;
    }
    let name = DECIMAL.iter().find(|(_, exponent)| *exponent == scale);
    match (format, name) {
        (Format::Decimal, Some((name, _))) => format!("{number}{name}"),
        (_, _) if scale == 0 => number.to_string(),
        _ => format!("{number}e{scale}"),
    }
}

/// Formats `number` × 2^`exponent` ÷ 10^`fraction`.
fn binary(number: i128, exponent: u32, fraction: i32) -> String {
    let max = i128::from(i64::MAX);
    let factor = 10_i128.pow(fraction.unsigned_abs());
    let scaled = number << exponent;
    if scaled < 1024 * factor {
        return decimal(scaled, -fraction, Format::Decimal);
    }
    if scaled % factor != 0 {
        return decimal(scaled, -fraction, Format::Decimal);
    }
    let mut whole = (scaled / factor).min(max);
    let mut names = [""].into_iter().chain(BINARY.iter().map(|(name, _)| *name));
    let mut name = names.next().unwrap_or_default();
    while whole % 1024 == 0 {
        let Some(next) = names.next() else { break };
        whole /= 1024;
        name = next;
    }
    format!("{whole}{name}")
}

#[cfg(test)]
mod tests;
