//! Functions on strings. Indices count code points.

use std::fmt::Write as _;
use std::sync::Arc;

use super::standard::{MAX_STRING, bounded, text_of};
use super::{Native, lists};
use crate::eval::Context;
use crate::functions;
use crate::go;
use crate::value::{EvalError, Evaluated, Value, fail, no_such_overload};

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "contains" => |_, args| two(args).map(|(a, b)| Value::Bool(a.contains(&**b))),
        "startsWith" => |_, args| two(args).map(|(a, b)| Value::Bool(a.starts_with(&**b))),
        "endsWith" => |_, args| two(args).map(|(a, b)| Value::Bool(a.ends_with(&**b))),
        "charAt" => char_at,
        "indexOf" => |context, args| match args {
            [Value::List(_), _] => lists::index_of(context, args, false),
            [Value::String(text), Value::String(part)] => index_of(text, part, Some(0), false),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                index_of(text, part, Some(*from), false)
            }
            _ => Err(no_such_overload()),
        },
        "lastIndexOf" => |context, args| match args {
            [Value::List(_), _] => lists::index_of(context, args, true),
            [Value::String(text), Value::String(part)] => index_of(text, part, None, true),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                index_of(text, part, Some(*from), true)
            }
            _ => Err(no_such_overload()),
        },
        "lowerAscii" => |_, args| one(args).map(|text| text.to_ascii_lowercase().into()),
        "upperAscii" => |_, args| one(args).map(|text| text.to_ascii_uppercase().into()),
        "trim" => |_, args| one(args).map(|text| text.trim_matches(is_space).into()),
        functions::ESCAPE_KEY => |context, args| match args {
            [Value::String(key)] => {
                bounded(context, key.len())?;
                Ok(key.replace('~', "~0").replace('/', "~1").into())
            }
            _ => Err(no_such_overload()),
        },
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "strings.quote" => |_, args| one(args).map(|text| quote(text).into()),
        "format" => format,
        _ => return None,
    })
}

/// Returns true for Unicode whitespace as Go's `strings.TrimSpace` defines it.
fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn one(args: &[Value]) -> Result<&Arc<str>, EvalError> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(no_such_overload()),
    }
}

fn two(args: &[Value]) -> Result<(&Arc<str>, &Arc<str>), EvalError> {
    match args {
        [Value::String(a), Value::String(b)] => Ok((a, b)),
        _ => Err(no_such_overload()),
    }
}

fn out_of_range(index: i64) -> EvalError {
    fail(format!("index out of range: {index}"))
}

/// Returns the byte offset of a code point, or of the end.
fn offset(text: &str, index: usize) -> Option<usize> {
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(index)
}

fn char_at(context: &mut Context, args: &[Value]) -> Evaluated {
    let [Value::String(text), Value::Int(index)] = args else {
        return Err(no_such_overload());
    };
    // Upstream indexes an array of code points; here they are counted, which takes work.
    context.work.spend(text.len() / 16)?;
    let at = usize::try_from(*index).ok().and_then(|i| offset(text, i));
    let at = at.ok_or_else(|| out_of_range(*index))?;
    Ok(text[at..]
        .chars()
        .next()
        .map(String::from)
        .unwrap_or_default()
        .into())
}

fn index_of(text: &str, part: &str, from: Option<i64>, last: bool) -> Evaluated {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if part.is_empty() {
        return Ok(Value::Int(from.unwrap_or(length)));
    }
    let from = match from {
        Some(from) => from,
        None if text.len() < part.len() => return Ok(Value::Int(-1)),
        None => length - 1,
    };
    if from < 0 {
        return Err(out_of_range(from));
    }
    if from >= length {
        return Ok(Value::Int(-1));
    }
    let at = usize::try_from(from)
        .ok()
        .and_then(|i| offset(text, i))
        .unwrap_or(text.len());
    let found = if last {
        // A match may start at the offset and extend beyond it.
        let mut end = (at + part.len()).min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].rfind(part)
    } else {
        text[at..].find(part).map(|found| found + at)
    };
    let index = found.map(|found| text[..found].chars().count());
    Ok(Value::Int(index.map_or(-1, |index| {
        i64::try_from(index).unwrap_or(i64::MAX)
    })))
}

fn replace(context: &mut Context, args: &[Value]) -> Evaluated {
    let (text, old, new, limit) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(limit),
        ] => (text, old, new, *limit),
        _ => return Err(no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(&**old).take(limit).count();
    bounded(
        context,
        text.len().saturating_add(count.saturating_mul(new.len())),
    )?;
    Ok(text.replacen(&**old, new, limit).into())
}

fn split(context: &mut Context, args: &[Value]) -> Evaluated {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [
            Value::String(text),
            Value::String(separator),
            Value::Int(limit),
        ] => (text, separator, *limit),
        _ => return Err(no_such_overload()),
    };
    context.work.spend(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Value> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let mut rest: &str = text;
        let mut parts = Vec::new();
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 == limit {
                break;
            }
            let (first, after) = rest.split_at(c.len_utf8());
            parts.push(first.into());
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(rest.into());
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(Into::into).collect()
    };
    Ok(Value::list(parts))
}

fn substring(_: &mut Context, args: &[Value]) -> Evaluated {
    let at = |text: &str, index: i64| {
        let place = usize::try_from(index).ok().and_then(|i| offset(text, i));
        place.ok_or_else(|| out_of_range(index))
    };
    match args {
        [Value::String(text), Value::Int(start)] => Ok(text[at(text, *start)?..].into()),
        [Value::String(text), Value::Int(start), Value::Int(end)] => {
            if start > end {
                let why = format!("invalid substring range. start: {start}, end: {end}");
                return Err(fail(why));
            }
            let start = at(text, *start)?;
            Ok(text[start..at(text, *end)?].into())
        }
        _ => Err(no_such_overload()),
    }
}

fn join(context: &mut Context, args: &[Value]) -> Evaluated {
    let (list, separator): (_, &str) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator),
        _ => return Err(no_such_overload()),
    };
    let mut texts: Vec<&str> = Vec::with_capacity(list.items.len());
    let mut size = 0_usize;
    for item in &list.items {
        match item {
            Value::String(text) => {
                size = size
                    .saturating_add(text.len())
                    .saturating_add(separator.len());
                texts.push(text);
            }
            other => {
                return Err(fail(format!(
                    "join: invalid input: {}",
                    crate::value::show(other)
                )));
            }
        }
    }
    bounded(context, size)?;
    Ok(texts.join(separator).into())
}

/// Quotes a string as a CEL literal.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Evaluates `'%s is %d'.format([a, b])`.
fn format(context: &mut Context, args: &[Value]) -> Evaluated {
    let [Value::String(text), Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    let mut out = String::new();
    let mut next = 0;
    let mut rest: &str = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let parsed = after[..digits].parse::<usize>();
            let parsed = parsed.map_err(|_| {
                fail(
                    "could not parse formatting clause: error while parsing precision: could not \
                      find end of precision specifier",
                )
            })?;
            precision = Some(parsed.min(100));
            rest = &after[digits..];
        }
        let Some(clause) = rest.chars().next() else {
            return Err(fail("unexpected end of string"));
        };
        rest = &rest[clause.len_utf8()..];
        let Some(value) = list.items.get(next) else {
            return Err(fail(format!("index {next} out of range")));
        };
        next += 1;
        let size = value.written_size(MAX_STRING);
        context.work.spend(size / 16)?;
        bounded(context, size)?;
        let shown = clause_text(clause, precision, value, 32)
            .map_err(|why| fail(format!("error during formatting: {why}")))?;
        bounded(context, out.len() + shown.len())?;
        out.push_str(&shown);
    }
    out.push_str(rest);
    Ok(out.into())
}

fn clause_text(
    clause: char,
    precision: Option<usize>,
    value: &Value,
    depth: usize,
) -> Result<String, String> {
    let wrong = |clause: &str, wanted: &str| {
        let found = value.type_name();
        Err(format!(
            "{clause} clause can only be used on {wanted}, was given {found}"
        ))
    };
    match (clause, value) {
        ('s', value) => shown(value, depth),
        ('d', Value::Int(n)) => Ok(n.to_string()),
        ('d', Value::Uint(n)) => Ok(n.to_string()),
        ('d', _) => wrong("decimal", "integers"),
        ('f', Value::Double(n)) => Ok(fixed(*n, precision.unwrap_or(6))),
        ('e', Value::Double(n)) => Ok(scientific(*n, precision.unwrap_or(6))),
        ('f', Value::String(text)) if special(text) => Ok(fixed(special_value(text), 0)),
        ('e', Value::String(text)) if special(text) => {
            Ok(scientific(special_value(text), precision.unwrap_or(6)))
        }
        ('f', _) => wrong("fixed-point", "doubles"),
        ('e', _) => wrong("scientific", "doubles"),
        ('b', Value::Int(n)) => Ok(signed(*n, &format!("{:b}", n.unsigned_abs()))),
        ('b', Value::Uint(n)) => Ok(format!("{n:b}")),
        ('b', Value::Bool(value)) => Ok(if *value { "1" } else { "0" }.to_owned()),
        ('b', _) => wrong("binary", "integers and bools"),
        ('x' | 'X', value) => {
            let hex = match value {
                Value::Int(n) => signed(*n, &format!("{:x}", n.unsigned_abs())),
                Value::Uint(n) => format!("{n:x}"),
                Value::String(text) => hex_digits(text.as_bytes()),
                Value::Bytes(bytes) => hex_digits(bytes),
                _ => return wrong("hex", "integers, byte buffers, and strings"),
            };
            Ok(if clause == 'X' {
                hex.to_uppercase()
            } else {
                hex
            })
        }
        ('o', Value::Int(n)) => Ok(signed(*n, &format!("{:o}", n.unsigned_abs()))),
        ('o', Value::Uint(n)) => Ok(format!("{n:o}")),
        ('o', _) => wrong("octal", "integers"),
        (other, _) => Err(format!(
            "could not parse formatting clause: unrecognized formatting clause \"{other}\""
        )),
    }
}

fn special_value(text: &str) -> f64 {
    go::parse_float(text).unwrap_or(f64::NAN)
}

/// Formats NaN and infinities as x/text does, or returns `None` for other numbers.
fn not_finite(n: f64) -> Option<&'static str> {
    match n {
        n if n.is_nan() => Some("NaN"),
        f64::INFINITY => Some("\u{221e}"),
        f64::NEG_INFINITY => Some("-\u{221e}"),
        _ => None,
    }
}

/// Writes a number with a fixed precision, and its integer digits in groups of three.
fn fixed(n: f64, precision: usize) -> String {
    if let Some(text) = not_finite(n) {
        return text.to_owned();
    }
    let text = format!("{n:.precision$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let end = digits.find('.').unwrap_or(digits.len());
    let mut out = sign.to_owned();
    for (i, digit) in digits.char_indices() {
        if i > 0 && i < end && (end - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Writes a number with an exponent. Six digits follow the point: upstream uses the precision as
/// the width.
fn scientific(n: f64, width: usize) -> String {
    if let Some(text) = not_finite(n) {
        return format!("{text:>width$}");
    }
    let text = format!("{n:.6e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    let power = superscript(sign, digits);
    let shown = format!("{mantissa}\u{d7}10{power}");
    format!("{shown:>width$}")
}

fn hex_digits(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn special(text: &str) -> bool {
    matches!(text, "NaN" | "Infinity" | "-Infinity")
}

fn signed(n: i64, digits: &str) -> String {
    if n < 0 {
        format!("-{digits}")
    } else {
        digits.to_owned()
    }
}

fn superscript(sign: char, digits: &str) -> String {
    let mut out = String::new();
    if sign == '-' {
        out.push('\u{207b}');
    }
    let digits = format!("{digits:0>2}");
    for digit in digits.chars() {
        out.push(match digit {
            '1' => '\u{b9}',
            '2' => '\u{b2}',
            '3' => '\u{b3}',
            other => {
                char::from_u32(0x2070 + other.to_digit(10).unwrap_or_default()).unwrap_or(other)
            }
        });
    }
    out
}

/// Formats a value for `%s`: strings verbatim, lists and maps as literals.
fn shown(value: &Value, depth: usize) -> Result<String, String> {
    if depth == 0 {
        return Err("value is nested too deeply".to_owned());
    }
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::List(list) => {
            let mut parts = Vec::with_capacity(list.items.len());
            for item in &list.items {
                parts.push(nested(item, depth - 1)?);
            }
            format!("[{}]", parts.join(", "))
        }
        Value::Map(map) => {
            let mut parts = Vec::with_capacity(map.entries.len());
            for (key, value) in &map.entries {
                let key = nested(&key.value(), depth - 1)?;
                parts.push((key, nested(value, depth - 1)?));
            }
            parts.sort();
            let parts: Vec<String> = parts.iter().map(|(k, v)| format!("{k}:{v}")).collect();
            format!("{{{}}}", parts.join(", "))
        }
        other => match text_of(other) {
            Ok(Value::String(text)) if !matches!(other, Value::Library(_)) => text.to_string(),
            _ => {
                let wanted = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                              and timestamps";
                let found = other.type_name();
                return Err(format!(
                    "string clause can only be used on {wanted}, was given {found}"
                ));
            }
        },
    })
}

fn nested(value: &Value, depth: usize) -> Result<String, String> {
    Ok(match value {
        Value::String(text) => go::quote(text),
        Value::Bytes(bytes) => format!("b{}", go::quote(&String::from_utf8_lossy(bytes))),
        Value::Double(n) if n.is_finite() => format!("{n:.6}"),
        Value::Double(n) => go::quote(&go::float(*n)),
        Value::Timestamp(_) => format!("timestamp({})", go::quote(&shown(value, depth)?)),
        Value::Duration(_) => format!("duration({})", go::quote(&shown(value, depth)?)),
        other => shown(other, depth)?,
    })
}
