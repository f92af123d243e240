//! How long a request may take.

use std::time::Duration;

use http::Method;

use crate::api::{ApiError, Call};

/// The limit of a write, as in Kubernetes.
const WRITE: Duration = Duration::from_secs(34);
/// The limit of the deletion of a collection, which is that of any request.
const COLLECTION: Duration = Duration::from_secs(60);

impl Call {
    /// Returns how long a write may take: what the client says, but not longer than the server says.
    /// Reads and connections have no limit.
    pub(in crate::api) fn time_limit(&self) -> Result<Option<Duration>, ApiError> {
        let connects = matches!(
            self.target.sub.as_deref(),
            Some("exec" | "attach" | "portforward" | "proxy")
        );
        let limit = match self.method {
            Method::DELETE if self.target.name.is_none() => COLLECTION,
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE if !connects => WRITE,
            _ => return Ok(None),
        };
        let wanted = match self.query.get("timeout") {
            "" => Duration::ZERO,
            text => duration(text).map_err(|why| {
                let what = "invalid timeout specified in the request URL";
                ApiError::bad_request(format!("{what} - time: {why}"))
            })?,
        };
        Ok(Some(if wanted.is_zero() {
            limit
        } else {
            limit.min(wanted)
        }))
    }
}

/// Parses a duration as Go does: `1m30s`. A negative one is zero.
fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("invalid duration {text:?}");
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut rest = unsigned;
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("missing unit in duration {text:?}")),
            other => return Err(format!("unknown unit {other:?} in duration {text:?}")),
        };
        seconds += number * unit;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    if text.starts_with('-') {
        return Ok(Duration::ZERO);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| invalid())
}

#[cfg(test)]
mod tests;
