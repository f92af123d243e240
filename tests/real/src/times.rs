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
mod tests {
    use super::*;

    #[test]
    fn fixed_times_are_not_about_now() {
        let now = Clock::system().now();
        assert!(is_about_now(&now.to_string()));
        let described = now.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string();
        assert!(is_about_now(&described), "{described}");
        assert!(!is_about_now("2026-01-01T00:00:00Z"));
        assert!(!is_about_now("Thu, 01 Jan 2026 00:00:00 +0000"));
        assert!(!is_about_now("yesterday"));
    }

    #[test]
    fn a_year_is_about_365_days() {
        let days = |days: i64| {
            let time = Clock::system().now() + SignedDuration::from_hours(24 * days);
            time.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
        };
        assert!(is_in_a_year(&days(365)));
        assert!(!is_in_a_year(&days(1)));
        assert!(!is_in_a_year("never"));
    }
}
