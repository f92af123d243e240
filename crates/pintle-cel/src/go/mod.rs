//! Reads and writes numbers, strings, durations and mail addresses as Go does.
//!
//! Messages and formats of Kubernetes are those of Go's standard library. These functions are for
//! crates that produce or accept the same text.

mod duration;
mod mail;

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

pub use self::duration::{parse_duration, parse_loose_duration};
pub use self::mail::is_mail_address;

/// Formats a float as `%v` and `strconv.FormatFloat(n, 'g', -1, 64)` do: the shortest form, with an
/// exponent below 1e-4 and from 1e6.
///
/// ```
/// assert_eq!(pintle_cel::go::float(0.5), "0.5");
/// assert_eq!(pintle_cel::go::float(1e6), "1e+06");
/// ```
#[must_use]
pub fn float(n: f64) -> String {
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        };
    }
    if n == 0.0 {
        return if n.is_sign_negative() {
            "-0".into()
        } else {
            "0".into()
        };
    }
    let text = format!("{n:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    // For the shortest form, `%g` chooses the notation as if the precision were six.
    if exponent
        .parse()
        .is_ok_and(|exponent: i32| (-4..6).contains(&exponent))
    {
        return format!("{n}");
    }
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Quotes a string as `%q` does.
///
/// ```
/// assert_eq!(pintle_cel::go::quote("a\n\u{200b}\"b\""), r#""a\n\u200b\"b\"""#);
/// ```
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x1_0000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

/// Returns true for letters, marks, numbers, punctuation, symbols and the ASCII space, as
/// `unicode.IsPrint` does.
///
/// ```
/// assert!(pintle_cel::go::is_printable('ß'));
/// assert!(!pintle_cel::go::is_printable('\u{a0}'));
/// ```
#[must_use]
pub fn is_printable(c: char) -> bool {
    static PRINTABLE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").ok());
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let mut buffer = [0; 4];
    let text = c.encode_utf8(&mut buffer);
    PRINTABLE
        .as_ref()
        .is_some_and(|pattern| pattern.is_match(text))
}

/// Parses a float as `strconv.ParseFloat` does: hexadecimal notation is accepted, and numbers that
/// are too large are errors.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let plain = text.trim_start_matches(['+', '-']);
    if text.len() - plain.len() > 1 {
        return None;
    }
    if let Some(hex) = plain
        .strip_prefix("0x")
        .or_else(|| plain.strip_prefix("0X"))
    {
        let value = parse_hex(hex)?;
        return Some(if text.starts_with('-') { -value } else { value });
    }
    let value: f64 = text.parse().ok()?;
    // Explicit infinities are allowed.
    let written = plain.starts_with(['i', 'I']);
    (value.is_finite() || value.is_nan() || written).then_some(value)
}

/// Parses `1.8p-2`, in which the exponent is required. Digits beyond 64 bits are rejected.
fn parse_hex(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = u64::from_str_radix(&all, 16).ok()?;
    let shift = i32::try_from(4 * fraction.len()).ok()?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(shift)?;
    let value = value as f64 * 2_f64.powi(exponent);
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests;
