//! Audit events: the user and the request, the outcome, and the annotations of admission.
//!
//! Webhooks and admission plugins annotate requests for the audit log, often without any effect
//! that the client sees. [`Builder::audit`](crate::Builder::audit) shows these annotations to a
//! test or a program. The steps of a request add them to its [`Record`]; the event is delivered
//! when the response is ready or the client disconnects. Without an observer nothing is recorded.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use http::{StatusCode, request::Parts};
use parking_lot::Mutex;

use crate::{
    api::User,
    authz::access::{Access, What},
    meta::names::{is_subdomain, qualified_name},
};

/// The maximum number of annotations of a request.
const MAX_ANNOTATIONS: usize = 256;

/// The maximum size of the annotations of a request, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// A request whose response is ready; see [`Builder::audit`](crate::Builder::audit).
///
/// It holds what an audit policy with the level `Metadata` records, and the patches of mutating
/// webhooks, which Kubernetes records from the level `Request` on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The name of the user that the request acted as, or of the authenticated user if the
    /// impersonation was denied. Empty if the request was not authenticated.
    pub user: String,
    /// The groups of that user.
    pub groups: Vec<String>,
    /// The verb: `create`, `deletecollection`; for other paths the HTTP method in lower case.
    pub verb: String,
    /// The path and query of the request.
    pub request_uri: String,
    /// The object or collection in the path; `None` for a path that does not name a resource.
    pub object: Option<AuditObject>,
    /// The status code of the response; 0 if the client disconnected before there was one. A watch
    /// has one when it starts.
    pub code: u16,
    /// The annotations by key, such as `pod-security.kubernetes.io/enforce-policy` or
    /// `mutation.webhook.admission.k8s.io/round_0_index_0`. Annotations that a webhook returns are
    /// prefixed with its name.
    pub annotations: BTreeMap<String, String>,
}

/// The object or collection of a request. Fields that do not apply are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditObject {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource: `pods`.
    pub resource: String,
    /// The subresource: `status`.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name. Empty for a collection, and for a create whose name the server generates.
    pub name: String,
}

/// The annotations of one request, if there is an observer. Shared by the steps of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record(Option<Arc<Mutex<Recorded>>>);

#[derive(Debug, Default)]
struct Recorded {
    /// The name of the object in the body of a create.
    name: String,
    annotations: BTreeMap<String, String>,
    bytes: usize,
}

impl Record {
    /// Returns true if there is an observer.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Remembers the name of the object that the request creates.
    pub(crate) fn name(&self, name: &str) {
        if let Some(recorded) = &self.0 {
            name.clone_into(&mut recorded.lock().name);
        }
    }

    /// Adds an annotation. As in Kubernetes, the first value of a key wins, and a key that is not a
    /// DNS subdomain, a slash and a name is ignored.
    pub(crate) fn annotate(&self, key: &str, value: impl Into<String>) {
        let Some(recorded) = &self.0 else {
            return;
        };
        let valid = key.split_once('/').is_some_and(|(prefix, name)| {
            is_subdomain(prefix).is_empty()
                && !name.contains('/')
                && qualified_name(name).is_empty()
        });
        if !valid {
            tracing::warn!(key, "ignoring an audit annotation with an invalid key");
            return;
        }
        let value = value.into();
        let mut recorded = recorded.lock();
        let bytes = recorded.bytes + key.len() + value.len();
        if recorded.annotations.contains_key(key) {
            return;
        }
        if recorded.annotations.len() >= MAX_ANNOTATIONS || bytes > MAX_BYTES {
            tracing::warn!(key, "too many audit annotations; dropping this one");
            return;
        }
        recorded.bytes = bytes;
        recorded.annotations.insert(key.to_owned(), value);
    }
}

/// Receives the event of every request.
type Observer = dyn Fn(AuditEvent) + Send + Sync;

/// The observer of the server, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Auditor(Option<Arc<Observer>>);

/// A request whose event is delivered when this is dropped: once the response is ready, or when the
/// client disconnects.
pub(crate) struct Audited {
    observer: Arc<Observer>,
    event: Option<AuditEvent>,
    record: Record,
}

impl Auditor {
    pub(crate) fn new(observe: impl Fn(AuditEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Starts the record of a request, which its steps find in the extensions of `parts`.
    pub(crate) fn start(&self, parts: &mut Parts) -> Option<Audited> {
        let observer = Arc::clone(self.0.as_ref()?);
        let record = Record(Some(Arc::default()));
        parts.extensions.insert(record.clone());
        let access = Access::of_request(&parts.method, &parts.uri);
        let object = match access.what {
            What::Path(_) => None,
            What::Resource(of) => Some(AuditObject {
                group: of.group.into_owned(),
                resource: of.plural.into_owned(),
                subresource: of.sub.into_owned(),
                namespace: of.namespace.into_owned(),
                name: of.name.into_owned(),
            }),
        };
        let uri = parts.uri.path_and_query();
        let event = AuditEvent {
            user: String::new(),
            groups: Vec::new(),
            verb: access.verb.into_owned(),
            request_uri: uri.map(ToString::to_string).unwrap_or_default(),
            object,
            code: 0,
            annotations: BTreeMap::new(),
        };
        Some(Audited {
            observer,
            event: Some(event),
            record,
        })
    }
}

impl Audited {
    /// Sets the user that the request acts as.
    pub(crate) fn user(&mut self, user: &User) {
        if let Some(event) = &mut self.event {
            event.user.clone_from(&user.name);
            event.groups.clone_from(&user.groups);
        }
    }

    /// Delivers the event of a request whose response is ready.
    pub(crate) fn finish(mut self, code: StatusCode) {
        if let Some(event) = &mut self.event {
            event.code = code.as_u16();
        }
    }
}

/// Delivers the event. A panic of the observer is contained.
impl Drop for Audited {
    fn drop(&mut self) {
        let Some(mut event) = self.event.take() else {
            return;
        };
        if let Some(recorded) = &self.record.0 {
            let mut recorded = recorded.lock();
            event.annotations = std::mem::take(&mut recorded.annotations);
            if let Some(object) = event
                .object
                .as_mut()
                .filter(|object| object.name.is_empty())
            {
                object.name = std::mem::take(&mut recorded.name);
            }
        }
        if catch_unwind(AssertUnwindSafe(|| (self.observer)(event))).is_err() {
            tracing::error!("audit observer panicked; continuing");
        }
    }
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Auditor({})", self.0.is_some())
    }
}
