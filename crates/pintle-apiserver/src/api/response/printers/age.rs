//! Ages as kubectl prints them.

use jiff::Timestamp;
use serde_json::Value;

/// Returns the age of a timestamp.
pub(super) fn of(value: &Value, now: Timestamp) -> String {
    match value.as_str().map(str::parse::<Timestamp>) {
        Some(Ok(at)) => human(now.as_second() - at.as_second()),
        Some(Err(_)) => "<invalid>".to_owned(),
        None => "<unknown>".to_owned(),
    }
}

/// Formats a duration in its most significant units: `45s`, `3m20s`, `26h`, `8d`, `2y35d`.
pub(super) fn human(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |large: i64, name: &str, small: i64, small_name: &str| {
        if small == 0 {
            format!("{large}{name}")
        } else {
            format!("{large}{name}{small}{small_name}")
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests;
