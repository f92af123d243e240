//! Where events are written: one small trait, and the API server behind it.

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

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Stores events of one API's type `E` (core/v1 or events.k8s.io/v1).
///
/// A broadcaster never calls a sink twice at once, and drops a call only when its time is up at the
/// end.
pub trait EventSink<E>: Send + Sync + 'static {
    /// Stores a new event and answers with what was stored.
    fn create(&self, event: &E) -> impl Future<Output = Result<E, SinkError>> + Send;

    /// Merges `patch` into the event of this name and answers with what is now stored.
    fn patch(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<E, SinkError>> + Send;
}

/// Why a sink did not take an event, and thereby whether it is worth another try.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The server said no. The same request would be refused again.
    #[error("the server refused the event: {0}")]
    Refused(#[source] Box<Status>),
    /// No request could be made of the event. It will not be tried again.
    #[error("no request could be made of the event: {0}")]
    Unwritable(#[source] BoxError),
    /// No answer came, or none that could be understood. It will be tried again.
    #[error("the event could not be handed over: {0}")]
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

    /// A refusal that is part of normal life: somebody else wrote it, or its namespace is going.
    pub(super) fn is_expected(&self) -> bool {
        let terminating = |status: &Status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            causes
                .into_iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        };
        self.is_already_exists() || matches!(self, Self::Refused(status) if terminating(status))
    }

    /// Whether the same write may succeed later. A server that is only too busy is asked again:
    /// client-go leaves that to its HTTP client, which ours does not do.
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

/// The API server, for events of either API.
///
/// Repeats are sent as strategic merge patches; to a server that does not know them (415, 501), as
/// plain merge patches, which mean the same for an event's fields.
#[derive(Clone, Debug)]
pub struct ApiSink {
    client: ApiClient,
    plain_merge: Arc<AtomicBool>,
}

/// [`Client`] with a `Debug` that does not print its innards.
#[derive(Clone)]
struct ApiClient(Client);

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl ApiSink {
    /// Writes through `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client: ApiClient(client),
            plain_merge: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Whether the server has the events.k8s.io/v1 API.
    pub(super) async fn knows_events_v1(&self) -> Result<(), SinkError> {
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
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use k8s_openapi::api::{core, events};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::events::tests::support::occurrence;

    type Log = Arc<Mutex<Vec<String>>>;

    /// A server that answers with `code` or, to what it takes, with the body it was sent.
    fn server(answer: impl Fn(&Request<Body>) -> u16 + Clone + Send + 'static) -> (ApiSink, Log) {
        let log = Log::default();
        let seen = Arc::clone(&log);
        let service = tower::service_fn(move |request: Request<Body>| {
            let code = answer(&request);
            let content = request
                .headers()
                .get("content-type")
                .map(|value| value.to_str());
            let content = content.and_then(Result::ok).unwrap_or("-");
            let line = format!("{} {} {content}", request.method(), request.uri().path());
            seen.lock().push(line);
            async move {
                let sent = request
                    .into_body()
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes);
                let body = match code {
                    200 => sent.unwrap_or_default().to_vec(),
                    code => json!({ "code": code, "reason": "No" })
                        .to_string()
                        .into_bytes(),
                };
                let response = Response::builder().status(code).body(Body::from(body));
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        (ApiSink::new(Client::new(service, "default")), log)
    }

    fn content_type(request: &Request<Body>) -> &str {
        request.headers()["content-type"].to_str().expect("text")
    }

    /// Proves events/sinks, events/repeats-patch.
    #[tokio::test]
    async fn events_of_both_apis_go_to_their_namespace_and_repeats_are_strategic_patches() {
        let (sink, log) = server(|_| 200);
        let seen = occurrence("web", "Seen", "hello");
        let core: core::v1::Event = sink.create(&seen.to_core_v1()).await.expect("stored");
        assert_eq!(core.message.as_deref(), Some("hello"));
        let newer: events::v1::Event = sink.create(&seen.to_events_v1("m")).await.expect("stored");
        assert_eq!(newer.note.as_deref(), Some("hello"));
        let patch = json!({ "count": 2, "metadata": {}, "involvedObject": {} });
        let patched: core::v1::Event = sink.patch("shop", "e", &patch).await.expect("patched");
        assert_eq!(patched.count, Some(2));
        assert_eq!(
            *log.lock(),
            [
                "POST /api/v1/namespaces/shop/events application/json",
                "POST /apis/events.k8s.io/v1/namespaces/shop/events application/json",
                "PATCH /api/v1/namespaces/shop/events/e application/strategic-merge-patch+json",
            ]
        );
    }

    /// Proves events/merge-patch-fallback.
    #[tokio::test]
    async fn a_server_without_strategic_patches_gets_plain_ones_from_then_on() {
        for unknown in [415, 501] {
            plain_after(unknown).await;
        }
    }

    async fn plain_after(unknown: u16) {
        let (sink, log) = server(move |request| {
            if content_type(request).contains("strategic") {
                unknown
            } else {
                200
            }
        });
        let patch = json!({ "count": 2, "metadata": {}, "involvedObject": {} });
        for _ in 0..2 {
            let patched: core::v1::Event = sink.patch("shop", "e", &patch).await.expect("patched");
            assert_eq!(patched.count, Some(2));
        }
        let kinds: Vec<_> = log
            .lock()
            .iter()
            .map(|line| line.contains("strategic"))
            .collect();
        assert_eq!(kinds, [true, false, false]);
    }

    /// Proves events/retries.
    #[tokio::test]
    async fn an_answer_of_the_server_is_told_from_no_answer() {
        let event = occurrence("web", "Seen", "hello").to_core_v1();
        for (code, transient) in [
            (400, false),
            (404, false),
            (409, false),
            (500, false),
            (429, true),
        ] {
            let (sink, _) = server(move |_| code);
            let error = EventSink::<core::v1::Event>::create(&sink, &event)
                .await
                .expect_err("no");
            assert_eq!(error.code(), Some(code));
            assert_eq!(error.is_transient(), transient, "{error}");
        }
        let odd = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from(b"not an event".to_vec())))
        });
        let gone = tower::service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, _>(std::io::Error::other("connection refused"))
        });
        for client in [Client::new(odd, "default"), Client::new(gone, "default")] {
            let sink = ApiSink::new(client);
            let error = EventSink::<core::v1::Event>::create(&sink, &event)
                .await
                .expect_err("no");
            assert!(error.is_transient(), "{error}");
        }
        let (sink, log) = server(|_| 200);
        let patch = json!({});
        let error = EventSink::<core::v1::Event>::patch(&sink, "shop", "", &patch).await;
        assert!(!error.expect_err("an event without a name").is_transient());
        assert!(log.lock().is_empty());
    }

    /// Proves events/v1-discovery.
    #[tokio::test]
    async fn discovery_asks_for_the_newer_api() {
        let (sink, log) = server(|_| 404);
        assert!(
            sink.knows_events_v1()
                .await
                .expect_err("none here")
                .is_not_found()
        );
        assert_eq!(*log.lock(), ["GET /apis/events.k8s.io/v1 -"]);
    }
}
