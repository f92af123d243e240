//! Serving over TLS: a certificate authority per server, one admin token in addition to service
//! account tokens, and HTTP/1.1 or HTTP/2 by ALPN.
//!
//! Anyone who can reach the port can open connections, so everything a connection may hold before
//! it authenticates is limited in number and time; see [`ServeOptions`].

mod bodies;
mod certificate_names;
mod client_certificate;
mod connection;
mod connections;
mod kubeconfig;
mod listener;
mod options;
mod socket;
mod stalls;
mod tls;
mod token;

use std::{fmt, io, net::SocketAddr, path::Path, sync::Arc};

use tokio::net::{TcpListener, ToSocketAddrs, lookup_host};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{connections::Connections, listener::Listener, tls::Identity, token::Token};
use crate::{ApiServer, api::Announced, tower_service::ApiService};

pub(crate) use self::{
    connections::InFlight,
    listener::{Closing, LocalAddr},
};
pub use self::{
    kubeconfig::{KubeconfigError, MergedContext},
    options::ServeOptions,
};

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
    #[error("cannot create a certificate or token: {0}")]
    Certificate(String),
}

/// A listening server.
///
/// Dropping it starts a graceful shutdown in the background; [`Bound::shutdown`] also waits until
/// all connections are closed.
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
    /// The certificate is signed by the [authority](Self::authority) of this server. Clients
    /// authenticate with the token of its kubeconfig, a service account token (`kubectl create
    /// token`), or a client certificate of that authority ([`Bound::user_kubeconfig`]).
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be resolved or bound, or a certificate or token cannot be
    /// created. Addresses that other machines can reach are rejected unless the server was built
    /// with [`listen_beyond_loopback`](crate::Builder::listen_beyond_loopback).
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
    /// Fails as [`serve`](Self::serve) does, or if [`ServeOptions::name`] was given an invalid
    /// name.
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
        let names = certificate_names::all(address.ip(), &options.names)?;
        let authority = self.authority();
        let authority = authority.map_err(|error| ServeError::Certificate(error.to_string()))?;
        let identity = Identity::new(&names, authority)?;
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
        format!("https://{}", certificate_names::dialable(self.address))
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
    /// optional group. The certificate is valid for every listener of this server.
    ///
    /// The kubeconfig contains the private key; treat it like a password. The user has the
    /// permissions that roles and bindings grant; the group `system:masters` may do everything.
    ///
    /// # Errors
    ///
    /// Fails if `user` is empty or the certificate cannot be created.
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
    /// Fails if `user` is empty, the certificate cannot be created, or the file cannot be written.
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
