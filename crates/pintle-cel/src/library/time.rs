//! Durations and timestamps.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};

use super::Native;
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
pub(crate) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    let invalid = || {
        let text = super::go::quote(text);
        format!("parsing time {text} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text}")
    };
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        bytes
            .get(range)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let shape = digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && digits(11..13)
        && digits(14..16)
        && digits(17..19);
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !shape || separators.iter().any(|&(i, c)| bytes[i] != c) {
        return Err(invalid());
    }
    let zone = text[19..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if zone != "Z" && (zone.len() != 6 || !zone.starts_with(['+', '-'])) {
        return Err(invalid());
    }
    let time: Timestamp = text.parse().map_err(|_| invalid())?;
    in_range(time).map_err(|_| "timestamp overflow".to_owned())
}

fn in_range(time: Timestamp) -> Result<Timestamp, EvalError> {
    // The years 1 to 9999.
    if (-62_135_596_800..=253_402_300_799).contains(&unix_seconds(time)) {
        Ok(time)
    } else {
        Err(fail("timestamp overflow"))
    }
}

/// Parses the `date` format of schemas.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    if text.len() != 10 {
        return None;
    }
    let date: Date = text.parse().ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Parses the `date-time` format of schemas, which is lenient about case and zone.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = parse_timestamp(text) {
        return Some(time);
    }
    let upper = text.to_ascii_uppercase().replacen(' ', "T", 1);
    parse_timestamp(&upper)
        .or_else(|_| parse_timestamp(&format!("{upper}Z")))
        .ok()
}

pub(crate) fn from_unix(seconds: i64) -> Result<Timestamp, EvalError> {
    Timestamp::from_second(seconds)
        .map_err(|_| fail("timestamp overflow"))
        .and_then(in_range)
}

pub(crate) fn unix_seconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond().div_euclid(SECOND)).unwrap_or_default()
}

/// Adds a duration to a point in time.
pub(crate) fn shift(time: Timestamp, nanos: i64) -> Evaluated {
    let shifted = time.as_nanosecond() + i128::from(nanos);
    let time = Timestamp::from_nanosecond(shifted).map_err(|_| fail("timestamp overflow"))?;
    in_range(time).map(Value::Timestamp)
}

pub(crate) fn show_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let (seconds, rest) = (size / 1_000_000_000, size % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let digits = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", digits.trim_end_matches('0'))
}

pub(crate) fn show_timestamp(time: Timestamp) -> String {
    time.to_string()
}

/// Finds a time zone: a name, or an offset such as `-07:00`.
fn zone(name: &str) -> Result<TimeZone, EvalError> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    let unknown = || fail(format!("unknown time zone {name}"));
    if let Some((hours, minutes)) = name.split_once(':') {
        let whole: i32 = hours.parse().map_err(|_| unknown())?;
        let part: i32 = minutes.parse().map_err(|_| unknown())?;
        let sign = if hours.starts_with('-') { -1 } else { 1 };
        let offset = Offset::from_seconds(whole * 3_600 + sign * part * 60);
        return Ok(TimeZone::fixed(offset.map_err(|_| unknown())?));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+');
    if name.len() > 64 || name.starts_with('/') || !name.chars().all(plain) {
        return Err(unknown());
    }
    let data = std::fs::read(format!("/usr/share/zoneinfo/{name}")).map_err(|_| unknown())?;
    TimeZone::tzif(name, &data).map_err(|_| unknown())
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "getFullYear" => |_, args| part(args, |time, ()| time.year().into()),
        "getMonth" => |_, args| part(args, |time, ()| i64::from(time.month()) - 1),
        "getDayOfYear" => |_, args| part(args, |time, ()| i64::from(time.day_of_year()) - 1),
        "getDayOfMonth" => |_, args| part(args, |time, ()| i64::from(time.day()) - 1),
        "getDate" => |_, args| part(args, |time, ()| time.day().into()),
        "getDayOfWeek" => |_, args| {
            part(args, |time, ()| {
                time.weekday().to_sunday_zero_offset().into()
            })
        },
        "getHours" => |context, args| {
            in_units(context, args, 3_600 * 1_000_000_000)
                .unwrap_or_else(|| part(args, |time, ()| time.hour().into()))
        },
        "getMinutes" => |context, args| {
            in_units(context, args, 60 * 1_000_000_000)
                .unwrap_or_else(|| part(args, |time, ()| time.minute().into()))
        },
        "getSeconds" => |context, args| {
            in_units(context, args, 1_000_000_000)
                .unwrap_or_else(|| part(args, |time, ()| time.second().into()))
        },
        "getMilliseconds" => |context, args| {
            in_units(context, args, 1_000_000)
                .unwrap_or_else(|| part(args, |time, ()| time.millisecond().into()))
        },
        _ => return None,
    })
}

fn in_units(_: &mut Context, args: &[Value], unit: i64) -> Option<Evaluated> {
    match args {
        [Value::Duration(nanos)] => Some(Ok(Value::Int(nanos / unit))),
        _ => None,
    }
}

fn part(args: &[Value], read: fn(&jiff::Zoned, ()) -> i64) -> Evaluated {
    let (time, zone) = match args {
        [Value::Timestamp(time)] => (time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(name)] => (time, zone(name)?),
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Int(read(&time.to_zoned(zone), ())))
}
