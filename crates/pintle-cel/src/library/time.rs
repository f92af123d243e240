//! Durations and timestamps.

use jiff::tz::TimeZone;

use super::Native;
use super::timestamp::{Civil, Invalid, Timestamp};
use crate::eval::Context;
use crate::value::{EvalError, Evaluated, Value, fail, no_such_overload};

const SECOND: i128 = 1_000_000_000;

/// Parses a duration as Go does: `1h30m`, `-1.5s`.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", super::go::quote(text));
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
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole = &rest[..digits];
        rest = &rest[digits..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            fraction = &after[..digits];
            rest = &after[digits..];
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let length = rest
            .bytes()
            .take_while(|c| *c != b'.' && !c.is_ascii_digit())
            .count();
        if length == 0 {
            return Err(format!(
                "time: missing unit in duration {}",
                super::go::quote(text)
            ));
        }
        let unit: i128 = match &rest[..length] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3_600 * SECOND,
            other => {
                let (unit, text) = (super::go::quote(other), super::go::quote(text));
                return Err(format!("time: unknown unit {unit} in duration {text}"));
            }
        };
        rest = &rest[length..];
        let count: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        if count > i128::from(i64::MAX) {
            return Err(invalid());
        }
        total += count * unit;
        let mut scale = unit;
        for digit in fraction.bytes() {
            scale /= 10;
            total += i128::from(digit - b'0') * scale;
        }
        if total > i128::from(i64::MAX) + 1 {
            return Err(invalid());
        }
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// Parses the `duration` format of schemas, which also knows days, weeks and long unit names.
pub(crate) fn parse_schema_duration(text: &str) -> Option<i64> {
    if let Ok(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let mut total: i128 = 0;
    let mut rest = text.trim();
    let mut found = false;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: i128 = rest.get(..digits)?.parse().ok()?;
        rest = rest[digits..].trim_start();
        let length = rest
            .chars()
            .take_while(|c| c.is_alphabetic())
            .map(char::len_utf8)
            .sum();
        let unit: &str = &rest[..length];
        let nanos: i128 = match unit {
            "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
            "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
            "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
            "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
            "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
            "h" | "hr" | "hour" | "hours" => 3_600 * SECOND,
            "d" | "day" | "days" => 86_400 * SECOND,
            "w" | "wk" | "week" | "weeks" => 604_800 * SECOND,
            _ => return None,
        };
        total = total.checked_add(count.checked_mul(nanos)?)?;
        rest = rest[length..].trim_start();
        found = true;
    }
    if found {
        i64::try_from(total).ok()
    } else {
        None
    }
}

/// Parses an RFC 3339 timestamp, between the years 1 and 9999.
pub(crate) fn parse_timestamp(text: &str) -> Result<Timestamp, EvalError> {
    Timestamp::parse(text).map_err(|invalid| match invalid {
        Invalid::Syntax => super::standard::conversion("string", "google.protobuf.Timestamp"),
        Invalid::Overflow => overflow(invalid),
    })
}

fn overflow(_: Invalid) -> EvalError {
    fail("timestamp overflow")
}

/// Parses the `date-time` format of schemas, which is lenient about case and zone.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = Timestamp::parse(text) {
        return Some(time);
    }
    let upper = text.to_ascii_uppercase().replacen(' ', "T", 1);
    Timestamp::parse(&upper)
        .or_else(|_| Timestamp::parse(&format!("{upper}Z")))
        .ok()
}

pub(crate) fn from_unix(seconds: i64) -> Result<Timestamp, EvalError> {
    Timestamp::new(seconds, 0).map_err(overflow)
}

/// Adds a duration to a point in time.
pub(crate) fn shift(time: Timestamp, nanos: i64) -> Evaluated {
    time.shift(nanos).map(Value::Timestamp).map_err(overflow)
}

/// Formats a duration as its seconds. Go converts them to a float first.
pub(crate) fn show_duration(nanos: i64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}

/// The number of time zones that one evaluation keeps.
const MAX_ZONES: usize = 16;

/// Finds the offset of a time zone at a point in time, in seconds. Zones are names, or offsets such
/// as `-07:00`.
fn offset(context: &mut Context, time: Timestamp, name: &str) -> Result<i64, EvalError> {
    if matches!(name, "" | "UTC") {
        return Ok(0);
    }
    if let Some((hours, minutes)) = name.split_once(':') {
        let (hours, minutes) = (go_int(hours)?, go_int(minutes)?);
        // Absurd offsets wrap around in Go too.
        let whole = hours.wrapping_mul(60);
        let total = if name.starts_with('-') {
            whole.wrapping_sub(minutes)
        } else {
            whole.wrapping_add(minutes)
        };
        return Ok(total.wrapping_mul(60_000_000_000) / 1_000_000_000);
    }
    if !context.zones.contains_key(name) {
        // Reading a zone takes a file access, which costs do not cover in a loop.
        context.work.spend(10_000)?;
        if context.zones.len() >= MAX_ZONES {
            context.zones.clear();
        }
        context.zones.insert(name.to_owned(), load_zone(name)?);
    }
    let second = time.as_second().clamp(
        jiff::Timestamp::MIN.as_second(),
        jiff::Timestamp::MAX.as_second(),
    );
    let at = jiff::Timestamp::from_second(second).unwrap_or_default();
    let zone = context.zones.get(name);
    Ok(zone.map_or(0, |zone| zone.to_offset(at).seconds().into()))
}

fn load_zone(name: &str) -> Result<TimeZone, EvalError> {
    let unknown = || fail(format!("unknown time zone {name}"));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+');
    if name.len() > 64 || name.starts_with('/') || !name.chars().all(plain) {
        return Err(unknown());
    }
    let data = std::fs::read(format!("/usr/share/zoneinfo/{name}")).map_err(|_| unknown())?;
    TimeZone::tzif(name, &data).map_err(|_| unknown())
}

/// Parses a number as `strconv.Atoi` does.
fn go_int(text: &str) -> Result<i64, EvalError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let text = super::go::quote(text);
        fail(format!("strconv.Atoi: parsing {text}: {why}"))
    })
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "getFullYear" => |context, args| part(context, args, |at| at.year),
        "getMonth" => |context, args| part(context, args, |at| at.month - 1),
        "getDayOfYear" => |context, args| part(context, args, |at| at.day_of_year - 1),
        "getDayOfMonth" => |context, args| part(context, args, |at| at.day - 1),
        "getDate" => |context, args| part(context, args, |at| at.day),
        "getDayOfWeek" => |context, args| part(context, args, |at| at.weekday),
        "getHours" => |context, args| {
            in_units(args, 3_600 * 1_000_000_000)
                .unwrap_or_else(|| part(context, args, |at| at.hour))
        },
        "getMinutes" => |context, args| {
            in_units(args, 60 * 1_000_000_000)
                .unwrap_or_else(|| part(context, args, |at| at.minute))
        },
        "getSeconds" => |context, args| {
            in_units(args, 1_000_000_000).unwrap_or_else(|| part(context, args, |at| at.second))
        },
        "getMilliseconds" => |context, args| {
            in_units(args, 1_000_000).unwrap_or_else(|| match args {
                [Value::Timestamp(time), zone @ ..] => {
                    if let [Value::String(name)] = zone {
                        offset(context, *time, name)?;
                    }
                    Ok(Value::Int(time.millisecond()))
                }
                _ => Err(no_such_overload()),
            })
        },
        _ => return None,
    })
}

fn in_units(args: &[Value], unit: i64) -> Option<Evaluated> {
    match args {
        [Value::Duration(nanos)] => Some(Ok(Value::Int(nanos / unit))),
        _ => None,
    }
}

fn part(context: &mut Context, args: &[Value], read: fn(Civil) -> i64) -> Evaluated {
    let (time, offset) = match args {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(name)] => (time, offset(context, *time, name)?),
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Int(read(time.civil(offset))))
}
