//! Points in time.

use std::cmp::Ordering;
use std::fmt;

const DAY: i64 = 86_400;

/// The range of timestamps, in seconds since 1970: the years 1 to 9999.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A point in time between the years 1 and 9999, with the offset from UTC in which it was written.
///
/// The offset is only for display: two timestamps are equal if they are the same instant. (`jiff`'s
/// type ends a day before the year 9999 does, so that every offset can be applied to it, but
/// `9999-12-31T23:59:59Z` is commonly used for "never".)
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    offset: i64,
}

/// A date and time of day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) day_of_year: i64,
    /// 0 is Sunday.
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

/// Why a string is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    Syntax,
    Overflow,
}

impl Timestamp {
    /// Creates a timestamp in UTC. Fails outside of the years 1 to 9999.
    pub(crate) fn new(seconds: i64, nanos: u32) -> Result<Self, Invalid> {
        if RANGE.contains(&seconds) {
            Ok(Self {
                seconds,
                nanos,
                offset: 0,
            })
        } else {
            Err(Invalid::Overflow)
        }
    }

    /// Parses a timestamp as Go does with the layout of RFC 3339.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let mut rest = text.as_bytes();
        let (year, month, day) = date(&mut rest).ok_or(Invalid::Syntax)?;
        let (time, nanos) = time_of_day(&mut rest).ok_or(Invalid::Syntax)?;
        let offset = match rest {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), tail @ ..] => {
                let size = zone(tail).ok_or(Invalid::Syntax)?;
                if *sign == b'-' { -size } else { size }
            }
            _ => return Err(Invalid::Syntax),
        };
        let seconds = days(year, month, day) * DAY + time - offset;
        Ok(Self {
            offset,
            ..Self::new(seconds, nanos)?
        })
    }

    /// Parses a date, which stands for its first second in UTC.
    pub(crate) fn parse_date(text: &str) -> Option<Self> {
        let mut rest = text.as_bytes();
        let (year, month, day) = date(&mut rest)?;
        if rest.is_empty() {
            Self::new(days(year, month, day) * DAY, 0).ok()
        } else {
            None
        }
    }

    /// Returns the seconds since 1970, rounded down.
    #[must_use]
    pub fn as_second(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds since 1970.
    #[must_use]
    pub fn as_nanosecond(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// Returns true for the start of the year 1, the zero value of Go's `time.Time`.
    pub(crate) fn is_zero(self) -> bool {
        (self.seconds, self.nanos) == (*RANGE.start(), 0)
    }

    pub(crate) fn millisecond(self) -> i64 {
        i64::from(self.nanos / 1_000_000)
    }

    /// Adds nanoseconds. The offset is unchanged.
    pub(crate) fn shift(self, nanos: i64) -> Result<Self, Invalid> {
        let total = self.as_nanosecond() + i128::from(nanos);
        let seconds = total.div_euclid(1_000_000_000);
        let seconds = i64::try_from(seconds).map_err(|_| Invalid::Overflow)?;
        let nanos = u32::try_from(total.rem_euclid(1_000_000_000)).unwrap_or_default();
        Ok(Self {
            offset: self.offset,
            ..Self::new(seconds, nanos)?
        })
    }

    /// Returns date and time at an offset from UTC, in seconds.
    pub(crate) fn civil(self, offset: i64) -> Civil {
        let local = self.seconds.saturating_add(offset);
        let (day, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        // Years are counted from March, so that the leap day is the last one, and in eras of 400.
        let shifted = day + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day_of_month = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day: day_of_month,
            day_of_year: day - days(year, 1, 1) + 1,
            weekday: (day + 4).rem_euclid(7),
            hour: time / 3_600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// Writes the timestamp as Go's `RFC3339Nano`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.civil(self.offset);
        let (year, month, day) = (at.year, at.month, at.day);
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        write!(f, "T{:02}:{:02}:{:02}", at.hour, at.minute, at.second)?;
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Returns the days from 1970-01-01 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Reads a number with a fixed number of digits.
fn number(rest: &mut &[u8], digits: usize, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let (head, tail) = rest.split_at_checked(digits)?;
    let mut value = 0;
    for digit in head {
        value = value * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    *rest = tail;
    range.contains(&value).then_some(value)
}

fn skip(rest: &mut &[u8], c: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[c])?;
    Some(())
}

fn date(rest: &mut &[u8]) -> Option<(i64, i64, i64)> {
    let year = number(rest, 4, 0..=9_999)?;
    skip(rest, b'-')?;
    let month = number(rest, 2, 1..=12)?;
    skip(rest, b'-')?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    Some((year, month, number(rest, 2, 1..=last)?))
}

/// Reads an offset from UTC without its sign. Returns its seconds.
fn zone(mut rest: &[u8]) -> Option<i64> {
    let hours = number(&mut rest, 2, 0..=24)?;
    skip(&mut rest, b':')?;
    let minutes = number(&mut rest, 2, 0..=60)?;
    rest.is_empty().then_some(hours * 3_600 + minutes * 60)
}

/// Reads the time of day. Returns its seconds and nanoseconds.
fn time_of_day(rest: &mut &[u8]) -> Option<(i64, u32)> {
    skip(rest, b'T')?;
    // Go accepts a one-digit hour.
    let digits = if rest.get(1) == Some(&b':') { 1 } else { 2 };
    let hour = number(rest, digits, 0..=23)?;
    skip(rest, b':')?;
    let minute = number(rest, 2, 0..=59)?;
    skip(rest, b':')?;
    let second = number(rest, 2, 0..=59)?;
    let mut nanos = 0;
    if let [b'.' | b',', fraction @ ..] = *rest {
        let length = fraction.iter().take_while(|c| c.is_ascii_digit()).count();
        if length == 0 {
            return None;
        }
        for i in 0..9 {
            let digit = fraction[..length].get(i).map_or(0, |digit| digit - b'0');
            nanos = nanos * 10 + u32::from(digit);
        }
        *rest = &fraction[length..];
    }
    Some((hour * 3_600 + minute * 60 + second, nanos))
}
