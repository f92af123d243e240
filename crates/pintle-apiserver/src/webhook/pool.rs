//! Connections to webhooks, a few of which are kept open between calls.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use super::{
    errors::{connect_error, tls_error},
    tls::Roots,
};

/// The maximum number of idle connections.
const MAX_IDLE: usize = 32;

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(60);

/// Identifies connections that a call can reuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) address: Address,
    pub(super) server_name: String,
    pub(super) bundle: Arc<Vec<u8>>,
}

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Socket(SocketAddr),
    Host(String, u16),
}

#[derive(Debug)]
struct Idle {
    key: Key,
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

/// Idle connections, most recently used last.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    key: Key,
    sender: SendRequest<Full<Bytes>>,
    /// The connection served an earlier call, so the webhook may have closed it in the meantime.
    pub(super) reused: bool,
}

impl Pool {
    /// Returns an idle connection.
    pub(super) fn take(&self, key: &Key) -> Option<Connection> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        idle.retain(|idle| !idle.sender.is_closed() && now.duration_since(idle.since) < IDLE);
        let at = idle.iter().rposition(|idle| idle.key == *key)?;
        let found = idle.remove(at);
        Some(Connection {
            key: found.key,
            sender: found.sender,
            reused: true,
        })
    }

    /// Retains an idle connection for later calls.
    pub(super) fn put(&self, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() >= MAX_IDLE {
            idle.remove(0);
        }
        idle.push(Idle {
            key: connection.key,
            sender: connection.sender,
            since: Instant::now(),
        });
    }
}

impl Connection {
    /// Connects and completes the TLS handshake. The error is upstream's message.
    pub(super) async fn open(key: Key, roots: &Roots) -> Result<Self, String> {
        let (socket, shown) = match &key.address {
            Address::Socket(address) => (TcpStream::connect(address).await, address.to_string()),
            Address::Host(host, port) => (
                TcpStream::connect((host.as_str(), *port)).await,
                format!("{host}:{port}"),
            ),
        };
        let socket = socket.map_err(|error| connect_error(&shown, &error))?;
        // A small request must not wait for an acknowledgement.
        let _ = socket.set_nodelay(true);
        let connector = TlsConnector::from(roots.config()?);
        let name = ServerName::try_from(key.server_name.clone())
            .map_err(|error| format!("tls: {error}: {:?}", key.server_name))?;
        let stream = connector.connect(name, socket).await;
        let stream = stream.map_err(|error| tls_error(&key.server_name, &error))?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // Ends when the sender is dropped or the webhook closes the connection.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to a webhook failed");
            }
        });
        Ok(Self {
            key,
            sender,
            reused: false,
        })
    }

    /// Sends a request and returns the head of the response.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}
