//! Recognizes times that a server generated.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use pintle::clock::Clock;

/// Returns whether a time, in JSON or in `kubectl describe`, is within a day of now. Only servers
/// generate such times, because no test sends them.
pub fn is_about_now(time: &str) -> bool {
    let described = || Timestamp::strptime("%a, %d %b %Y %H:%M:%S %z", time);
    let parsed = time.parse::<Timestamp>().or_else(|_| described());
    let day = SignedDuration::from_hours(24);
    parsed.is_ok_and(|time| time.duration_since(Clock::system().now()).abs() <= day)
}

/// Returns whether a time in an HTTP header is a year from now.
pub fn is_in_a_year(time: &str) -> bool {
    let time = time.strip_suffix(" UTC").unwrap_or(time);
    let parsed = DateTime::strptime("%a, %d %b %Y %H:%M:%S", time);
    let parsed = parsed.and_then(|time| time.to_zoned(TimeZone::UTC));
    parsed.is_ok_and(|time| {
        let ahead = time.timestamp().duration_since(Clock::system().now());
        let days = ahead.as_hours() / 24;
        (364..=366).contains(&days)
    })
}

#[cfg(test)]
mod tests;
