//! The server as a value: built in milliseconds, listening nowhere.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        Accounts, Api, Components, ControllerRegistration, Controllers, Expiry, Ledgered, Past,
        Registered, User, Version2,
    },
    points::{Pointed, Points},
    registry::Registry,
    store::Store,
    tower_service::ApiService,
};
use pintle_clock::{Clock, Rng};

/// The Kubernetes version whose behaviour the server has.
pub(crate) const KUBERNETES: (&str, &str) = ("1", "36");

/// How many events each resource remembers unless told otherwise.
const HISTORY: usize = 8192;

/// The default limit of the history of all resources, in bytes.
const HISTORY_BYTES: usize = 128 * 1024 * 1024;

/// What happens to a scheduled pod that is deleted with a grace period, as long as no kubelet ends
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodDeletion {
    /// It is gone at once, whatever its grace: right for tests of controllers.
    #[default]
    AtOnce,
    /// It is gone when its grace is over.
    AfterGrace,
    /// It stays, marked, until somebody deletes it with a grace of 0: right with a kubelet.
    Leave,
}

/// A Kubernetes API server in this process.
///
/// It starts in milliseconds, keeps everything in memory and listens nowhere until told to. Cloning
/// gives another handle on the same server; when the last handle and the last client are dropped,
/// its state is gone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use pintle_apiserver::ApiServer;
/// use tower::ServiceExt;
///
/// let server = ApiServer::builder().build();
/// let request = http::Request::get("/api/v1/namespaces/default").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
/// let response = server.service().oneshot(request).await.unwrap();
/// assert_eq!(response.status(), 200);
/// # }
/// ```
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) api: Arc<Api>,
    pub(crate) beyond_loopback: bool,
}

/// How a server is to be; see [`ApiServer::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    clock: Clock,
    seed: Option<u64>,
    history: usize,
    history_bytes: usize,
    pod_deletion: PodDeletion,
    beyond_loopback: bool,
    points: Pointed,
}

impl ApiServer {
    /// A server with everything at its default.
    pub fn builder() -> Builder {
        Builder {
            clock: Clock::system(),
            seed: None,
            history: HISTORY,
            history_bytes: HISTORY_BYTES,
            pod_deletion: PodDeletion::default(),
            beyond_loopback: false,
            points: Pointed::default(),
        }
    }

    /// Returns the server as a tower service that acts as [`User::admin`], without sockets.
    ///
    /// `Impersonate-User` and the related headers work as they do over TLS.
    pub fn service(&self) -> ApiService {
        self.service_as(User::admin())
    }

    /// Returns the server as a tower service that acts as `user`.
    pub fn service_as(&self, user: impl Into<User>) -> ApiService {
        ApiService::new(Arc::clone(&self.api), user.into())
    }

    /// Registers a controller for a built-in kind until the returned guard is dropped.
    ///
    /// Without one, the response to a write of a kind that the server only stores carries a `Warning`
    /// header that says the object has no effect.
    ///
    /// ```
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let acting = server.register_controller("apps", "statefulsets");
    /// // … run the controller …
    /// drop(acting);
    /// ```
    pub fn register_controller(&self, group: &str, plural: &str) -> ControllerRegistration {
        self.api.controllers.register(group, plural)
    }

    /// The newest resource version.
    pub fn resource_version(&self) -> String {
        self.api.store.revision().to_string()
    }

    /// Reports whether a part of the control plane runs, as `kubectl get componentstatuses` shows
    /// it: `scheduler` and `controller-manager` are expected, others may be added. A part that was
    /// never reported does not run.
    ///
    /// ```
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// server.report_component("scheduler", Ok(()));
    /// server.report_component("controller-manager", Err("loop \"deployment\" failed".to_owned()));
    /// ```
    pub fn report_component(&self, name: &str, health: Result<(), String>) {
        self.api.components.report(name, health);
    }

    /// Forgets every past state: watches that are behind and pages of older lists expire with 410,
    /// as after a compaction of etcd.
    pub fn compact(&self) {
        self.api.store.compact(self.api.store.revision());
    }
}

impl Builder {
    /// Where timestamps come from.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes uids, generated names and jitter replay from a seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many events each resource remembers for watches and pages to go on from (8192).
    pub fn history(mut self, events: usize) -> Self {
        self.history = events;
        self
    }

    /// Limits the history of all resources together, in bytes (128 MiB).
    ///
    /// An event counts as the states of the object before and after it. Over the limit, the oldest
    /// events are dropped, whichever resource they belong to. A watch that has not read a dropped
    /// event yet ends with an `ERROR` event that carries a 410 `Expired` status, and its client has to
    /// list again, as after a compaction of etcd. Continue tokens of older states expire as well.
    pub fn history_bytes(mut self, bytes: usize) -> Self {
        self.history_bytes = bytes;
        self
    }

    /// What happens to a scheduled pod that is deleted.
    pub fn pod_deletion(mut self, pod_deletion: PodDeletion) -> Self {
        self.pod_deletion = pod_deletion;
        self
    }

    /// Is told of every write of a request at named points around its commit, and may hold back
    /// answers. For tests of what happens when somebody comes between, or an answer gets lost.
    pub fn points(mut self, points: impl Points) -> Self {
        self.points = Pointed::new(points);
        self
    }

    /// Lets [`ApiServer::serve`] take addresses other machines can reach.
    ///
    /// Whoever then holds the token is the administrator, from wherever.
    pub fn listen_beyond_loopback(mut self) -> Self {
        self.beyond_loopback = true;
        self
    }

    /// Builds the server. Needs no runtime.
    pub fn build(self) -> ApiServer {
        let store = Store::new(self.history, self.history_bytes);
        let registry = Registry::new(&store);
        let rng = self.seed.map_or_else(Rng::from_entropy, Rng::with_seed);
        let mut api = Api {
            store,
            registry,
            clock: self.clock,
            rng,
            pod_deletion: self.pod_deletion,
            accounts: Accounts::default(),
            ledger: Ledgered::default(),
            controllers: Controllers::default(),
            points: Pointed::default(),
            expiry: Expiry::default(),
            past: Past::default(),
            listeners: Mutex::default(),
            registered: Registered::default(),
            components: Components::default(),
            openapi: Version2::default(),
            closing: CancellationToken::new(),
        };
        api.bootstrap();
        // What every server begins with is nobody's request.
        api.points = self.points;
        ApiServer {
            api: Arc::new(api),
            beyond_loopback: self.beyond_loopback,
        }
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("revision", &self.api.store.revision())
            .finish_non_exhaustive()
    }
}
