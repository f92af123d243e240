//! Health endpoints for the kubelet and a metrics endpoint for Prometheus.
//!
//! A controller whose watch has been broken for a minute works on stale data, and one whose
//! informer has died never works again. Neither is visible from outside unless the program reports
//! it.

use std::{
    fmt,
    fmt::Write as _,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    informer::{Health, Idle, InformerFactory, State},
    metrics::Metrics,
    object::panic_message,
};

/// The number of concurrent connections; further ones wait.
const CONNECTIONS: usize = 64;

/// How long a connection may take to send its request. Much shorter than a kubelet's probe timeouts
/// in total, so that silent connections cannot get the program killed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take in total, in case the peer does not read the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait after `accept` fails, for example for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves health and metrics over plain HTTP:
///
/// | path | response |
/// |---|---|
/// | `/healthz`, `/livez` | 200 while every informer's task is alive and all checks pass, or else 500 |
/// | `/readyz` | 200 while every cache is synced and follows the server and all checks pass, or else 503 |
/// | `/metrics` | all metrics in Prometheus' text format, with the cargo feature `metrics` |
///
/// The response explains a failed check in kube-apiserver's format; with `?verbose` it lists passed
/// checks too:
///
/// ```text
/// [+]informer deployments.apps at cluster scope ok
/// [-]informer foos.example.com at cluster scope failed: retrying in 3.2 s because 403 Forbidden …
/// readyz check failed
/// ```
///
/// # Readiness
/// Readiness covers the whole life of each informer, not only its first list. Watches end in normal
/// operation and API servers restart, so an informer is reported only after 30 seconds without a
/// watch, and is ready again once a watch has lasted five. During shutdown the program is not
/// ready.
///
/// # Liveness
/// An informer whose task panicked or ended unexpectedly cannot recover. Only restarting the
/// program helps, which is what the kubelet does when liveness fails. Replacing the informer does
/// not help: handlers of the old one are never called again. A server that is down or rejects
/// requests is not a reason to restart.
///
/// # Examples
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use pintle::{informer::InformerFactory, metrics::Metrics, probes::Probes};
/// use tokio_util::sync::CancellationToken;
///
/// let (metrics, shutdown) = (Metrics::new(), CancellationToken::new());
/// let informers = InformerFactory::new(client).metrics(metrics.clone());
/// let probes = Probes::new(&shutdown).metrics(&metrics).caches(&informers);
/// let serving = probes.serve("0.0.0.0:8080").await?;
/// // Run controllers until `shutdown` is cancelled.
/// serving.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "probes do nothing until served"]
pub struct Probes {
    stopping: CancellationToken,
    metrics: Metrics,
    caches: Vec<InformerFactory>,
    checks: Vec<Custom>,
}

/// A check that is not about an informer.
#[derive(Clone)]
struct Custom {
    name: String,
    endpoint: Endpoint,
    /// Returns the note to print if the check passes.
    check: Arc<dyn Fn() -> Result<Option<String>, String> + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Ready,
    Alive,
}

impl Probes {
    /// Returns probes without checks. Readiness fails once `stopping` is cancelled.
    pub fn new(stopping: &CancellationToken) -> Self {
        Self {
            stopping: stopping.clone(),
            metrics: Metrics::new(),
            caches: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Sets what `/metrics` serves.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Adds checks for the informers of a factory.
    pub fn caches(mut self, informers: &InformerFactory) -> Self {
        self.caches.push(informers.clone());
        self
    }

    /// Adds a custom check to `/readyz`. `Err` says why the program is not ready.
    ///
    /// It is called for every request, so it must not block. A panic counts as a failure.
    ///
    /// ```
    /// # use pintle::probes::Probes;
    /// # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// # use tokio_util::sync::CancellationToken;
    /// let connected = Arc::new(AtomicBool::new(false));
    /// let seen = Arc::clone(&connected);
    /// let probes = Probes::new(&CancellationToken::new()).ready_check("database", move || {
    ///     let connected = seen.load(Ordering::Relaxed);
    ///     connected.then_some(()).ok_or_else(|| "not connected".to_owned())
    /// });
    /// assert_eq!(probes.not_ready(), ["database: not connected"]);
    /// ```
    pub fn ready_check<F>(self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.custom(name, Endpoint::Ready, move || check().map(|()| None))
    }

    /// Adds a custom check to `/healthz` and `/livez`. If it keeps failing, the kubelet restarts
    /// the container. Otherwise the same as [`ready_check`](Self::ready_check).
    pub fn alive_check<F>(self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.custom(name, Endpoint::Alive, move || check().map(|()| None))
    }

    /// Adds a line to `/readyz?verbose` that never fails.
    pub(crate) fn report<F>(self, name: impl Into<String>, report: F) -> Self
    where
        F: Fn() -> String + Send + Sync + 'static,
    {
        self.custom(name, Endpoint::Ready, move || Ok(Some(report())))
    }

    fn custom<F>(mut self, name: impl Into<String>, endpoint: Endpoint, check: F) -> Self
    where
        F: Fn() -> Result<Option<String>, String> + Send + Sync + 'static,
    {
        self.checks.push(Custom {
            name: name.into(),
            endpoint,
            check: Arc::new(check),
        });
        self
    }

    /// Returns the reasons why the program is not ready; empty if it is ready.
    pub fn not_ready(&self) -> Vec<String> {
        failures(self.readiness())
    }

    /// Returns the reasons why the program must be restarted; empty if it is alive.
    pub fn not_alive(&self) -> Vec<String> {
        failures(self.liveness())
    }

    fn readiness(&self) -> Vec<Check> {
        if self.stopping.is_cancelled() {
            return vec![Check::failed("shutdown", "shutting down")];
        }
        self.check(Endpoint::Ready, |health| match health {
            Ok(state) => match state {
                State::Healthy => None,
                State::Behind(why) | State::Dead(why) => Some(why),
                State::Stopped => Some("stopped".to_owned()),
            },
            Err(Idle::NotStarted) => Some("not started".to_owned()),
            Err(Idle::Stopped) => Some("stopped".to_owned()),
        })
    }

    fn liveness(&self) -> Vec<Check> {
        self.check(Endpoint::Alive, |health| match health {
            Ok(State::Dead(why)) => Some(why),
            _ => None,
        })
    }

    /// Returns the results of the endpoint's own checks, and one for each informer, or for a
    /// factory that is idle.
    fn check(
        &self,
        endpoint: Endpoint,
        failure: impl Fn(Result<State, Idle>) -> Option<String>,
    ) -> Vec<Check> {
        let own = self
            .checks
            .iter()
            .filter(|check| check.endpoint == endpoint);
        let mut checks: Vec<Check> = own.map(Custom::result).collect();
        for informers in &self.caches {
            match informers.health() {
                Ok(all) => checks.extend(all.into_iter().map(|Health { informer, state }| Check {
                    name: format!("informer {informer}"),
                    failure: failure(Ok(state)),
                    note: None,
                })),
                Err(idle) => checks.push(Check {
                    name: "informers".to_owned(),
                    failure: failure(Err(idle)),
                    note: None,
                }),
            }
        }
        checks
    }

    /// Listens on `address` until the returned [`Serving`] is shut down or dropped.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: nothing listens until it returns.
    pub async fn serve(self, address: impl ToSocketAddrs) -> io::Result<Serving> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let closing = CancellationToken::new();
        let task = tokio::spawn(Arc::new(self).run(listener, closing.clone()));
        Ok(Serving {
            address,
            closing: closing.drop_guard(),
            task,
        })
    }

    async fn run(self: Arc<Self>, listener: TcpListener, closing: CancellationToken) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        // Dropping the set closes all connections; no response takes long.
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.cancelled() => return,
                accepted = accept(&listener, &permits) => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, permit)) => {
                    let probes = Arc::clone(&self);
                    connections.spawn(async move {
                        probes.serve_connection(stream).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a probe connection; retrying");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        let service = service_fn(|request: Request<_>| {
            let response = self.respond(request.method(), request.uri());
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            // One response per connection, so that idle peers do not hold permits.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "probe connection failed"),
            Err(_) => tracing::debug!("probe connection timed out"),
        }
    }

    fn respond(&self, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return response(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".into());
        }
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        match path {
            "/healthz" | "/livez" => report(
                path,
                query,
                &self.liveness(),
                StatusCode::INTERNAL_SERVER_ERROR,
            ),
            "/readyz" => report(
                path,
                query,
                &self.readiness(),
                StatusCode::SERVICE_UNAVAILABLE,
            ),
            "/metrics" if cfg!(feature = "metrics") => {
                response(StatusCode::OK, OPEN_METRICS, self.metrics.encode())
            }
            _ => response(
                StatusCode::NOT_FOUND,
                PLAIN,
                "try /healthz, /readyz or /metrics\n".into(),
            ),
        }
    }
}

/// One line of a response.
struct Check {
    name: String,
    failure: Option<String>,
    /// The note to print if the check passes.
    note: Option<String>,
}

impl Check {
    fn failed(name: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            failure: Some(why.to_owned()),
            note: None,
        }
    }
}

impl Custom {
    fn result(&self) -> Check {
        let result = catch_unwind(AssertUnwindSafe(|| (self.check)()));
        let result =
            result.unwrap_or_else(|panic| Err(format!("the check {}", panic_message(&*panic))));
        let (note, failure) = match result {
            Ok(note) => (note, None),
            Err(why) => (None, Some(why)),
        };
        Check {
            name: self.name.clone(),
            failure,
            note,
        }
    }
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks: Vec<_> = self.checks.iter().map(|check| &check.name).collect();
        f.debug_struct("Probes")
            .field("checks", &checks)
            .field("caches", &self.caches)
            .finish_non_exhaustive()
    }
}

fn failures(checks: Vec<Check>) -> Vec<String> {
    let failed = checks
        .into_iter()
        .filter_map(|check| Some(format!("{}: {}", check.name, check.failure?)));
    failed.collect()
}

/// Formats checks as kube-apiserver does: `ok`, or a line for each check and a verdict.
fn report(path: &str, query: &str, checks: &[Check], bad: StatusCode) -> Response<Full<Bytes>> {
    let passed = checks.iter().all(|check| check.failure.is_none());
    let is_verbose = |part: &str| part == "verbose" || part.starts_with("verbose=");
    if passed && !query.split('&').any(is_verbose) {
        return response(StatusCode::OK, PLAIN, "ok\n".into());
    }
    let mut text = String::new();
    for Check {
        name,
        failure,
        note,
    } in checks
    {
        // Writing to a String cannot fail.
        let _ = match (failure, note) {
            (Some(why), _) => writeln!(text, "[-]{name} failed: {why}"),
            (None, Some(note)) => writeln!(text, "[+]{name} ok: {note}"),
            (None, None) => writeln!(text, "[+]{name} ok"),
        };
    }
    let endpoint = path.trim_start_matches('/');
    let (status, verdict) = if passed {
        (StatusCode::OK, "passed")
    } else {
        (bad, "failed")
    };
    let _ = writeln!(text, "{endpoint} check {verdict}");
    response(status, PLAIN, text)
}

/// Accepts the next connection, once a permit is free.
pub(crate) async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Probes being served. Dropping it closes the listener and all connections.
#[must_use = "dropping it stops serving"]
pub struct Serving {
    address: SocketAddr,
    closing: DropGuard,
    task: JoinHandle<()>,
}

impl Serving {
    /// Returns the address it listens on, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening and closes all connections.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops serving without waiting.
    pub async fn shutdown(self) {
        drop(self.closing);
        // The task ends on its own; a panic in it was already reported.
        let _ = self.task.await;
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
