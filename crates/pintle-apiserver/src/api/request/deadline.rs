//! How long a request may take.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::{
    api::{ApiError, Call},
    registry::verbs::WATCH,
};

/// The deadline of a write, as in kube-apiserver.
const WRITE: Duration = Duration::from_secs(34);
/// The deadline of every request. A list or a deletecollection may convert many objects.
const ANY: Duration = Duration::from_secs(60);

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) struct TimeLimit {
    pub(in crate::api) after: Duration,
    /// Whether it is the limit of a write, which upstream reports in different words.
    pub(in crate::api) of_write: bool,
}

impl Call {
    /// Returns how long a request may take: the `timeout` parameter, capped by the server's limit.
    /// Watches and connections have no limit.
    pub(in crate::api) fn time_limit(&self) -> Result<Option<TimeLimit>, ApiError> {
        let streams = self.target.is_connect() || self.target.sub.as_deref() == Some("log");
        if streams || self.verb() == Some(WATCH) {
            return Ok(None);
        }
        let wanted = match self.query.get("timeout") {
            "" => Duration::ZERO,
            text => duration(text).map_err(|why| {
                let what = "invalid timeout specified in the request URL";
                ApiError::bad_request(format!("{what} - {why}"))
            })?,
        };
        let any = if wanted.is_zero() {
            ANY
        } else {
            ANY.min(wanted)
        };
        let is_write = match self.method {
            Method::DELETE => self.target.name.is_some(),
            Method::POST | Method::PUT | Method::PATCH => true,
            _ => false,
        };
        Ok(Some(if is_write && WRITE < any {
            TimeLimit {
                after: WRITE,
                of_write: true,
            }
        } else {
            TimeLimit {
                after: any,
                of_write: false,
            }
        }))
    }

    /// Returns the deadline of a request that starts now.
    pub(in crate::api) fn deadline(&self) -> Result<Option<Instant>, ApiError> {
        let limit = self.time_limit()?;
        Ok(limit.and_then(|limit| Instant::now().checked_add(limit.after)))
    }
}

/// Parses a duration like Go: `1m30s`. A negative duration becomes zero.
fn duration(text: &str) -> Result<Duration, String> {
    let nanos = pintle_cel::go::parse_duration(text)?;
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

#[cfg(test)]
mod tests;
