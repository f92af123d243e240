//! The accept loop of a listener, and authentication of its requests.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderMap, Request};
use hyper::upgrade::OnUpgrade;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use super::{
    InFlight, ServeOptions,
    bodies::Timed,
    connections::{Connections, Seat},
    token::{Token, bearer},
};
use crate::{
    api::{ANONYMOUS, ApiError, ISSUER, Upgrade, User, refusal, wants_pretty},
    tower_service::ApiService,
};

/// How long to wait after `accept` fails.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A request extension: cancelled when the listener closes, which ends its watches.
#[derive(Debug, Clone)]
pub(crate) struct Closing(pub(crate) CancellationToken);

/// A request extension: the local address of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAddr(pub(crate) SocketAddr);

/// State shared by all connections of a listener.
pub(super) struct Listener {
    pub(super) acceptor: TlsAcceptor,
    pub(super) service: ApiService,
    pub(super) token: Token,
    pub(super) closing: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) connections: Connections,
    pub(super) options: ServeOptions,
}

impl Listener {
    /// Accepts connections until the listener closes.
    pub(super) async fn run(self: Arc<Self>, socket: TcpListener) {
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
            // Dropping the stream resets the connection, so the client fails fast.
            if let Some(ticket) = self.connections.admit() {
                full = false;
                let connection = Arc::clone(&self).connection(stream, ticket);
                self.tasks.spawn(connection);
            } else if !std::mem::replace(&mut full, true) {
                tracing::warn!(
                    max = self.options.max_connections,
                    "all connections are busy; resetting new ones"
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

    /// Authenticates a request by client certificate or token, and serves it. A rejected request is
    /// not in flight, so its connection can still be evicted.
    pub(super) async fn respond(
        &self,
        mut request: Request<Timed>,
        client: Option<User>,
        at: Option<LocalAddr>,
        seat: &Seat,
    ) -> Result<(http::Response<crate::Body>, Option<InFlight>), Infallible> {
        // Other schemes are not supported and do not count as credentials.
        let credentials = bearer(request.headers()).is_some();
        let user = client.or_else(|| self.bearer(request.headers()));
        let user = match user {
            Some(user) => Ok(user),
            None if !credentials && self.service.api().allows_anonymous() => {
                // An anonymous connection can still be evicted, even during a request.
                let extensions = request.extensions_mut();
                extensions.insert(User::new(ANONYMOUS));
                extensions.insert(Closing(self.closing.clone()));
                let response = self.service.clone().call(request).await?;
                return Ok((response, None));
            }
            None => Err(ApiError::unauthorized()),
        };
        match user {
            Ok(user) => {
                seat.authenticated();
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
                let response = self.service.clone().call(request).await?;
                Ok((response, Some(in_flight)))
            }
            Err(error) => {
                let pretty = wants_pretty(request.uri(), request.headers());
                Ok((refusal(&error, pretty), None))
            }
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
