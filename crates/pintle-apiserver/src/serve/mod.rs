//! The server on a socket: TLS with its own authority, one token besides those of service accounts,
//! HTTP/1.1 and HTTP/2 as ALPN chooses.
//!
//! Whoever reaches the port can open connections, so everything a connection can hold before it
//! presents credentials is bounded in number and in time: see [`ServeOptions`].

mod bodies;
mod connection;
mod connections;
mod kubeconfig;
mod merge;
mod names;
mod options;
mod socket;
mod stalls;
mod subject;
mod tls;
mod token;

use std::{convert::Infallible, fmt, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http::{HeaderMap, Request};
use hyper::upgrade::OnUpgrade;
use tokio::net::{TcpListener, ToSocketAddrs, lookup_host};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use self::{
    bodies::Timed,
    connections::{Connections, Seat},
    tls::Identity,
    token::{Token, bearer},
};
use crate::{
    ApiServer,
    api::{Announced, ApiError, ISSUER, Upgrade, User},
    tower_service::ApiService,
};

pub(crate) use self::connections::InFlight;
pub use self::{
    merge::{KubeconfigError, MergedContext},
    options::ServeOptions,
};

/// The pause after the system would not hand out another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is reachable from other machines and the server was not built for that.
    #[error(
        "{0} is not a loopback address; build the server with `listen_beyond_loopback` to allow it"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be resolved or bound.
    #[error("cannot listen")]
    Listen(#[from] io::Error),
    /// A certificate for a user without a name would be nobody's.
    #[error("a user needs a name")]
    NoUser,
    /// A kubeconfig cannot be written.
    #[error("cannot write a kubeconfig")]
    Write(#[source] io::Error),
    /// A name for the certificate is neither an IP address nor a DNS name.
    #[error("{0:?} is neither an IP address nor a DNS name")]
    InvalidName(String),
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
}

/// Marks requests of a listener with what ends their watches.
#[derive(Debug, Clone)]
pub(crate) struct Closing(pub(crate) CancellationToken);

/// The server's own address on the connection a request came by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) SocketAddr);

/// A server that listens. Dropping it closes the listener and all its connections; see
/// [`Bound::shutdown`] for the graceful way.
#[must_use]
pub struct Bound {
    /// The address in the endpoints of `kubernetes`.
    _announced: Announced,
    address: SocketAddr,
    identity: Identity,
    token: Token,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl ApiServer {
    /// Listens on `address` (`127.0.0.1:0` for any free port) with TLS.
    ///
    /// The certificate is signed by an authority made for this listener; clients must present the
    /// token of its kubeconfig, that of a service account (`kubectl create token`), or a certificate
    /// of that authority ([`Bound::user_kubeconfig`]). Only loopback addresses are taken unless the server was built with
    /// [`listen_beyond_loopback`](crate::Builder::listen_beyond_loopback).
    ///
    /// Cancel safe: nothing listens until it returns.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let bound = server.serve("127.0.0.1:0").await?;
    /// bound.write_kubeconfig("kubeconfig")?;
    /// // kubectl --kubeconfig kubeconfig get namespaces
    /// bound.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve(&self, address: impl ToSocketAddrs) -> Result<Bound, ServeError> {
        self.serve_with(address, ServeOptions::default()).await
    }

    /// Listens as [`serve`](Self::serve) does, with other limits.
    ///
    /// Cancel safe: nothing listens until it returns.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use pintle_apiserver::{ApiServer, ServeOptions};
    ///
    /// let server = ApiServer::builder().build();
    /// let options = ServeOptions::default().max_connections(100);
    /// let bound = server.serve_with("127.0.0.1:0", options).await?;
    /// # bound.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve_with(
        &self,
        address: impl ToSocketAddrs,
        options: ServeOptions,
    ) -> Result<Bound, ServeError> {
        let addresses: Vec<SocketAddr> = lookup_host(address).await?.collect();
        if !self.beyond_loopback
            && let Some(far) = addresses.iter().find(|address| !address.ip().is_loopback())
        {
            return Err(ServeError::NotLoopback(*far));
        }
        let socket = TcpListener::bind(&addresses[..]).await?;
        let address = socket.local_addr()?;
        let identity = Identity::new(&names::all(address.ip(), &options.names)?)?;
        let token = Token::new().map_err(ServeError::Certificate)?;
        self.api.accounts.add_listener(token.shared());
        let closing = self.api.closing.child_token();
        let tasks = TaskTracker::new();
        let listener = Listener {
            acceptor: TlsAcceptor::from(identity.server_config()?),
            service: ApiService::unidentified(Arc::clone(&self.api)),
            token: token.clone(),
            closing: closing.clone(),
            tasks: tasks.clone(),
            connections: Connections::new(&options),
            options,
        };
        tasks.spawn(Arc::new(listener).run(socket));
        Ok(Bound {
            _announced: Announced::new(&self.api, address),
            address,
            identity,
            token,
            closing,
            tasks,
        })
    }
}

impl Bound {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL for clients on this machine. It names loopback if the server listens on all
    /// addresses.
    pub fn url(&self) -> String {
        format!("https://{}", names::dialable(self.address))
    }

    /// The certificate authority that clients check the server against. Not a secret.
    pub fn authority_pem(&self) -> &str {
        &self.identity.authority_pem
    }

    /// The kubeconfig of an administrator: URL, authority and token.
    ///
    /// It holds a secret: do not log it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::text(
            &self.url(),
            &self.identity.authority_pem,
            self.token.reveal(),
        )
    }

    /// A kubeconfig for another user: a certificate of this listener's authority, good as long as
    /// it listens, names the user and their group. It holds the key: keep it like a password.
    ///
    /// Everybody may do everything but ask as somebody else, which takes the group
    /// `system:masters`; who asked is told by a `SelfSubjectReview`. An empty name is refused.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<String, ServeError> {
        if user.is_empty() {
            return Err(ServeError::NoUser);
        }
        let (certificate, key) = self.identity.issue(user, group)?;
        let authority = &self.identity.authority_pem;
        Ok(kubeconfig::user_text(
            &self.url(),
            authority,
            user,
            &certificate,
            &key,
        ))
    }

    /// Writes the kubeconfig to `path`, readable by its owner alone. An existing file is replaced.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> io::Result<()> {
        kubeconfig::write(path.as_ref(), &self.kubeconfig())
    }

    /// Writes the kubeconfig of a user ([`Bound::user_kubeconfig`]) to `path`, readable by its
    /// owner alone. An existing file is replaced.
    pub fn write_user_kubeconfig(
        &self,
        path: impl AsRef<Path>,
        user: &str,
        group: Option<&str>,
    ) -> Result<(), ServeError> {
        let text = self.user_kubeconfig(user, group)?;
        kubeconfig::write(path.as_ref(), &text).map_err(ServeError::Write)
    }

    /// Stops listening, ends all watches, lets other requests finish for a few seconds, and closes
    /// all connections. Clients in process are not concerned.
    ///
    /// Cancel safe: the shutdown goes on, only nobody waits for it.
    pub async fn shutdown(self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// What every connection shares.
struct Listener {
    acceptor: TlsAcceptor,
    service: ApiService,
    token: Token,
    closing: CancellationToken,
    tasks: TaskTracker,
    connections: Connections,
    options: ServeOptions,
}

impl Listener {
    /// Accepts connections until the listener closes.
    async fn run(self: Arc<Self>, socket: TcpListener) {
        let mut full = false;
        loop {
            let accepted = tokio::select! {
                // A server that is closing accepts nothing.
                biased;
                () = self.closing.cancelled() => return,
                accepted = socket.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.not_accepted(&error).await;
                    continue;
                }
            };
            // Dropping the stream resets the connection: its client knows at once.
            if let Some(ticket) = self.connections.admit() {
                full = false;
                let connection = Arc::clone(&self).connection(stream, ticket);
                self.tasks.spawn(connection);
            } else if !std::mem::replace(&mut full, true) {
                tracing::warn!(
                    max = self.options.max_connections,
                    "closing new connections: too many are serving requests"
                );
            }
        }
    }

    async fn not_accepted(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(
            error.kind(),
            ConnectionAborted | ConnectionRefused | ConnectionReset
        ) {
            // The client went before it was accepted.
            return;
        }
        tracing::warn!(%error, retry_in = ?ACCEPT_PAUSE, "cannot accept a connection; retrying");
        if is_out_of_files(error) {
            self.connections.make_room();
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Whose token these headers carry: the administrator's, or that of a service account.
    fn bearer(&self, headers: &HeaderMap) -> Option<User> {
        let token = bearer(headers)?;
        if self.token.is(token) {
            return Some(User::admin());
        }
        let api = self.service.api();
        let session = api.account_session(token, &[ISSUER.to_owned()]);
        session.map(|session| session.user).ok()
    }

    /// Answers a request, if its connection's certificate or its token says whose it is. One that is
    /// refused is not in flight, so its connection can still be closed to make room.
    async fn answer(
        &self,
        mut request: Request<Timed>,
        client: Option<User>,
        at: Option<At>,
        seat: &Seat,
    ) -> Result<(http::Response<crate::Body>, Option<InFlight>), Infallible> {
        let user = client
            .or_else(|| self.bearer(request.headers()))
            .ok_or_else(ApiError::unauthorized);
        match user {
            Ok(user) => {
                seat.known();
                let in_flight = seat.begin();
                let extensions = request.extensions_mut();
                extensions.insert(user);
                extensions.insert(Closing(self.closing.clone()));
                if let Some(connection) = extensions.remove::<OnUpgrade>() {
                    extensions.insert(Upgrade {
                        connection,
                        tasks: self.tasks.clone(),
                        in_flight: in_flight.clone(),
                    });
                }
                if let Some(at) = at {
                    extensions.insert(at);
                }
                let answer = self.service.clone().call(request).await?;
                Ok((answer, Some(in_flight)))
            }
            Err(error) => Ok((crate::api::refusal(&error), None)),
        }
    }
}

/// Whether this process or the machine has no file descriptor left.
fn is_out_of_files(error: &io::Error) -> bool {
    // EMFILE and ENFILE, or WSAEMFILE: the standard library has no kind for them.
    let codes: &[i32] = if cfg!(windows) { &[10_024] } else { &[23, 24] };
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}
