//! A client that records the writes of the current reconcile.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Program, Record, entry::Write, redact};
use crate::cache::ObjectKey;

/// The largest error response that is read for its message, in bytes.
const MAX_REFUSAL: u64 = 64 << 10;

/// The reconcile that runs on this task.
#[derive(Clone)]
pub(super) struct Current {
    pub(super) record: Record,
    pub(super) key: ObjectKey,
    pub(super) id: u64,
}

tokio::task_local! {
    pub(super) static CURRENT: Current;
}

/// Records that the client-side rate limit held up a request of the current reconcile.
#[cfg(feature = "limits")]
pub(crate) fn limited(waited: std::time::Duration) {
    // A shorter wait is too short for a person to notice.
    if waited < std::time::Duration::from_millis(10) {
        return;
    }
    let delay = super::Delay::RateLimit;
    let _ = CURRENT.try_with(|current| current.record.delayed(&current.key, delay, waited));
}

/// Returns a client that sends requests as `inner` does, and records writes made inside a
/// reconcile.
pub(super) fn client(inner: &Client) -> Client {
    let (inner, namespace) = (inner.clone(), inner.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let current = CURRENT.try_with(Clone::clone).ok();
            match current.filter(|_| is_write(request.method())) {
                Some(current) => recorded(&inner, request, current).await,
                None => inner.send(request).await,
            }
        }
    });
    Client::new(service, namespace)
}

fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

async fn recorded(
    inner: &Client,
    request: Request<Body>,
    current: Current,
) -> Result<Response<Body>, kube::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await?;
    let Some(target) = Target::of(parts.uri.path()) else {
        return inner
            .send(Request::from_parts(parts, Body::from(body)))
            .await;
    };
    let content = parts.headers.get(CONTENT_TYPE);
    let is_apply =
        content.is_some_and(|content| content.as_bytes().starts_with(b"application/apply"));
    let verb = match parts.method {
        Method::POST => "create",
        Method::PUT => "replace",
        Method::DELETE => "delete",
        _ if is_apply => "apply",
        _ => "patch",
    };
    let program = Arc::clone(&current.record.inner.program);
    let before = (verb != "create")
        .then(|| target.before(&program))
        .flatten();
    let named = named(&body);
    let started = Instant::now();
    let sent = inner
        .send(Request::from_parts(parts, Body::from(body.clone())))
        .await;
    let (answer, status, error) = match sent {
        Ok(response) => refusal(response).await,
        Err(error) => {
            let text = crate::client::describe(&error);
            (Err(error), 0, Some(text))
        }
    };
    let kind = named
        .kind
        .or_else(|| before.as_ref().map(|(kind, _)| kind.clone()));
    let name = target.name.or(named.metadata.name).unwrap_or_default();
    let write = Write {
        id: current.id,
        verb,
        kind: kind.unwrap_or(target.resource),
        object: ObjectKey::new(target.namespace.as_deref(), &name).to_string(),
        subresource: target.subresource.unwrap_or_default(),
        took: started.elapsed(),
        status,
        error: error.map(|error| redact::text(&error)),
        held: Mutex::new(Some((body, before.map(|(_, before)| before)))),
        paths: OnceLock::new(),
    };
    current.record.wrote(&current.key, write);
    answer
}

/// Reads the message of an error response. Returns an equal response, its status code and the
/// message.
async fn refusal(
    response: Response<Body>,
) -> (Result<Response<Body>, kube::Error>, u16, Option<String>) {
    let status = response.status();
    let code = status.as_u16();
    let size = http_body::Body::size_hint(response.body()).upper();
    if status.is_success() || size.is_none_or(|size| size > MAX_REFUSAL) {
        let error = (!status.is_success()).then(|| title(status));
        return (Ok(response), code, error);
    }
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => {
            let body: Bytes = body.to_bytes();
            let message = message(&body).unwrap_or_else(|| title(status));
            let response = Response::from_parts(parts, Body::from(body));
            (Ok(response), code, Some(message))
        }
        Err(error) => {
            let text = error.to_string();
            (Err(error), code, Some(text))
        }
    }
}

fn title(status: StatusCode) -> String {
    status
        .canonical_reason()
        .unwrap_or("request failed")
        .to_owned()
}

fn message(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let status: Status = serde_json::from_slice(body).ok()?;
    Some(status.message)
}

/// The object that a body names.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    kind: Option<String>,
    metadata: NamedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedMetadata {
    name: Option<String>,
}

fn named(body: &[u8]) -> Named {
    let mut named: Named = serde_json::from_slice(body).unwrap_or_default();
    // The body of a deletion holds its options, not an object.
    named.kind = named.kind.filter(|kind| kind != "DeleteOptions");
    named
}

/// The object that the path of a request names.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    group: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => {
                parts.next()?;
                String::new()
            }
            "apis" => {
                let group = parts.next()?.to_owned();
                parts.next()?;
                group
            }
            _ => return None,
        };
        let mut resource = parts.next()?.to_owned();
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = None;
        // A request for a Namespace itself, or its subresources, has no resource after the name.
        if resource == "namespaces" && rest.len() >= 2 && !matches!(rest[1], "status" | "finalize")
        {
            namespace = Some(rest[0].to_owned());
            rest[1].clone_into(&mut resource);
            rest.drain(..2);
        }
        let owned = |part: Option<&&str>| part.map(|part| (*part).to_owned());
        Some(Self {
            group,
            resource,
            namespace,
            name: owned(rest.first()),
            subresource: owned(rest.get(1)),
        })
    }

    /// Returns the cached object and its kind.
    fn before(&self, program: &Program) -> Option<(String, Arc<dyn crate::object::Header>)> {
        let key = ObjectKey::new(self.namespace.as_deref(), self.name.as_deref()?);
        program.find(
            |group, kind| group == self.group && is_plural(kind, &self.resource),
            &key,
        )
    }
}

/// Returns whether `resource` may be the plural of `kind`.
fn is_plural(kind: &str, resource: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    resource == format!("{kind}s")
        || resource == format!("{kind}es")
        || kind
            .strip_suffix('y')
            .is_some_and(|stem| resource == format!("{stem}ies"))
        || resource == kind
}

#[cfg(test)]
mod tests;
