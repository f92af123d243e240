//! Reads: get, [`list`], [`watch`], and the meaning of `resourceVersion` in reads.

pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod watch;
pub(crate) mod websocket;

use std::time::Duration;

use crate::api::{Answer, Api, ApiError, Call, response};

/// How long a read waits for a `resourceVersion` that does not exist yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

impl Api {
    /// Handles GET of one object.
    pub(crate) async fn get(&self, call: &Call) -> Answer {
        let collection = call.collection()?;
        if let Some(version) = parse_version(call.query.get("resourceVersion"))
            .map_err(|why| ApiError::new(500, "", why))?
        {
            self.wait_for(version).await?;
        }
        let object = self
            .store
            .get(collection, &call.key())
            .ok_or_else(|| call.missing())?;
        let object = self.shown(&call.target.resource, object).await?;
        Ok(response::object(200, &call.view(&self.clock), &object))
    }

    /// Waits a few seconds for a revision to be reached.
    pub(crate) async fn wait_for(&self, version: u64) -> Result<(), ApiError> {
        let reached = self.store.reached(version);
        match tokio::time::timeout(FRESHNESS_WAIT, reached).await {
            Ok(()) => Ok(()),
            Err(_) => Err(ApiError::version_too_large(version, self.store.revision())),
        }
    }
}

/// Parses the `resourceVersion` of a request; an empty one is `None`.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}
