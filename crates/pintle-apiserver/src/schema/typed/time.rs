//! Timestamps in seconds and microseconds.

use jiff::Timestamp;
use jiff::tz::Offset;

use super::TypeError;

/// A parsed timestamp.
pub(crate) struct Moment(Timestamp);

/// Parses RFC 3339 with a `T` and an offset. Errors are worded as in Go.
pub(super) fn read(text: &str) -> Result<Moment, TypeError> {
    let shaped = text.as_bytes().get(10) == Some(&b'T');
    let parsed = text.parse::<Timestamp>().ok().filter(|_| shaped);
    parsed.map(Moment).ok_or_else(|| {
        let shown = crate::schema::field::quote(text);
        let why = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        TypeError(format!("parsing time {shown} {why} {shown} as \"2006\""))
    })
}

/// Parses a timestamp that must have exactly six fractional digits.
pub(super) fn read_micros(text: &str) -> Result<Moment, TypeError> {
    let moment = read(text).map_err(|_| match text.get(10..) {
        Some(rest) if is_date(text) && !rest.starts_with('T') => micros_wanted(text, rest, "T"),
        _ => micros_wanted(text, text, ".000000"),
    })?;
    let fraction = text.get(19..).unwrap_or_default();
    let digits = fraction.strip_prefix('.').map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit);
        digits.count()
    });
    match digits {
        Some(6) => Ok(moment),
        // Go reads six digits and then expects an offset.
        Some(7..) => Err(micros_wanted(text, &fraction[7..], "Z07:00")),
        _ => Err(micros_wanted(text, fraction, ".000000")),
    }
}

/// Returns true if a string starts with a date.
fn is_date(text: &str) -> bool {
    let date = text.get(..10).map(str::parse::<jiff::civil::Date>);
    date.is_some_and(|date| date.is_ok())
}

fn micros_wanted(text: &str, rest: &str, wanted: &str) -> TypeError {
    let (shown, rest) = (
        crate::schema::field::quote(text),
        crate::schema::field::quote(rest),
    );
    TypeError(format!(
        "parsing time {shown} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest} as {wanted:?}"
    ))
}

impl Moment {
    /// Formats in seconds: `2026-11-15T21:00:00Z`.
    pub(super) fn seconds(&self) -> String {
        second_time(self.0)
    }

    /// Formats in microseconds: `2026-11-15T21:00:00.123456Z`.
    pub(super) fn micros(&self) -> String {
        micro_time(self.0)
    }
}

/// Formats a timestamp in seconds.
pub(crate) fn second_time(moment: Timestamp) -> String {
    let at = Offset::UTC.to_datetime(moment);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// Formats a timestamp in microseconds.
pub(crate) fn micro_time(moment: Timestamp) -> String {
    let at = Offset::UTC.to_datetime(moment);
    let second = second_time(moment);
    let micros = at.subsec_nanosecond() / 1_000;
    format!("{}.{micros:06}Z", second.trim_end_matches('Z'))
}
