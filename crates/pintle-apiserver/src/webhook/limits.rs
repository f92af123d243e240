//! Limits per webhook: concurrent calls, and memory for their responses.

use std::{pin::pin, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tower_service::BoxError;

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// The size beyond which a response counts as large, in bytes. Few are.
const LARGE: usize = 256 * 1024;

/// The maximum number of concurrent calls of one webhook.
const MAX_CALLS: usize = 64;

/// The maximum number of large responses of one webhook that are received at the same time. Others
/// wait, within the deadlines of their calls.
const MAX_LARGE: usize = 4;

/// The limits of one webhook.
///
/// A webhook whose every response has the maximum size thus costs 80 MiB instead of a gigabyte.
#[derive(Debug)]
pub(crate) struct Limits {
    calls: Semaphore,
    large: Arc<Semaphore>,
}

/// The body of a response. A large one counts as such until it is dropped.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) body: Bytes,
    _large: Option<OwnedSemaphorePermit>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: Semaphore::new(MAX_CALLS),
            large: Arc::new(Semaphore::new(MAX_LARGE)),
        }
    }
}

impl Limits {
    /// Runs a call once a slot is free.
    pub(super) async fn call<R>(&self, call: impl Future<Output = R>) -> R {
        // The semaphore is never closed, so acquiring cannot fail.
        let _permit = self.calls.acquire().await;
        call.await
    }

    /// Receives the body of a response.
    ///
    /// # Errors
    ///
    /// Fails if the body does, or is longer than a response may be.
    pub(super) async fn receive<B>(&self, body: B) -> Result<Received, String>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let mut body = pin!(body.map_err(|error| error.into().to_string()));
        let mut received = BytesMut::new();
        let mut large = None;
        while let Some(frame) = body.as_mut().frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let size = received.len().saturating_add(data.remaining());
            if size > MAX_RESPONSE {
                return Err("length limit exceeded".to_owned());
            }
            if size > LARGE && large.is_none() {
                large = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            received.put(data);
        }
        Ok(Received {
            body: received.freeze(),
            _large: large,
        })
    }
}

#[cfg(test)]
mod tests;
