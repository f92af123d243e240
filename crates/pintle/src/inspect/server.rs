//! Serves the page and the API over plain HTTP.
//!
//! Everything is read-only; the size of responses and the number and duration of connections are
//! bounded. A stream sends a new state when something has changed, at most twice a second, and
//! otherwise every two seconds, because texts contain times. It ends after ten minutes; browsers
//! reconnect.

use std::{
    convert::Infallible,
    fmt,
    fmt::Write as _,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST},
    uri::Authority,
};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, ToSocketAddrs},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinHandle, JoinSet},
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Inspector, settings::Token, view::Query};
use crate::{cache::ObjectKey, probes::accept};

/// The number of concurrent connections; further ones wait.
const CONNECTIONS: usize = 32;
/// The number of concurrent streams; further ones are rejected, so that requests get through.
const STREAMS: usize = 16;
/// The number of concurrent traces; further ones are rejected, because each uses a lot of CPU.
const TRACES: usize = 1;
/// How long a connection may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may last unless its response is a stream, even if its peer does not read.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stream lasts.
const STREAM_AGE: Duration = Duration::from_mins(10);
/// How often a stream looks for changes.
const TICK: Duration = Duration::from_millis(500);
/// How often a stream sends if only the time has changed.
const REFRESH: Duration = Duration::from_secs(2);
/// How long to wait after `accept` fails.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

const PAGE: &str = include_str!("page.html");
const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// The page loads nothing but itself and connects only to this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Why the inspector cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen: {0}")]
    Bind(#[from] io::Error),
    /// No token is required, but other machines could connect.
    #[error("{0} is not a loopback address: serve the inspector there only with a token")]
    NeedsToken(SocketAddr),
    /// The configured token is empty, so anyone would know it.
    #[error("the inspector's token is empty: set another one, or none to have it generated")]
    EmptyToken,
    /// The system cannot provide random bytes for a token.
    #[error("cannot generate a token: {0}")]
    Random(String),
}

impl Inspector {
    /// Serves the page on `/` and the API under `/api/v1` until the returned [`Serving`] is shut
    /// down or dropped.
    ///
    /// Bind to a loopback address, such as `127.0.0.1:0`, unless other machines need access. Each
    /// request has to present the [token](super::Settings::token), as a bearer token or in the
    /// query; [`Serving::url`] includes it.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound, if it is not a loopback address and no token is
    /// required, if the configured [token](super::Settings::token) is empty, or if the system
    /// provides no random bytes for a token.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: nothing listens until it returns.
    pub async fn serve(&self, address: impl ToSocketAddrs) -> Result<Serving, ServeError> {
        let token = &self.program.settings.token;
        if matches!(token, Token::Fixed(token) if token.trim().is_empty()) {
            return Err(ServeError::EmptyToken);
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let token = match token {
            Token::Random => Some(random_token()?),
            Token::Fixed(token) => Some(token.clone()),
            Token::None if address.ip().is_loopback() => None,
            Token::None => return Err(ServeError::NeedsToken(address)),
        };
        let server = Arc::new(Server {
            inspector: self.clone(),
            token: token.clone(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            traces: Arc::new(Semaphore::new(TRACES)),
        });
        let closing = CancellationToken::new();
        let task = tokio::spawn(server.run(listener, closing.clone()));
        Ok(Serving {
            address,
            token,
            is_fixed: matches!(self.program.settings.token, Token::Fixed(_)),
            closing: closing.drop_guard(),
            task,
        })
    }
}

fn random_token() -> Result<String, ServeError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ServeError::Random(error.to_string()))?;
    let mut token = String::with_capacity(32);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}

/// An inspector being served. Dropping it closes the listener and all connections.
#[must_use = "dropping it stops serving"]
pub struct Serving {
    address: SocketAddr,
    token: Option<String>,
    /// Whether the operator set the token.
    is_fixed: bool,
    closing: DropGuard,
    task: JoinHandle<()>,
}

impl Serving {
    /// Returns the address it listens on, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the page, with the token that it needs.
    pub fn url(&self) -> String {
        match &self.token {
            Some(token) => format!("http://{}/?token={token}", self.address),
            None => format!("http://{}/", self.address),
        }
    }

    /// Returns the URL for a log. It omits a token that the operator set, which may be valid for a
    /// long time.
    pub(crate) fn logged_url(&self) -> String {
        if self.is_fixed {
            format!("http://{}/", self.address)
        } else {
            self.url()
        }
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

struct Server {
    inspector: Inspector,
    token: Option<String>,
    streams: Arc<Semaphore>,
    traces: Arc<Semaphore>,
}

impl Server {
    async fn run(self: Arc<Self>, listener: TcpListener, closing: CancellationToken) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        // Dropping the set closes all connections.
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
                    let server = Arc::clone(&self);
                    connections.spawn(async move {
                        server.serve_connection(stream).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept an inspector connection; retrying");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) {
        let is_stream = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            let (server, is_stream) = (Arc::clone(&self), &is_stream);
            async move {
                let response = server.respond(&request).await;
                let content_type = response.headers().get(CONTENT_TYPE);
                let streams = content_type.is_some_and(|known| known == EVENTS);
                is_stream.store(streams, Ordering::Relaxed);
                Ok::<_, Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            // One response per connection, so that idle peers do not hold permits.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut ended = timeout(RESPONSE_TIMEOUT, connection.as_mut()).await;
        if ended.is_err() && is_stream.load(Ordering::Relaxed) {
            ended = timeout(STREAM_AGE, connection).await;
        }
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "inspector connection failed"),
            Err(_) => tracing::debug!("closed an inspector connection that took too long"),
        }
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        if *request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        let query = Parameters::of(request.uri().query().unwrap_or_default());
        if let Some(refusal) = self.refuse(request.headers(), &query) {
            return refusal;
        }
        let inspector = &self.inspector;
        match request.uri().path() {
            "/" => response(StatusCode::OK, HTML, PAGE),
            "/api/v1/now" => json(&inspector.now(&query.list())),
            "/api/v1/key" => match query.key() {
                Ok((controller, key)) => match inspector.key(&controller, &key) {
                    Some(life) => json(&life),
                    None => plain(StatusCode::NOT_FOUND, "no such controller\n"),
                },
                Err(why) => plain(StatusCode::BAD_REQUEST, why),
            },
            "/api/v1/trace" => {
                let Ok(permit) = Arc::clone(&self.traces).try_acquire_owned() else {
                    let why = "another trace is being taken; try again\n";
                    return plain(StatusCode::SERVICE_UNAVAILABLE, why);
                };
                let inspector = inspector.clone();
                // The task continues without the connection, and holds the permit.
                let trace = tokio::task::spawn_blocking(move || {
                    let trace = json(&inspector.trace());
                    drop(permit);
                    trace
                });
                let failed = || plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot trace\n");
                trace.await.unwrap_or_else(|_| failed())
            }
            "/api/v1/stream" => self.stream(&query),
            _ => plain(
                StatusCode::NOT_FOUND,
                "try /, /api/v1/now, /api/v1/key, /api/v1/trace or /api/v1/stream\n",
            ),
        }
    }

    /// Returns the error response to a request that does not present the token. If no token is
    /// required, only requests to a loopback name are served, so that no web site can reach the API
    /// through its own host name (DNS rebinding).
    fn refuse(&self, headers: &HeaderMap, query: &Parameters) -> Option<Response<Body>> {
        let Some(token) = &self.token else {
            return (!is_local(headers)).then(|| plain(StatusCode::FORBIDDEN, "unknown host\n"));
        };
        let bearer = headers.get(AUTHORIZATION);
        let bearer = bearer.and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
        let presented = bearer.or(query.get("token"));
        let known = presented.is_some_and(|own| is_same(own.as_bytes(), token.as_bytes()));
        (!known).then(|| {
            let why = "open the URL that the program printed or logged at its start: it contains \
                       the token, unless the operator set one\n";
            plain(StatusCode::UNAUTHORIZED, why)
        })
    }

    /// Streams the answer to a query, sending it again whenever it may have changed.
    fn stream(&self, query: &Parameters) -> Response<Body> {
        let key = match query.get("view") {
            Some("key") => match query.key() {
                Ok(key) => Some(key),
                Err(why) => return plain(StatusCode::BAD_REQUEST, why),
            },
            _ => None,
        };
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            return plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many streams are open\n",
            );
        };
        let feed = Feed {
            inspector: self.inspector.clone(),
            list: query.list(),
            key,
            last: None,
            ends: Instant::now() + STREAM_AGE,
            _permit: permit,
        };
        let frames = stream::unfold(feed, |mut feed| async move {
            let event = feed.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(event))), feed))
        });
        let body = StreamBody::new(frames.boxed()).boxed_unsync();
        with_headers(StatusCode::OK, EVENTS, body)
    }
}

/// A stream of answers.
struct Feed {
    inspector: Inspector,
    list: Query,
    key: Option<(String, ObjectKey)>,
    /// The progress at the last answer, and the time of that answer.
    last: Option<(u64, Instant)>,
    ends: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    /// Returns the next event, or `None` at the end.
    async fn next(&mut self) -> Option<String> {
        while Instant::now() < self.ends {
            let seen = self.inspector.progress();
            match self.last {
                Some((before, at)) if before == seen && at.elapsed() < REFRESH => {}
                Some((_, at)) if at.elapsed() < TICK => {}
                _ => {
                    self.last = Some((seen, Instant::now()));
                    return Some(self.event());
                }
            }
            tokio::time::sleep(TICK).await;
        }
        None
    }

    fn event(&self) -> String {
        let (name, data) = match &self.key {
            None => (
                "now",
                serde_json::to_string(&self.inspector.now(&self.list)),
            ),
            Some((controller, key)) => {
                let life = self.inspector.key(controller, key);
                ("key", serde_json::to_string(&life))
            }
        };
        // The data is one line, because JSON has no raw line breaks.
        format!("event: {name}\ndata: {}\n\n", data.unwrap_or_default())
    }
}

impl Inspector {
    /// Returns a number that changes with the counts and states that a view shows.
    fn progress(&self) -> u64 {
        let mut sum = 0_u64;
        let mut mix = |value: u64| sum = sum.wrapping_mul(31).wrapping_add(value);
        for record in self.program.records() {
            let totals = record.log.lock().totals;
            mix(totals.wakes);
            mix(totals.reconciles);
            mix(totals.writes);
            mix(record.workers.load(Ordering::Relaxed) as u64);
            let counts = record.queue.counts();
            mix(counts.ready as u64);
            mix(counts.delayed as u64);
            mix(counts.processing as u64);
            mix(counts.parked as u64);
        }
        for factory in self.program.factories() {
            for informer in factory.inspect() {
                mix(informer.changes);
                mix(informer.state.len() as u64);
                mix(informer.objects as u64);
            }
        }
        sum
    }
}

/// The parameters of a query.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(query: &str) -> Self {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self(
            pairs
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn list(&self) -> Query {
        let text = |name| self.get(name).unwrap_or_default().to_owned();
        let number = |name| self.get(name)?.parse().ok();
        let default = Query::default();
        Query {
            controller: text("controller"),
            search: text("search"),
            problems: self.get("problems") == Some("true"),
            offset: number("offset").unwrap_or(default.offset),
            limit: number("limit").unwrap_or(default.limit),
        }
    }

    fn key(&self) -> Result<(String, ObjectKey), &'static str> {
        let (Some(controller), Some(key)) = (self.get("controller"), self.get("key")) else {
            return Err("name the controller and the key: ?controller=web&key=default/web\n");
        };
        let key = key
            .parse()
            .map_err(|_| "invalid key: expected namespace/name or name\n")?;
        Ok((controller.to_owned(), key))
    }
}

/// Decodes a part of a query. Invalid escapes are left unchanged.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(*high).zip(digit(*low));
                value.and_then(|(high, low)| Some((u8::try_from(high * 16 + low).ok()?, after)))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((if *first == b'+' { b' ' } else { *first }, tail));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether a request has a `Host` header that names this machine.
fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    authority.is_some_and(|authority| {
        let name = authority.host();
        let mut local = ["localhost", "127.0.0.1", "[::1]"].iter();
        local.any(|local| name.eq_ignore_ascii_case(local))
    })
}

/// Compares without stopping at the first difference, so that timing reveals nothing.
fn is_same(presented: &[u8], token: &[u8]) -> bool {
    let differences = presented
        .iter()
        .zip(token)
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    presented.len() == token.len() && differences == 0
}

fn json(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => response(StatusCode::OK, JSON, bytes),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    response(status, PLAIN, text)
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    with_headers(status, content_type, Full::new(body.into()).boxed_unsync())
}

fn with_headers(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;
