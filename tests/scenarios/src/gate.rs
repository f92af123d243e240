//! Records the requests of controllers and fails some of them on demand.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use sample_controller::controller::NAME;
use serde_json::{Value, json};

/// Counts requests, collects the RBAC permissions they need, and fails some on demand.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    failing: bool,
    refusing_streams: bool,
    calls: usize,
    writes: usize,
    anonymous: usize,
    event_writes: usize,
    conflicts: usize,
    errors: usize,
    /// Attempts per write.
    tries: BTreeMap<String, usize>,
    permissions: BTreeSet<Permission>,
}

/// One RBAC permission: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with any subresource: `foos/status`.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}.{}", self.verb, self.resource, self.group)
    }
}

impl Permission {
    /// Returns the permission a request needs, or `None` for discovery, which every account may
    /// read.
    fn of(method: &Method, path: &str, query: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            other => panic!("not a resource path: /{other}"),
        };
        let _version = parts.next()?;
        let mut rest: Vec<&str> = parts.collect();
        if rest.len() > 2 && rest[0] == "namespaces" {
            rest.drain(..2);
        }
        let resource = *rest.first()?;
        let resource = match rest.get(2) {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        };
        let watches = query.split('&').any(|part| part == "watch=true");
        let verb = match (method.as_str(), rest.len()) {
            ("GET", _) if watches => "watch",
            ("GET", 1) => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", 1) => "deletecollection",
            ("DELETE", _) => "delete",
            (other, _) => panic!("no verb for {other}"),
        };
        Some(Self {
            group: group.to_owned(),
            resource,
            verb: verb.to_owned(),
        })
    }
}

impl Gate {
    /// From now on, fails every other attempt of each write with a conflict, starting with the
    /// first, and every tenth request with an internal error. Event writes get no conflicts.
    pub fn inject_faults(&self) {
        self.state.lock().failing = true;
    }

    /// From now on, rejects streaming lists, as servers without `WatchList` do.
    pub fn refuse_streaming_lists(&self) {
        self.state.lock().refusing_streams = true;
    }

    /// Returns the number of injected conflicts and internal errors.
    pub fn faults(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.conflicts, state.errors)
    }

    /// Returns the number of write requests, not counting events.
    pub fn writes(&self) -> usize {
        self.state.lock().writes
    }

    /// Returns the number of writes that do not name the field manager of the sample controller,
    /// not counting deletions and events.
    pub fn anonymous_writes(&self) -> usize {
        self.state.lock().anonymous
    }

    /// Returns the number of event writes, repeats included.
    pub fn event_writes(&self) -> usize {
        self.state.lock().event_writes
    }

    /// Returns the permissions that the requests so far needed.
    pub fn permissions(&self) -> BTreeSet<Permission> {
        self.state.lock().permissions.clone()
    }

    /// Returns a client that forwards the requests the gate lets through to `inner`.
    pub fn client(&self, inner: Client) -> Client {
        let (gate, namespace) = (self.clone(), inner.default_namespace().to_owned());
        let gated = tower::service_fn(move |request: Request<Body>| {
            let (gate, inner) = (gate.clone(), inner.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let uri = &parts.uri;
                let query = uri.query().unwrap_or_default();
                let refusal = gate
                    .state
                    .lock()
                    .admit(&parts.method, uri.path(), query, &body);
                match refusal {
                    Some(status) => Ok(fault(status)),
                    None => inner.send(Request::from_parts(parts, body.into())).await,
                }
            }
        });
        Client::new(gated, namespace)
    }
}

impl State {
    fn admit(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Option<StatusCode> {
        self.permissions.extend(Permission::of(method, path, query));
        if self.refusing_streams && query.contains("sendInitialEvents") {
            return Some(StatusCode::UNPROCESSABLE_ENTITY);
        }
        self.calls += 1;
        let refused = (self.failing && self.calls.is_multiple_of(10))
            .then_some(StatusCode::INTERNAL_SERVER_ERROR);
        self.errors += usize::from(refused.is_some());
        if method == Method::GET {
            return refused;
        }
        if path.contains("/events") {
            // The broadcaster finishes a series minutes after its last event, so event writes are
            // counted separately.
            self.event_writes += 1;
            return refused;
        }
        let field_manager = format!("fieldManager={NAME}");
        if method != Method::DELETE && !query.contains(&field_manager) {
            self.anonymous += 1;
        }
        self.writes += 1;
        if refused.is_some() || !self.failing {
            return refused;
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let write = format!("{method} {path} {}", body["metadata"]["name"]);
        let tries = self.tries.entry(write).or_default();
        *tries += 1;
        let first = !tries.is_multiple_of(2);
        self.conflicts += usize::from(first);
        first.then_some(StatusCode::CONFLICT)
    }
}

fn fault(status: StatusCode) -> Response<Body> {
    let reason = match status {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        _ => "InternalError",
    };
    failure(status, reason, "injected by the test")
}

/// Returns a failed response with a `Status` object as its body.
pub fn failure(status: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = status;
    response
}
