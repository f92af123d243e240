//! Where events are written: the `EventSink` trait, and the API server.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Client, Resource,
    api::{Patch, PatchParams, PostParams, Request},
    core::Status,
};
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

use crate::BoxError;

/// Stores events of one API's type `E` (`core/v1` or `events.k8s.io/v1`).
///
/// A broadcaster never calls a sink concurrently, and cancels a call only when it times out or the
/// deadline of a shutdown has passed.
pub trait EventSink<E>: Send + Sync + 'static {
    /// Creates an event and returns it as stored.
    fn create(&self, event: &E) -> impl Future<Output = Result<E, SinkError>> + Send;

    /// Merges `patch` into an existing event and returns it as stored.
    fn patch(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<E, SinkError>> + Send;
}

/// An error from a sink. The variant decides whether the write is retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The server rejected the event. Not retried, unless the server was merely busy.
    #[error("server rejected the event: {0}")]
    Refused(#[source] Box<Status>),
    /// The event could not be turned into a request. Not retried.
    #[error("cannot build a request for the event: {0}")]
    Unwritable(#[source] BoxError),
    /// There was no response, or an unintelligible one. Retried.
    #[error("cannot reach the server: {0}")]
    Unreachable(#[source] BoxError),
}

impl SinkError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::Unwritable(_) | Self::Unreachable(_) => None,
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused(status) if status.reason == "AlreadyExists")
    }

    /// Returns whether the rejection is part of normal operation: the event already exists, or its
    /// namespace is terminating.
    pub(super) fn is_expected(&self) -> bool {
        let terminating = |status: &Status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            causes
                .into_iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        };
        self.is_already_exists() || matches!(self, Self::Refused(status) if terminating(status))
    }

    /// Returns whether the same write may succeed later. This includes a busy server: client-go
    /// leaves those retries to its HTTP client, but ours does not retry.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Unwritable(_) => false,
            Self::Refused(status) => matches!(status.code, 429 | 503 | 504),
        }
    }
}

impl From<kube::Error> for SinkError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
                Self::Unwritable(error.into())
            }
            _ => Self::Unreachable(error.into()),
        }
    }
}

/// Writes events of either API to the API server.
///
/// Repeats are sent as strategic merge patches; if the server does not support those (415, 501), as
/// merge patches, which mean the same for an event's fields.
#[derive(Clone, Debug)]
pub struct ApiSink {
    client: ApiClient,
    plain_merge: Arc<AtomicBool>,
}

/// [`Client`] with a terse `Debug`.
#[derive(Clone)]
struct ApiClient(Client);

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl ApiSink {
    /// Returns a sink that writes through `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client: ApiClient(client),
            plain_merge: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Succeeds if the server has the `events.k8s.io/v1` API.
    pub(super) async fn discover_events_v1(&self) -> Result<(), SinkError> {
        let request = http::Request::get("/apis/events.k8s.io/v1")
            .body(Vec::new())
            .map_err(unwritable)?;
        self.client.0.request::<IgnoredAny>(request).await?;
        Ok(())
    }

    async fn send_patch<E, P>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch<P>,
    ) -> Result<E, SinkError>
    where
        E: ApiEvent,
        P: Serialize + std::fmt::Debug,
    {
        let request = requests::<E>(namespace)
            .patch(name, &PatchParams::default(), patch)
            .map_err(unwritable)?;
        Ok(self.client.0.request(request).await?)
    }
}

impl<E: ApiEvent> EventSink<E> for ApiSink {
    async fn create(&self, event: &E) -> Result<E, SinkError> {
        let namespace = event.meta().namespace.as_deref().unwrap_or_default();
        let body = serde_json::to_vec(event).map_err(unwritable)?;
        let request = requests::<E>(namespace)
            .create(&PostParams::default(), body)
            .map_err(unwritable)?;
        Ok(self.client.0.request(request).await?)
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<E, SinkError> {
        if !self.plain_merge.load(Ordering::Relaxed) {
            match self
                .send_patch(namespace, name, &Patch::Strategic(patch))
                .await
            {
                Err(error) if matches!(error.code(), Some(415 | 501)) => {
                    self.plain_merge.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        self.send_patch(namespace, name, &Patch::Merge(patch)).await
    }
}

/// The event types of the two APIs.
trait ApiEvent:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<E> ApiEvent for E where
    E: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

fn unwritable(error: impl Into<BoxError>) -> SinkError {
    SinkError::Unwritable(error.into())
}

fn requests<E: ApiEvent>(namespace: &str) -> Request {
    Request::new(E::url_path(&(), Some(namespace)))
}

#[cfg(test)]
mod tests;
