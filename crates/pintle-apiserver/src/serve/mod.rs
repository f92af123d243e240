//! Serving over TLS: a certificate authority per listener, one admin token besides those of service
//! accounts, and HTTP/1.1 or HTTP/2 by ALPN.
//!
//! Anyone who can reach the port can open connections, so everything a connection may hold before it
//! authenticates is limited in number and time; see [`ServeOptions`].

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

/// The delay after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server could not start to listen, or could not issue credentials.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines can reach the address, and the server was not built to allow that.
    #[error(
        "{0} is not a loopback address; build the server with `listen_beyond_loopback` to allow it"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be resolved or bound.
    #[error("cannot listen")]
    Listen(#[from] io::Error),
    /// A client certificate needs a user name.
    #[error("user name must not be empty")]
    NoUser,
    /// The kubeconfig could not be written.
    #[error("cannot write a kubeconfig")]
    Write(#[source] io::Error),
    /// A certificate name is neither an IP address nor a DNS name.
    #[error("{0:?} is neither an IP address nor a DNS name")]
    InvalidName(String),
    /// A certificate or token could not be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(String),
}

/// A request extension: cancelled when the listener closes, which ends its watches.
#[derive(Debug, Clone)]
pub(crate) struct Closing(pub(crate) CancellationToken);

/// A request extension: the local address of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAddr(pub(crate) SocketAddr);

/// A listening server.
///
/// Dropping it closes the listener and all its connections at once; [`Bound::shutdown`] closes them
/// gracefully.
#[must_use]
pub struct Bound {
    /// Keeps the address in the endpoints of the `kubernetes` Service.
    _announced: Announced,
    address: SocketAddr,
    identity: Identity,
    token: Token,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl ApiServer {
    /// Starts listening on `address` with TLS. Use `127.0.0.1:0` for any free port.
    ///
    /// The certificate is signed by a certificate authority created for this listener. Clients
    /// authenticate with the token of its kubeconfig, a service account token (`kubectl create token`),
    /// or a client certificate of that authority ([`Bound::user_kubeconfig`]).
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound. Addresses that other machines can reach are rejected
    /// unless the server was built with
    /// [`listen_beyond_loopback`](crate::Builder::listen_beyond_loopback).
    ///
    /// # Cancel safety
    ///
    /// Nothing listens until this method returns, so it can be cancelled at any time.
    ///
    /// # Examples
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

    /// Starts listening like [`serve`](Self::serve), with custom options.
    ///
    /// # Errors
    ///
    /// As for [`serve`](Self::serve). Also fails if [`ServeOptions::name`] was given an invalid name.
    ///
    /// # Cancel safety
    ///
    /// Nothing listens until this method returns, so it can be cancelled at any time.
    ///
    /// # Examples
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
    /// Returns the address the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL for clients on this machine. The host is a loopback address if the
    /// server listens on all addresses.
    pub fn url(&self) -> String {
        format!("https://{}", names::dialable(self.address))
    }

    /// Returns the certificate of the authority that signed the server's certificate, in PEM.
    pub fn authority_pem(&self) -> &str {
        &self.identity.authority_pem
    }

    /// Returns a kubeconfig for the administrator.
    ///
    /// It contains the bearer token; do not log it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::text(
            &self.url(),
            &self.identity.authority_pem,
            self.token.reveal(),
        )
    }

    /// Returns a kubeconfig for another user, with a client certificate that names the user and an
    /// optional group. The certificate is valid as long as the server listens.
    ///
    /// The kubeconfig contains the private key; treat it like a password. There is no authorization:
    /// every user may do everything except impersonate, which requires the group `system:masters`.
    ///
    /// # Errors
    ///
    /// Fails if `user` is empty.
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

    /// Writes the admin kubeconfig to `path` with mode 0600, replacing an existing file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> io::Result<()> {
        kubeconfig::write(path.as_ref(), &self.kubeconfig())
    }

    /// Writes the kubeconfig of a user ([`Bound::user_kubeconfig`]) to `path` with mode 0600,
    /// replacing an existing file.
    ///
    /// # Errors
    ///
    /// Fails if `user` is empty or the file cannot be written.
    pub fn write_user_kubeconfig(
        &self,
        path: impl AsRef<Path>,
        user: &str,
        group: Option<&str>,
    ) -> Result<(), ServeError> {
        let text = self.user_kubeconfig(user, group)?;
        kubeconfig::write(path.as_ref(), &text).map_err(ServeError::Write)
    }

    /// Stops listening, ends all watches, gives other requests a few seconds to finish, and closes
    /// all connections. In-process clients are not affected.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the shutdown continues in the background.
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

/// State shared by all connections of a listener.
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
            // Dropping the stream resets the connection, so the client learns at once.
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
            // The client disconnected before it was accepted.
            return;
        }
        tracing::warn!(%error, retry_in = ?ACCEPT_PAUSE, "failed to accept a connection; retrying");
        if is_out_of_files(error) {
            self.connections.make_room();
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Returns the user of a bearer token: the administrator or a service account.
    fn bearer(&self, headers: &HeaderMap) -> Option<User> {
        let token = bearer(headers)?;
        if self.token.is(token) {
            return Some(User::admin());
        }
        let api = self.service.api();
        let session = api.account_session(token, &[ISSUER.to_owned()]);
        session.map(|session| session.user).ok()
    }

    /// Authenticates a request by client certificate or token, and answers it. A rejected request is
    /// not in flight, so its connection can still be evicted.
    async fn answer(
        &self,
        mut request: Request<Timed>,
        client: Option<User>,
        at: Option<LocalAddr>,
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

/// Returns true if the process or the system is out of file descriptors.
fn is_out_of_files(error: &io::Error) -> bool {
    // EMFILE and ENFILE, or WSAEMFILE, for which std has no `ErrorKind`.
    let codes: &[i32] = if cfg!(windows) { &[10_024] } else { &[23, 24] };
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}
