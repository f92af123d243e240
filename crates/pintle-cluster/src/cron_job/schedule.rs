//! Cron schedules, in the syntax of robfig/cron v3 that Kubernetes uses.
//!
//! Five fields: minute, hour, day of month, month, day of week. A field is a list of `*`, `?`,
//! values, ranges and steps; months and weekdays have names. If both day fields are restricted,
//! either one may match. `@hourly` and similar are abbreviations, and `@every 1h30m` is a fixed
//! interval.

use std::{str::FromStr, time::Duration};

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

/// How many years ahead [`Schedule::next`] looks.
const YEARS: i16 = 5;

/// When a CronJob starts Jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    Every(Duration),
    Fields(Fields),
}

/// The values that match, as bits, for each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the day of month, or the day of week, is not restricted.
    any_day: bool,
}

/// The range of a field and the names of its values.
struct Bounds {
    first: u8,
    last: u8,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds {
    first: 0,
    last: 59,
    names: &[],
};
const HOURS: Bounds = Bounds {
    first: 0,
    last: 23,
    names: &[],
};
const DAYS: Bounds = Bounds {
    first: 1,
    last: 31,
    names: &[],
};
const MONTHS: Bounds = Bounds {
    first: 1,
    last: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAYS: Bounds = Bounds {
    first: 0,
    last: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".into());
        }
        if let Some(interval) = text.strip_prefix("@every ") {
            return every(interval);
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with('@') => return Err(format!("unrecognized descriptor: {text}")),
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            let (count, shown) = (fields.len(), fields.join(" "));
            return Err(format!(
                "expected exactly 5 fields, found {count}: [{shown}]"
            ));
        };
        let (days, any_day) = DAYS.parse(day)?;
        let (weekdays, any_weekday) = WEEKDAYS.parse(weekday)?;
        Ok(Self::Fields(Fields {
            minutes: MINUTES.parse(minute)?.0,
            hours: HOURS.parse(hour)?.0,
            days,
            months: MONTHS.parse(month)?.0,
            weekdays,
            any_day: any_day || any_weekday,
        }))
    }
}

/// Parses the interval of `@every`, truncated to whole seconds but at least one.
fn every(text: &str) -> Result<Schedule, String> {
    let invalid = || format!("failed to parse duration @every {text}: invalid duration");
    let interval: SignedDuration = text.parse().map_err(|_| invalid())?;
    let seconds = u64::try_from(interval.as_secs()).unwrap_or_default();
    Ok(Schedule::Every(Duration::from_secs(seconds.max(1))))
}

impl Bounds {
    /// Returns the bits of a field, and whether it is unrestricted.
    fn parse(&self, field: &str) -> Result<(u64, bool), String> {
        let (mut bits, mut any) = (0, false);
        for part in field.split(',').filter(|part| !part.is_empty()) {
            let (range, step) = match part.split_once('/') {
                Some((_, step)) if step.contains('/') => {
                    return Err(format!("too many slashes: {part}"));
                }
                Some((range, step)) => (range, Some(number(step)?)),
                None => (part, None),
            };
            let is_any = range == "*" || range == "?";
            let (first, last) = match range.split_once('-') {
                _ if is_any => (self.first, self.last),
                Some((_, last)) if last.contains('-') => {
                    return Err(format!("too many hyphens: {part}"));
                }
                Some((first, last)) => (self.value(first)?, self.value(last)?),
                // A value with a step is the start of a range.
                None if step.is_some() => (self.value(range)?, self.last),
                None => (self.value(range)?, self.value(range)?),
            };
            if first < self.first {
                let min = self.first;
                return Err(format!(
                    "beginning of range ({first}) below minimum ({min}): {part}"
                ));
            }
            if last > self.last {
                let max = self.last;
                return Err(format!(
                    "end of range ({last}) above maximum ({max}): {part}"
                ));
            }
            if first > last {
                return Err(format!(
                    "beginning of range ({first}) beyond end of range ({last}): {part}"
                ));
            }
            let step = step.unwrap_or(1);
            if step == 0 {
                return Err(format!("step of range should be a positive number: {part}"));
            }
            any |= is_any && step == 1;
            for value in (first..=last).step_by(step.into()) {
                bits |= 1_u64 << value;
            }
        }
        Ok((bits, any))
    }

    fn value(&self, text: &str) -> Result<u8, String> {
        let lower = text.to_ascii_lowercase();
        match self.names.iter().position(|name| *name == lower) {
            Some(position) => Ok(self.first + u8::try_from(position).unwrap_or_default()),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u8, String> {
    text.parse()
        .map_err(|_| format!("failed to parse int from {text}"))
}

impl Schedule {
    /// Returns the first time after `after`, or `None` if there is none in the next five years.
    ///
    /// Local times skipped by a clock change do not occur and repeated ones occur twice, as
    /// upstream.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_second()).ok()?;
        match self {
            Self::Every(interval) => whole.checked_add(*interval).ok(),
            Self::Fields(fields) => {
                let after = whole.checked_add(SignedDuration::from_secs(1)).ok()?;
                fields.first_from(after.to_zoned(zone.clone()))
            }
        }
    }
}

impl Fields {
    /// Returns the first matching time at or after `at`.
    fn first_from(&self, mut at: Zoned) -> Option<Timestamp> {
        let limit = at.year() + YEARS;
        let zone = at.time_zone().clone();
        let has = |bits: u64, value: i8| bits & (1_u64 << value) != 0;
        while at.year() <= limit {
            let (minute, second) = (i64::from(at.minute()), i64::from(at.second()));
            at = if !has(self.months, at.month()) {
                let next = at.date().last_of_month().tomorrow().ok()?;
                next.to_zoned(zone.clone()).ok()?
            } else if !self.matches_day(&at) {
                at.date().tomorrow().ok()?.to_zoned(zone.clone()).ok()?
            } else if !has(self.hours, at.hour()) {
                let left = SignedDuration::from_secs(3600 - minute * 60 - second);
                at.checked_add(left).ok()?
            } else if second != 0 || !has(self.minutes, at.minute()) {
                at.checked_add(SignedDuration::from_secs(60 - second))
                    .ok()?
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }

    fn matches_day(&self, at: &Zoned) -> bool {
        let day = self.days & (1_u64 << at.day()) != 0;
        let weekday = self.weekdays & (1_u64 << at.weekday().to_sunday_zero_offset()) != 0;
        if self.any_day {
            day && weekday
        } else {
            day || weekday
        }
    }
}

#[cfg(test)]
mod tests;
