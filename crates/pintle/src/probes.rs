//! What a kubelet and a Prometheus ask a program: is it alive, is it ready, what has it counted.

use std::{fmt, fmt::Write as _, io, net::SocketAddr, sync::Arc, time::Duration};

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
};

/// How many may be connected at once; who comes then waits.
const CONNECTIONS: usize = 64;

/// How long a connection may take to say what it wants. Much shorter than the time after which a
/// kubelet loses its patience, so that a few silent connections do not have the program killed.
const SILENCE: Duration = Duration::from_secs(2);

/// How long a connection may take altogether: who does not read the answer is left.
const CONVERSATION: Duration = Duration::from_secs(10);

/// How long to wait when the system has no further connection to give.
const PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers the questions that are put to every program in a cluster, over plain HTTP:
///
/// | path | answer |
/// |---|---|
/// | `/healthz`, `/livez` | 200 while every informer's task lives; else 500 |
/// | `/readyz` | 200 while every cache is filled and follows the server; else 503 |
/// | `/metrics` | everything counted, as Prometheus reads it |
///
/// A check that fails is explained in the answer, as by kube-apiserver; with `?verbose` those that
/// pass are listed too:
///
/// ```text
/// [+]informer deployments.apps at cluster scope ok
/// [-]informer foos.example.com at cluster scope failed: retrying in 3.2 s because 403 Forbidden …
/// readyz check failed
/// ```
///
/// # Readiness
/// Each informer is followed all its life, not only until its first list. Watches end in the normal
/// course of things and API servers restart, so an informer is reported only once it has been
/// without a watch for 30 seconds; it is ready again when a watch has lasted five. From the moment
/// the program is asked to stop it is not ready.
///
/// # Liveness
/// An informer whose task panicked or ended by itself cannot recover: only a restart of the program
/// helps, which is what a kubelet does about a failing liveness probe. A new informer in its place
/// does not: handlers of the old one are still never called. A server that is down or refuses is no
/// reason to restart.
///
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use pintle::{informer::InformerFactory, metrics::Metrics, probes::Probes};
/// use tokio_util::sync::CancellationToken;
///
/// let (metrics, shutdown) = (Metrics::new(), CancellationToken::new());
/// let informers = InformerFactory::new(client).metrics(metrics.clone());
/// let probes = Probes::new(&shutdown).metrics(&metrics).caches(&informers);
/// let serving = probes.serve("0.0.0.0:8080").await?;
/// // … run controllers until they are told to stop …
/// serving.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "probes answer nobody until they are served"]
pub struct Probes {
    stopping: CancellationToken,
    metrics: Metrics,
    caches: Vec<InformerFactory>,
}

impl Probes {
    /// Probes of a program that `stopping` tells to stop.
    pub fn new(stopping: &CancellationToken) -> Self {
        Self {
            stopping: stopping.clone(),
            metrics: Metrics::new(),
            caches: Vec::new(),
        }
    }

    /// What `/metrics` shows.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Checks the informers of a factory.
    pub fn caches(mut self, informers: &InformerFactory) -> Self {
        self.caches.push(informers.clone());
        self
    }

    /// Returns why the program is not ready, a line for each reason; none if it is ready.
    pub fn not_ready(&self) -> Vec<String> {
        failures(self.readiness())
    }

    /// Returns why the program must be restarted, a line for each reason; none if it is alive.
    pub fn not_alive(&self) -> Vec<String> {
        failures(self.liveness())
    }

    fn readiness(&self) -> Vec<Check> {
        if self.stopping.is_cancelled() {
            return vec![Check::failed("shutdown", "shutting down")];
        }
        self.check(|health| match health {
            Ok(state) => match state {
                State::Well => None,
                State::Behind(why) | State::Dead(why) => Some(why),
                State::Stopped => Some("stopped".to_owned()),
            },
            Err(Idle::NotStarted) => Some("not started".to_owned()),
            Err(Idle::Stopped) => Some("stopped".to_owned()),
        })
    }

    fn liveness(&self) -> Vec<Check> {
        self.check(|health| match health {
            Ok(State::Dead(why)) => Some(why),
            _ => None,
        })
    }

    /// One check for each informer, or one for a factory that is idle.
    fn check(&self, failure: impl Fn(Result<State, Idle>) -> Option<String>) -> Vec<Check> {
        let mut checks = Vec::new();
        for informers in &self.caches {
            match informers.health() {
                Ok(all) => checks.extend(all.into_iter().map(|Health { informer, state }| Check {
                    name: format!("informer {informer}"),
                    failure: failure(Ok(state)),
                })),
                Err(idle) => checks.push(Check {
                    name: "informers".to_owned(),
                    failure: failure(Err(idle)),
                }),
            }
        }
        checks
    }

    /// Listens on `address` and answers until the result is shut down or dropped.
    ///
    /// Cancel safe: nothing listens until it returns.
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
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        // Dropped at the end, and all connections with it: an answer is never long under way.
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased; // Who is told to close lets nobody in.
                () = closing.cancelled() => return,
                accepted = accept(&listener, &room) => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, place)) => {
                    let probes = Arc::clone(&self);
                    connections.spawn(async move {
                        probes.converse(stream).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a probe could not connect");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) {
        let answer = service_fn(|request: Request<_>| {
            let answer = self.answer(request.method(), request.uri());
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let conversation = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SILENCE)
            // One answer each: a place is not kept for who may ask again.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), answer);
        match tokio::time::timeout(CONVERSATION, conversation).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a probe broke off"),
            Err(_) => tracing::debug!("a probe did not read its answer"),
        }
    }

    fn answer(&self, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".into());
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
            "/metrics" => respond(StatusCode::OK, OPEN_METRICS, self.metrics.encode()),
            _ => respond(
                StatusCode::NOT_FOUND,
                PLAIN,
                "try /healthz, /readyz or /metrics\n".into(),
            ),
        }
    }
}

/// One line of an answer.
struct Check {
    name: String,
    failure: Option<String>,
}

impl Check {
    fn failed(name: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            failure: Some(why.to_owned()),
        }
    }
}

fn failures(checks: Vec<Check>) -> Vec<String> {
    let failed = checks
        .into_iter()
        .filter_map(|check| Some(format!("{}: {}", check.name, check.failure?)));
    failed.collect()
}

/// Answers as kube-apiserver does: `ok`, or a line for each check and a verdict.
fn report(path: &str, query: &str, checks: &[Check], bad: StatusCode) -> Response<Full<Bytes>> {
    let passed = checks.iter().all(|check| check.failure.is_none());
    let asked = |part: &str| part == "verbose" || part.starts_with("verbose=");
    if passed && !query.split('&').any(asked) {
        return respond(StatusCode::OK, PLAIN, "ok\n".into());
    }
    let mut text = String::new();
    for Check { name, failure } in checks {
        // Writing to a string does not fail.
        let _ = match failure {
            None => writeln!(text, "[+]{name} ok"),
            Some(why) => writeln!(text, "[-]{name} failed: {why}"),
        };
    }
    let endpoint = path.trim_start_matches('/');
    let (status, verdict) = if passed {
        (StatusCode::OK, "passed")
    } else {
        (bad, "failed")
    };
    let _ = writeln!(text, "{endpoint} check {verdict}");
    respond(status, PLAIN, text)
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

fn respond(status: StatusCode, form: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let form = HeaderValue::from_static(form);
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

/// Probes that are answered. Dropping it ends that at once.
#[must_use = "dropping it stops the answers"]
pub struct Serving {
    address: SocketAddr,
    closing: DropGuard,
    task: JoinHandle<()>,
}

impl Serving {
    /// Where it listens: the port that was found if any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening and closes all connections. Cancel safe: it happens all the same.
    pub async fn shutdown(self) {
        drop(self.closing);
        // It ends by itself; a panic in it was told when it happened.
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
