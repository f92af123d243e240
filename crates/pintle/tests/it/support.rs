//! Helpers shared by the integration tests: objects, recorded events and logs, and clients that
//! inject faults.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Debug,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use pintle::{
    cache::{Kind, Lister},
    informer::{Event, Registration, SharedInformer},
};
use pintle_apiserver::ApiServer;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt;
use tracing::{Dispatch, subscriber::NoSubscriber};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An object the API server stores.
pub(crate) trait Stored: Clone + Debug + Serialize + DeserializeOwned {}

impl<K: Clone + Debug + Serialize + DeserializeOwned> Stored for K {}

/// A ConfigMap with one entry and one label, `value`.
pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    let json = json!({
        "metadata": {"name": name, "labels": {"value": value}},
        "data": {"value": value},
    });
    serde_json::from_value(json).unwrap()
}

/// Creates an object and returns it as stored.
pub(crate) async fn create<K: Stored>(api: &Api<K>, object: &K) -> K {
    api.create(&PostParams::default(), object).await.unwrap()
}

/// Merges `patch` into an object.
pub(crate) async fn patch<K: Stored>(api: &Api<K>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Deletes an object.
pub(crate) async fn delete<K: Stored>(api: &Api<K>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Returns names and `resourceVersion`s of the objects in a cache.
pub(crate) fn cached<K: Kind>(lister: &Lister<K>) -> BTreeMap<String, String> {
    let row = |object: &pintle::cache::Object<K>| {
        (
            object.key().name().to_owned(),
            object.resource_version().to_owned(),
        )
    };
    lister.list().iter().map(row).collect()
}

/// Returns names and `resourceVersion`s of the objects on the server.
pub(crate) async fn stored<K: Stored + Resource>(api: &Api<K>) -> BTreeMap<String, String> {
    let items = api.list(&ListParams::default()).await.unwrap().items;
    let row = |object: K| {
        let metadata = object.meta();
        (
            metadata.name.clone().unwrap_or_default(),
            metadata.resource_version.clone().unwrap_or_default(),
        )
    };
    items.into_iter().map(row).collect()
}

/// The events of a handler, one line each: `+a`, `=a`, `-a`, and `?a` for a missed deletion. Resyncs
/// are left out.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    pub(crate) fn of<K: Kind>(informer: &SharedInformer<K>) -> (Self, Registration) {
        let log = Self::default();
        let lines = log.0.clone();
        let registration = informer.on_event(move |event| {
            if event.is_resync() {
                return;
            }
            let sign = match &event {
                Event::Added { .. } => '+',
                Event::Updated { .. } => '=',
                Event::Deleted(deleted) if deleted.exact => '-',
                Event::Deleted(_) => '?',
            };
            let line = format!("{sign}{}", event.key().name());
            lines.lock().unwrap().push(line);
        });
        (log, registration)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Returns a 403 response about `resource`, as the API server sends it.
pub(crate) fn forbidden(resource: &str) -> Response<UnsyncBoxBody<bytes::Bytes, Infallible>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": format!("{resource} is forbidden"),
    });
    let mut response = Response::new(Full::from(status.to_string()).boxed_unsync());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// A client whose reads of `resource` take `delay`.
pub(crate) fn slow_reads(server: &ApiServer, resource: &'static str, delay: Duration) -> Client {
    let service = server.service();
    let slow = tower::service_fn(move |request: Request<Body>| {
        let is_read = request.method() == http::Method::GET;
        let late = is_read && request.uri().path().ends_with(resource);
        let answer = service.clone().oneshot(request);
        async move {
            if late {
                sleep(delay).await;
            }
            answer.await
        }
    });
    Client::new(slow, "default")
}

/// A client whose watches of `resource` deliver each event after `delay`.
pub(crate) fn slow_watches(server: &ApiServer, resource: &'static str, delay: Duration) -> Client {
    let service = server.service();
    let slow = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri();
        let late = uri.path().ends_with(resource)
            && uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
        let answer = service.clone().oneshot(request);
        async move {
            let answer = answer.await?;
            Ok::<_, tower::BoxError>(answer.map(|body| {
                let frames = BodyStream::new(body);
                if late {
                    let frames = frames.then(move |frame| async move {
                        sleep(delay).await;
                        frame
                    });
                    StreamBody::new(frames.boxed()).boxed_unsync()
                } else {
                    StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
                }
            }))
        }
    });
    Client::new(slow, "default")
}

/// The log of this thread, from `capture` until the guard is dropped.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// Keeps a second subscriber alive. With only one, `tracing` checks interest in a log line on the
/// thread that reaches it first, and disables the line on all threads if that thread has no
/// subscriber.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

impl Log {
    pub(crate) fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        LazyLock::force(&SECOND_SUBSCRIBER);
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Returns the lines that contain `text`.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
