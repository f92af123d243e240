//! Limits per webhook: concurrent calls, and memory for their responses.

use std::{pin::pin, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::CallError;
use crate::tower_service::BoxError;

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// The maximum number of JSON values in a response. An object with more cannot be stored, and a
/// decoded value takes many times the bytes of its text.
const MAX_VALUES: usize = 1_000_000;

/// The size beyond which a response counts as large, in bytes. Few responses are.
const LARGE: usize = 64 * 1024;

/// The maximum number of concurrent calls to one webhook.
const MAX_CALLS: usize = 64;

/// The maximum number of large responses of one webhook in memory, from the first chunk until they
/// are no longer needed. Others wait, within the deadlines of their calls.
const MAX_LARGE: usize = 4;

/// The limits of one webhook.
///
/// They bound the memory for a webhook that always responds with the maximum size to a few hundred
/// MiB instead of gigabytes.
#[derive(Debug)]
pub(crate) struct Limits {
    calls: Semaphore,
    large: Arc<Semaphore>,
}

/// Held by a large response, and by what was decoded from it, for as long as it is in memory.
pub(crate) type Held = Option<OwnedSemaphorePermit>;

/// The body of a response. A large body counts as such until it is dropped.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) body: Bytes,
    pub(super) held: Held,
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
    /// Fails if the body cannot be read or exceeds the maximum size of a response.
    pub(super) async fn receive<B>(&self, body: B) -> Result<Received, String>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let mut body = pin!(body.map_err(|error| error.into().to_string()));
        let mut received = BytesMut::new();
        let mut held = None;
        while let Some(frame) = body.as_mut().frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let size = received.len().saturating_add(data.remaining());
            if size > MAX_RESPONSE {
                return Err("length limit exceeded".to_owned());
            }
            if size > LARGE && held.is_none() {
                held = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            received.put(data);
        }
        Ok(Received {
            body: received.freeze(),
            held,
        })
    }
}

/// Runs work on a response, off the async workers if it is large. The response counts as large
/// until the work ends, even if the request has been dropped.
///
/// # Errors
///
/// Fails if the work panics.
pub(crate) async fn apart<R: Send + 'static>(
    held: Held,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<(R, Held), CallError> {
    if held.is_none() {
        return Ok((work(), held));
    }
    let done = tokio::task::spawn_blocking(|| (work(), held)).await;
    done.map_err(|error| CallError::Local(error.to_string()))
}

/// Rejects JSON with more values than a response may have.
pub(crate) fn check_values(json: &[u8]) -> Result<(), String> {
    if values(json) > MAX_VALUES {
        return Err(format!("more than {MAX_VALUES} JSON values"));
    }
    Ok(())
}

/// Returns an upper bound for the number of values in JSON. Each value but the first follows a
/// comma, or opens a list or an object.
fn values(json: &[u8]) -> usize {
    let (mut count, mut in_string) = (1, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => _ = bytes.next(),
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests;
