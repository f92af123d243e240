//! What a kubelet and a Prometheus ask a program: is it alive, is it ready, what has it counted.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{informer::InformerFactory, metrics::Metrics};

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
/// | `/healthz` | 200 for as long as the program runs |
/// | `/readyz` | 200 while every cache is synced and follows the server; else 503, and a line for each reason |
/// | `/metrics` | everything counted, as Prometheus reads it |
///
/// A program moves from not ready (caches fill, or cannot) to ready, and back to not ready for good
/// when it is told to stop. A reason names the cache and what keeps it: `foos at cluster scope:
/// retrying in 3.2 s because 403 Forbidden …`.
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

    /// The program is ready only once these are started and all synced, and no longer once they are
    /// stopped.
    pub fn caches(mut self, informers: &InformerFactory) -> Self {
        self.caches.push(informers.clone());
        self
    }

    /// Why the program is not ready: a line for each reason, none if it is.
    pub fn not_ready(&self) -> Vec<String> {
        if self.stopping.is_cancelled() {
            return vec!["shutting down".to_owned()];
        }
        let mut reasons = Vec::new();
        for informers in &self.caches {
            reasons.extend(informers.not_running());
            let unsynced = informers.not_synced().map(|missing| missing.informers);
            reasons.extend(
                unsynced
                    .into_iter()
                    .flatten()
                    .map(|cache| format!("{}: {}", cache.informer, cache.status)),
            );
        }
        reasons
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
            let answer = self.answer(request.method(), request.uri().path());
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

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".into());
        }
        match path {
            "/healthz" => respond(StatusCode::OK, PLAIN, "ok\n".into()),
            "/readyz" => match self.not_ready() {
                reasons if reasons.is_empty() => respond(StatusCode::OK, PLAIN, "ok\n".into()),
                reasons => {
                    let lines = reasons.iter().map(|reason| format!("[-] {reason}\n"));
                    respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, lines.collect())
                }
            },
            "/metrics" => respond(StatusCode::OK, OPEN_METRICS, self.metrics.encode()),
            _ => respond(
                StatusCode::NOT_FOUND,
                PLAIN,
                "try /healthz, /readyz or /metrics\n".into(),
            ),
        }
    }
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
