//! The life of one connection: handshake, protocol selection, requests, shutdown.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::Request;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::{
    LocalAddr, ServeOptions,
    bodies::{Timed, Tracked},
    client_certificate,
    connections::{Seat, Ticket},
    listener::Listener,
    socket::Socket,
    stalls::Stalls,
};

/// How long in-flight requests may take once the connection is closing.
const DRAIN: Duration = Duration::from_secs(5);
/// An upper bound for intervals, beyond which hyper's timers overflow.
const MAX_INTERVAL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Listener {
    /// Serves a connection until it ends, exceeds a limit, or the listener closes.
    pub(super) async fn connection(self: Arc<Self>, stream: TcpStream, ticket: Ticket) {
        self.configure(&stream);
        let at = stream.local_addr().ok().map(LocalAddr);
        let seat = ticket.seat();
        let socket = Socket::new(stream, ticket, self.options.write_timeout);
        let Some(stream) = self.handshake(socket, &seat).await else {
            return;
        };
        seat.established();
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let certificates = session.peer_certificates();
        let client = certificates.and_then(|chain| client_certificate::user(chain.first()?));
        let stalls = Stalls::default();
        let (listener, requests, responses) = (Arc::clone(&self), seat.clone(), stalls.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (listener, client, seat) =
                (Arc::clone(&listener), client.clone(), requests.clone());
            let stall = responses.track();
            async move {
                let request = request.map(|body| Timed::new(body, listener.options.body_timeout));
                let (response, in_flight) = listener.respond(request, client, at, &seat).await?;
                let response = response.map(|body| Tracked::new(body, stall, in_flight));
                Ok::<_, Infallible>(response)
            }
        });
        let io = TokioIo::new(stream);
        let result = if is_http2 {
            let connection = http2_builder(&self.options).serve_connection(io, service);
            self.drive(connection, &seat, &stalls).await
        } else {
            let connection = http1_builder().serve_connection(io, service);
            self.drive(connection.with_upgrades(), &seat, &stalls).await
        };
        if let Err(error) = result {
            tracing::debug!(%error, "connection failed; closing it");
        }
    }

    fn configure(&self, stream: &TcpStream) {
        // Watch events are small and should not wait for more data.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY; continuing");
        }
        let interval = self.options.ping_interval;
        let keep_alive = TcpKeepalive::new()
            .with_time(interval)
            .with_interval(interval);
        if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keep_alive) {
            tracing::debug!(%error, "failed to enable TCP keep-alive; continuing");
        }
    }

    async fn handshake(&self, socket: Socket, seat: &Seat) -> Option<TlsStream<Socket>> {
        let accepted =
            tokio::time::timeout(self.options.handshake_timeout, self.acceptor.accept(socket));
        let accepted = tokio::select! {
            biased;
            () = self.closing.cancelled() => return None,
            () = seat.evicted() => {
                tracing::debug!("evicted a connection during its TLS handshake");
                return None;
            }
            accepted = accepted => accepted,
        };
        match accepted {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed; closing the connection");
            }
            Err(_) => tracing::debug!("TLS handshake timed out; closing the connection"),
        }
        None
    }

    /// Runs the connection until it ends or has to close.
    async fn drive<C: Graceful>(
        &self,
        connection: C,
        seat: &Seat,
        stalls: &Stalls,
    ) -> hyper::Result<()> {
        let mut connection = pin!(connection);
        let closing = tokio::select! {
            // Shutdown first: a busy connection would never yield to it.
            biased;
            () = self.closing.cancelled() => true,
            () = seat.evicted() => false,
            () = seat.overdue(&self.options) => false,
            () = stalls.overdue(self.options.write_timeout) => {
                tracing::debug!("client stopped reading a response; closing the connection");
                false
            }
            result = connection.as_mut() => return result,
        };
        connection.as_mut().graceful_shutdown();
        if closing || seat.is_busy() {
            let ended = tokio::time::timeout(DRAIN, connection).await;
            return ended.unwrap_or_else(|_| {
                tracing::debug!("connection did not drain in time; closing it");
                Ok(())
            });
        }
        tracing::debug!("closing an idle connection");
        // Poll once to send GOAWAY or close; do not wait for the client to read it.
        poll_fn(|context| {
            let _ = connection.as_mut().poll(context);
            Poll::Ready(Ok(()))
        })
        .await
    }
}

/// Returns the HTTP/1.1 settings. hyper's header timeout includes the idle time before a request,
/// so we enforce our own.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    builder
}

fn http2_builder(options: &ServeOptions) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.max_streams)
        .keep_alive_interval(options.ping_interval.min(MAX_INTERVAL))
        .keep_alive_timeout(options.ping_timeout.min(MAX_INTERVAL));
    builder
}

/// A connection that supports graceful shutdown.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<S, B> Graceful for http1::UpgradeableConnection<TokioIo<TlsStream<Socket>>, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<crate::tower_service::BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<crate::tower_service::BoxError>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S, B> Graceful for http2::Connection<TokioIo<TlsStream<Socket>>, S, TokioExecutor>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<crate::tower_service::BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<crate::tower_service::BoxError>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
