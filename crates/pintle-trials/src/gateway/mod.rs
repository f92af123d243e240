//! The gateway between the controller and the server. Faults in requests are injected here.
//!
//! ```text
//! controller ─► request ─► latency ─► fault before? ─► server ─► fault after? ─► latency ─► response
//!                                          │                          │
//!                                   crash, error, rival        crash, lost response, user
//! ```
//!
//! A request from a crashed process never returns: first the process is cut off, then its futures
//! are dropped. In the other order, code in `Drop` could still reach the server, which is
//! impossible after a real crash.

pub(crate) mod feed;
pub(crate) mod request;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube::client::Body;
use parking_lot::Mutex;
use pintle_apiserver::ApiService;
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};
use tower::{Service, ServiceExt};

use self::request::{Target, Verb};
use crate::{
    canonical::RIVAL,
    hub::{Hub, Origin, Signal},
    plan::Fault,
    process::OVERLAP,
    trace::{self, Abort},
};

/// How late the last request of a crashed process reaches the server.
const LATE: Duration = Duration::from_secs(30);
/// How long a process is cut off: longer than a Lease lasts.
pub(crate) const PAUSE: Duration = Duration::from_secs(20);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type HttpResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// An error below HTTP.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(&'static str);

/// One incarnation of the controller's process, as the network sees it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u32,
    severed: AtomicBool,
    /// The time until which the process is cut off from the cluster.
    paused_until: Mutex<Option<Instant>>,
}

impl Session {
    pub(crate) fn new(id: u32) -> Arc<Self> {
        Arc::new(Self {
            id,
            severed: AtomicBool::new(false),
            paused_until: Mutex::default(),
        })
    }

    /// Disconnects the process.
    pub(crate) fn sever(&self) {
        self.severed.store(true, Ordering::Relaxed);
        crate::process::ignore_panics();
    }

    pub(crate) fn is_severed(&self) -> bool {
        self.severed.load(Ordering::Relaxed)
    }

    /// Returns immediately if the process is connected, after the pause if it is paused, and never
    /// otherwise.
    pub(crate) async fn alive(&self, hub: &Hub) {
        let paused = *self.paused_until.lock();
        if let Some(until) = paused.filter(|until| *until > Instant::now()) {
            sleep_until(until).await;
        }
        if self.is_severed() || hub.abort.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// Cuts the process off from the cluster for a while, and starts another one. In a paced story,
    /// the user applies the next step once both run: a former leader must not react to it.
    fn pause(&self, hub: &Arc<Hub>) {
        *self.paused_until.lock() = Some(Instant::now() + PAUSE);
        let mut record = hub.record.lock();
        record.mark(format!("process {} is cut off (fault)", self.id));
        record.busy_for(PAUSE + OVERLAP + Duration::from_secs(3));
        drop(record);
        let _ = hub.signals.send(Signal::Pause(self.id));
        if !hub.is_rapid() {
            let hub = Arc::clone(hub);
            tokio::spawn(async move {
                sleep(PAUSE + Duration::from_secs(1)).await;
                hub.advance().await;
            });
        }
    }

    fn crash(&self, hub: &Hub, why: &str) {
        self.sever();
        let mut record = hub.record.lock();
        record.mark(format!("process {} crashes {why} (fault)", self.id));
        record.busy_for(Duration::from_secs(3));
        drop(record);
        let _ = hub.signals.send(Signal::Crash(self.id));
    }
}

/// The client's side of the gateway.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) hub: Arc<Hub>,
    pub(crate) session: Arc<Session>,
    pub(crate) server: ApiService,
}

impl Service<Request<Body>> for Gateway {
    type Response = HttpResponse;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let gateway = self.clone();
        Box::pin(async move { gateway.handle(request).await })
    }
}

impl Gateway {
    async fn handle(self, request: Request<Body>) -> Result<HttpResponse, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let target = Target::read(&parts.method, &parts.uri, &body);
        let call = self.begin(target, body.clone()).await?;
        if let Some(early) = self.before(&call).await? {
            return self.finish(&call, early).await;
        }
        let parts = self.redirect(&call.target, parts);
        if matches!(call.target.verb, Verb::Watch | Verb::List) {
            self.hub.connected(&call.target.resource).await;
            self.session.alive(&self.hub).await;
        }
        let resumes = call.target.verb == Verb::Watch && resumes(&parts.uri);
        if resumes && self.hub.take_expired(&call.target.resource) {
            return self.finish(&call, plain(200, feed::gone_line())).await;
        }
        let origin = Origin::Controller(call.index);
        let sent = Request::from_parts(parts, Full::new(body));
        let sent = self.server.clone().oneshot(sent);
        if call.fault == Some(Fault::LateWrite) {
            self.hub
                .record
                .lock()
                .busy_for(LATE + Duration::from_secs(3));
            let hub = Arc::clone(&self.hub);
            tokio::spawn(async move {
                sleep(LATE).await;
                let _ = hub.attributed(origin, sent).await;
            });
            self.session.crash(&self.hub, "; its last request is late");
            return std::future::pending().await;
        }
        let response = if call.fault == Some(Fault::Paused) {
            self.session.pause(&self.hub);
            // The request is in flight, so it arrives even if the process stops waiting.
            let (hub, (answer, answered)) = (Arc::clone(&self.hub), oneshot::channel());
            tokio::spawn(async move {
                sleep(PAUSE).await;
                let Ok(response) = hub.attributed(origin, sent).await;
                let _ = answer.send(response);
            });
            answered.await.map_err(|_| Broken("connection reset"))?
        } else {
            let Ok(response) = self.hub.attributed(origin, sent).await;
            response
        };
        self.hub.record.lock().trace.requests[call.index].status = Some(response.status().as_u16());
        let response = if call.target.verb == Verb::Watch && response.status().is_success() {
            let (parts, body) = response.into_parts();
            let feed = feed::wrap(&self, call.target.resource.clone(), body);
            Response::from_parts(parts, feed)
        } else {
            let (parts, body) = response.into_parts();
            let Ok(body) = body.collect().await;
            let body = body.to_bytes();
            self.learn(&call, parts.status, &body);
            Response::from_parts(parts, full(body))
        };
        self.after(&call).await?;
        let timed_out = call.fault == Some(Fault::Timeout);
        let response = if timed_out { refusal(504) } else { response };
        self.finish(&call, response).await
    }

    /// Records the request and waits for it to reach the server.
    async fn begin(&self, target: Target, body: Bytes) -> Result<Call, BoxError> {
        let issued = self.hub.record.lock().now();
        self.session.alive(&self.hub).await;
        self.hub.learn_version(&target);
        let (call, hot) = self.enter(target, body, issued);
        if let Some((count, what)) = hot {
            self.hub.give_up(Abort::HotLoop(count, what));
            return std::future::pending().await;
        }
        sleep(self.hub.latency()).await;
        self.session.alive(&self.hub).await;
        if self.hub.is_down() {
            return Err(Broken("connection refused").into());
        }
        Ok(call)
    }

    /// Records the request. Also returns the limit and the fingerprint if this is a hot loop.
    fn enter(
        &self,
        target: Target,
        body: Bytes,
        issued: Duration,
    ) -> (Call, Option<(usize, String)>) {
        let mut record = self.hub.record.lock();
        let mut stable = target.clone();
        stable.name = record.stable_name(&target.name);
        let fingerprint = stable.fingerprint();
        let nth = record.number(&fingerprint);
        let fault = record.fault(false, &fingerprint);
        let request = trace::Request {
            target: target.clone(),
            fingerprint: fingerprint.clone(),
            nth,
            process: self.session.id,
            step: record.step,
            issued,
            at: record.now(),
            body,
            status: None,
            commits: Vec::new(),
            fault: fault.map(Fault::name),
        };
        record.trace.requests.push(request);
        let index = record.trace.requests.len() - 1;
        let counts = target.verb != Verb::Watch && !target.is_bookkeeping();
        let hot = (counts && record.is_hot()).then(|| (record.limit, fingerprint));
        let call = Call {
            target,
            index,
            fault,
        };
        (call, hot)
    }

    /// Applies a fault that takes effect before the request reaches the server.
    async fn before(&self, call: &Call) -> Result<Option<HttpResponse>, BoxError> {
        match call.fault {
            Some(Fault::CrashBefore) => {
                self.session.crash(&self.hub, "before a request");
                std::future::pending().await
            }
            Some(Fault::Error(code) | Fault::Errors(code, _)) => Ok(Some(refusal(code))),
            Some(Fault::Refused) => Err(Broken("connection refused").into()),
            Some(Fault::TimeTravel) => {
                let step = self.hub.record.lock().before_step;
                self.hub.travel(step);
                Ok(None)
            }
            Some(Fault::Rival(_)) => {
                self.hub.rival(&call.target).await;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Applies a fault that takes effect after the server has responded.
    async fn after(&self, call: &Call) -> Result<(), BoxError> {
        match call.fault {
            Some(Fault::CrashAfter) => {
                self.session.crash(&self.hub, "after a request");
                std::future::pending().await
            }
            Some(Fault::LostResponse) => {
                sleep(self.hub.latency()).await;
                Err(Broken("connection reset before the response arrived").into())
            }
            Some(Fault::ServerRestart) => {
                self.hub.restart_server();
                Err(Broken("connection reset before the response arrived").into())
            }
            Some(Fault::UserDelete) => {
                self.hub.user_delete().await;
                Ok(())
            }
            Some(Fault::NamespaceDelete) => {
                self.hub.user_delete_namespace().await;
                Ok(())
            }
            Some(Fault::UserNext) => {
                self.hub.advance().await;
                Ok(())
            }
            Some(Fault::UserRecreate) => {
                self.hub.user_recreate().await;
                Ok(())
            }
            Some(Fault::Overlap) => {
                let mut record = self.hub.record.lock();
                record.mark("a second process starts (fault)");
                record.busy_for(OVERLAP + Duration::from_secs(1));
                drop(record);
                let _ = self.hub.signals.send(Signal::Overlap(self.session.id));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn finish(&self, call: &Call, response: HttpResponse) -> Result<HttpResponse, BoxError> {
        {
            let mut record = self.hub.record.lock();
            let request = &mut record.trace.requests[call.index];
            request.status = Some(response.status().as_u16());
        }
        sleep(self.hub.latency()).await;
        self.session.alive(&self.hub).await;
        Ok(response)
    }

    /// Redirects a list that accepts any version to an older state, while stale reads are enabled.
    fn redirect(&self, target: &Target, mut parts: http::request::Parts) -> http::request::Parts {
        if target.verb != Verb::List {
            return parts;
        }
        let query = parts.uri.query().unwrap_or_default();
        if let (true, Some((revision, _))) = (target.any_version, self.hub.past()) {
            let kept = query.split('&').filter(|pair| {
                !pair.starts_with("resourceVersion=") && !pair.starts_with("resourceVersionMatch=")
            });
            let mut pairs: Vec<&str> = kept.collect();
            let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
            pairs.push(&exact);
            let uri = format!("{}?{}", parts.uri.path(), pairs.join("&"));
            if let Ok(uri) = uri.parse() {
                parts.uri = uri;
            }
        }
        parts
    }

    /// Records generated names, and whether an unconditional write overwrote a change of the rival.
    fn learn(&self, call: &Call, status: StatusCode, body: &[u8]) {
        let rival = matches!(call.fault, Some(Fault::Rival(_)));
        if !(status.is_success() && (call.target.verb == Verb::Create || rival)) {
            return;
        }
        let Ok(object) = serde_json::from_slice::<Value>(body) else {
            return;
        };
        let mut record = self.hub.record.lock();
        record.learn_generated(&object);
        let sent = &record.trace.requests[call.index].body;
        let sent: Value = serde_json::from_slice(sent).unwrap_or_default();
        if rival
            && call.target.verb == Verb::Update
            && sent["metadata"]["resourceVersion"].is_null()
            && object["metadata"]["annotations"][RIVAL].is_null()
        {
            let what = record.trace.requests[call.index].fingerprint.clone();
            record.trace.overwritten.push(what);
        }
    }

    /// Sends a request to an external service, subject to the same faults.
    pub(crate) async fn external<T>(
        &self,
        verb: Verb,
        service: &str,
        id: &str,
        apply: impl FnOnce(&mut std::collections::BTreeMap<String, Value>) -> T,
    ) -> Result<T, ExternalError> {
        let target = Target {
            verb,
            resource: request::ResourceName {
                group: "external".to_owned(),
                plural: service.to_owned(),
            },
            version: "v1".to_owned(),
            namespace: None,
            name: id.to_owned(),
            subresource: String::new(),
            any_version: false,
        };
        let failed = |error: BoxError| ExternalError(error.to_string());
        let call = self.begin(target, Bytes::new()).await.map_err(failed)?;
        if let Some(early) = self.before(&call).await.map_err(failed)? {
            return Err(ExternalError(format!(
                "{service} responded with {}",
                early.status()
            )));
        }
        let result = {
            let mut record = self.hub.record.lock();
            let entries = record.externals.entry(service.to_owned()).or_default();
            apply(entries)
        };
        self.after(&call).await.map_err(failed)?;
        sleep(self.hub.latency()).await;
        self.session.alive(&self.hub).await;
        Ok(result)
    }
}

/// A failed request to an external service.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ExternalError(String);

struct Call {
    target: Target,
    index: usize,
    fault: Option<Fault>,
}

/// Returns whether a watch continues from a known version.
fn resumes(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    let mut pairs = query.split('&');
    !query.contains("sendInitialEvents=true")
        && pairs.any(|pair| {
            pair.strip_prefix("resourceVersion=")
                .is_some_and(|version| !matches!(version, "" | "0"))
        })
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn plain(code: u16, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns an injected error response.
fn refusal(code: u16) -> HttpResponse {
    let (reason, message) = match code {
        403 => ("Forbidden", "exceeded quota"),
        409 => ("Conflict", "the object has been modified"),
        429 => (
            "TooManyRequests",
            "too many requests, please try again later",
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        504 => (
            "Timeout",
            "the server was unable to return a response in time",
        ),
        _ => ("InternalError", "an internal error occurred"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{message} (injected by pintle-trials)"), "reason": reason, "code": code,
    });
    let mut response = plain(code, status.to_string());
    if code == 429 {
        let second = header::HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, second);
    }
    response
}
