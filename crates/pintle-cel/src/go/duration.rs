//! Durations: those of Go, and the looser form that schemas accept.

use std::sync::LazyLock;

use regex::Regex;

/// The magnitude of the smallest duration: one more than the largest duration.
const LIMIT: u64 = 1 << 63;

const SECOND: i64 = 1_000_000_000;

/// Parses a duration as `time.ParseDuration` does, in nanoseconds.
///
/// # Errors
///
/// Fails with Go's message.
///
/// ```
/// use pintle_cel::go::parse_duration;
///
/// assert_eq!(parse_duration("1h30m"), Ok(5_400_000_000_000));
/// let error = parse_duration("1d").unwrap_err();
/// assert_eq!(error, r#"time: unknown unit "d" in duration "1d""#);
/// ```
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let count = if whole.is_empty() {
            0
        } else {
            within_limit(whole.parse().ok()).ok_or_else(invalid)?
        };
        let length = after
            .bytes()
            .take_while(|c| *c != b'.' && !c.is_ascii_digit())
            .count();
        let (name, after) = after.split_at(length);
        let unit: u64 = match name {
            "" => {
                return Err(format!("time: missing unit in duration {}", quote(text)));
            }
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => {
                let (unit, text) = (quote(other), quote(text));
                return Err(format!("time: unknown unit {unit} in duration {text}"));
            }
        };
        let part = within_limit(u64::checked_mul(count, unit)).ok_or_else(invalid)?;
        let part = within_limit(part.checked_add(fraction_of(unit, fraction)));
        let sum = part.and_then(|part| within_limit(total.checked_add(part)));
        total = sum.ok_or_else(invalid)?;
        rest = after;
    }
    if negative {
        return Ok(0_i64.wrapping_sub_unsigned(total));
    }
    i64::try_from(total).map_err(|_| invalid())
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn within_limit(value: Option<u64>) -> Option<u64> {
    value.filter(|value| *value <= LIMIT)
}

/// Returns `0.fraction` units. Go computes with floats, and ignores digits beyond 63 bits.
fn fraction_of(unit: u64, fraction: &str) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in fraction.bytes() {
        let next = if value > (LIMIT - 1) / 10 {
            None
        } else {
            within_limit(Some(value * 10 + u64::from(digit - b'0')))
        };
        let Some(next) = next else { break };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Quotes a string as package `time` does: bytes that are not printable ASCII in hexadecimal.
fn quote(text: &str) -> String {
    use std::fmt::Write as _;

    let mut out = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=0x7f => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

/// Parses the format `duration` of schemas, in nanoseconds: a Go duration, or any string with
/// numbers before units, which include days and weeks and may be written out. Other text in between
/// is ignored, and sums that are too large wrap around.
///
/// ```
/// use pintle_cel::go::parse_loose_duration;
///
/// assert_eq!(parse_loose_duration("2 Weeks, 3 days"), Some(17 * 86_400_000_000_000));
/// assert_eq!(parse_loose_duration("soon"), None);
/// ```
#[must_use]
pub fn parse_loose_duration(text: &str) -> Option<i64> {
    static PART: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)").ok());
    if let Ok(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let mut total = None;
    for part in PART.as_ref()?.captures_iter(text) {
        // A number that is too large fails, whatever its unit.
        let count: i64 = part[1].parse().ok()?;
        if let Some(unit) = loose_unit(&part[2].to_lowercase()) {
            let sum: i64 = total.unwrap_or_default();
            total = Some(sum.wrapping_add(count.wrapping_mul(unit)));
        }
    }
    total
}

/// Returns the length of a unit in nanoseconds. The long names may have any ending.
fn loose_unit(name: &str) -> Option<i64> {
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3_600 * SECOND),
        (&["d"], "day", 86_400 * SECOND),
        (&["w", "wk"], "week", 604_800 * SECOND),
    ];
    let (.., unit) = UNITS
        .iter()
        .find(|(short, long, _)| short.contains(&name) || name.starts_with(long))?;
    Some(*unit)
}
