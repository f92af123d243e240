//! How long a request may take.

use std::time::Duration;

use http::Method;

use crate::{
    api::{ApiError, Call},
    registry::verbs::WATCH,
};

/// The deadline of a write, as in kube-apiserver.
const WRITE: Duration = Duration::from_secs(34);
/// The deadline of every other request. A list or a deletecollection may convert many objects.
const OTHER: Duration = Duration::from_secs(60);

impl Call {
    /// Returns how long a request may take: the `timeout` parameter, capped by the server's limit.
    /// Watches and connections have no limit.
    pub(in crate::api) fn time_limit(&self) -> Result<Option<Duration>, ApiError> {
        let connects = matches!(
            self.target.sub.as_deref(),
            Some("exec" | "attach" | "portforward" | "proxy" | "log")
        );
        if connects || self.verb() == Some(WATCH) {
            return Ok(None);
        }
        let limit = match self.method {
            Method::DELETE if self.target.name.is_none() => OTHER,
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => WRITE,
            _ => OTHER,
        };
        let wanted = match self.query.get("timeout") {
            "" => Duration::ZERO,
            text => duration(text).map_err(|why| {
                let what = "invalid timeout specified in the request URL";
                ApiError::bad_request(format!("{what} - {why}"))
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
    let nanos = pintle_cel::go::parse_duration(text)?;
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

#[cfg(test)]
mod tests;
