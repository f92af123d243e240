//! The server and its builder.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{Chain, Hook},
    api::{
        Accounts, Api, Components, ControllerRegistration, Controllers, Expiry, History,
        PodLogLine, PodLogRequest, PodLogs, PodLogsRegistration, Registered, SharedLedger, User,
        Version2,
    },
    audit::{AuditEvent, Auditor},
    authz::{Authorization, impersonation::LastModes, rbac::Rbac},
    points::{Pointed, Points},
    registry::Registry,
    store::Store,
    tower_service::ApiService,
    webhook::{Roots, WebhookTarget},
};
use pintle_clock::{Clock, Rng};

/// The Kubernetes version that the server implements.
pub(crate) const KUBERNETES: (&str, &str) = ("1", "36");

/// The default number of events retained per resource.
const HISTORY: usize = 8192;

/// The default size of the history of all resources, in bytes.
const HISTORY_BYTES: usize = 128 * 1024 * 1024;

/// What happens to a scheduled Pod that is deleted with a grace period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodDeletion {
    /// Removes the Pod immediately, regardless of its grace period. Useful in controller tests.
    #[default]
    AtOnce,
    /// Removes the Pod when its grace period ends.
    AfterGrace,
    /// Keeps the Pod until it is deleted with a grace period of 0. Use this with a kubelet.
    Leave,
}

/// A Kubernetes API server in this process.
///
/// It starts in milliseconds, stores everything in memory, and does not listen until
/// [`serve`](ApiServer::serve) is called. Clones are handles to the same server; its state is
/// dropped with the last handle and client.
///
/// # Examples
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

/// Configures a server; see [`ApiServer::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    clock: Clock,
    seed: Option<u64>,
    history: usize,
    history_bytes: usize,
    pod_deletion: PodDeletion,
    authorization: Authorization,
    beyond_loopback: bool,
    points: Pointed,
    auditor: Auditor,
    pub(crate) webhooks: Vec<(bool, Hook)>,
    pub(crate) routes: Vec<(String, WebhookTarget)>,
    webhook_roots: Option<Roots>,
    copied: Option<Arc<Api>>,
}

impl ApiServer {
    /// Returns a builder with default settings.
    pub fn builder() -> Builder {
        Builder {
            clock: Clock::system(),
            seed: None,
            history: HISTORY,
            history_bytes: HISTORY_BYTES,
            pod_deletion: PodDeletion::default(),
            authorization: Authorization::default(),
            beyond_loopback: false,
            points: Pointed::default(),
            auditor: Auditor::default(),
            webhooks: Vec::new(),
            routes: Vec::new(),
            webhook_roots: None,
            copied: None,
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
    /// For kinds that the server only stores, writes carry a `Warning` header that says the object
    /// has no effect, unless a controller is registered.
    ///
    /// # Examples
    ///
    /// ```
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let registration = server.register_controller("apps", "statefulsets");
    /// // … run the controller …
    /// drop(registration);
    /// ```
    pub fn register_controller(&self, group: &str, plural: &str) -> ControllerRegistration {
        self.api.controllers.register(group, plural)
    }

    /// Registers the source of what `kubectl logs` shows, until the returned guard is dropped.
    ///
    /// The server checks the request and the state of the container, and selects from the lines
    /// that the function returns. Requests for logs fail with 501 if there is no source; requests
    /// to follow a log always do.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle_apiserver::{ApiServer, PodLogLine};
    ///
    /// let server = ApiServer::builder().build();
    /// let registration = server.register_pod_logs(|request| {
    ///     let text = format!("{} started", request.container);
    ///     vec![PodLogLine { at: request.started, text }]
    /// });
    /// drop(registration);
    /// ```
    pub fn register_pod_logs(
        &self,
        source: impl Fn(PodLogRequest<'_>) -> Vec<PodLogLine> + Send + Sync + 'static,
    ) -> PodLogsRegistration {
        self.api.pod_logs.register(source)
    }

    /// Returns the newest `resourceVersion`.
    pub fn resource_version(&self) -> String {
        self.api.store.revision().to_string()
    }

    /// Reports the health of a control plane component, as `kubectl get componentstatuses` shows
    /// it.
    ///
    /// `scheduler` and `controller-manager` are always listed, and count as unhealthy until they
    /// are reported. Other names are added to the list.
    ///
    /// # Examples
    ///
    /// ```
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// server.report_component("scheduler", Ok(()));
    /// server.report_component("controller-manager", Err("loop \"deployment\" failed".to_owned()));
    /// ```
    pub fn report_component(&self, name: &str, health: Result<(), String>) {
        self.api.components.report(name, health);
    }

    /// Drops the history, as an etcd compaction does: watches that are behind, and continue tokens
    /// of older lists, expire with 410.
    pub fn compact(&self) {
        self.api.store.compact(self.api.store.revision());
    }
}

impl Builder {
    /// Sets the source of timestamps.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Seeds UIDs, generated names and jitter, so that a run can be replayed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets how many events each resource retains for watches and paged lists. Default: 8192.
    pub fn history(mut self, events: usize) -> Self {
        self.history = events;
        self
    }

    /// Sets the size limit of the history of all resources, in bytes. Default: 128 MiB.
    ///
    /// An event counts as the object before and after it. Over the limit, the oldest events are
    /// dropped, whichever resource they belong to. A watch that has not read a dropped event ends
    /// with an `ERROR` event with status 410 `Expired`, and its client has to list again, as after
    /// an etcd compaction. Continue tokens of older states expire as well.
    pub fn history_bytes(mut self, bytes: usize) -> Self {
        self.history_bytes = bytes;
        self
    }

    /// Sets what happens to scheduled Pods that are deleted.
    pub fn pod_deletion(mut self, pod_deletion: PodDeletion) -> Self {
        self.pod_deletion = pod_deletion;
        self
    }

    /// Sets how requests are authorized. Default: [`Authorization::Rbac`].
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Sets the certificates, in PEM, that are trusted for webhooks without a `caBundle`. Default:
    /// the certificates of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let pem = "-----BEGIN CERTIFICATE-----";
    /// let server = pintle_apiserver::ApiServer::builder().webhook_roots(pem).build();
    /// ```
    pub fn webhook_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.webhook_roots = Some(Roots::new(pem.into()));
        self
    }

    /// Installs hooks that run around the writes of requests and may delay responses. For tests of
    /// concurrent writes and lost responses.
    pub fn points(mut self, points: impl Points) -> Self {
        self.points = Pointed::new(points);
        self
    }

    /// Calls `observe` for each request, once its response is ready or its client disconnects.
    /// Requests that a listener rejects with 401 are left out.
    ///
    /// The event shows the annotations that webhooks and admission plugins add for the audit log.
    /// The observer runs in the task of the request, so it should return quickly.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let (sender, events) = mpsc::sync_channel(1024);
    /// let server = pintle_apiserver::ApiServer::builder()
    ///     .audit(move |event| {
    ///         let _ = sender.try_send(event);
    ///     })
    ///     .build();
    /// // … make requests, then look at `events.try_iter()` …
    /// # drop((server, events));
    /// ```
    pub fn audit(mut self, observe: impl Fn(AuditEvent) + Send + Sync + 'static) -> Self {
        self.auditor = Auditor::new(observe);
        self
    }

    /// Allows [`ApiServer::serve`] to bind addresses that other machines can reach.
    ///
    /// Anyone who has the token is then an administrator.
    pub fn listen_beyond_loopback(mut self) -> Self {
        self.beyond_loopback = true;
        self
    }

    /// Starts with the objects of another server, in microseconds: they are shared until they
    /// change. A test suite can install its CRDs once and give each test a copy.
    ///
    /// The history, open watches, in-process webhooks, registered controllers and the keys of
    /// service account tokens are not copied.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle_apiserver::ApiServer;
    ///
    /// let prepared = ApiServer::builder().build();
    /// // … install CRDs …
    /// let server = ApiServer::builder().copy_of(&prepared).build();
    /// assert_eq!(server.resource_version(), prepared.resource_version());
    /// ```
    pub fn copy_of(mut self, server: &ApiServer) -> Self {
        self.copied = Some(Arc::clone(&server.api));
        self
    }

    /// Builds the server. Does not need a tokio runtime.
    pub fn build(self) -> ApiServer {
        let (store, registry) = if let Some(copied) = &self.copied {
            let store = copied.store.fork(self.history, self.history_bytes);
            let registry = copied.registry.fork(&store);
            (store, registry)
        } else {
            let store = Store::new(self.history, self.history_bytes);
            let registry = Registry::new(&store);
            (store, registry)
        };
        let rbac = Arc::new(Rbac::new(&store, &registry));
        let rng = self.seed.map_or_else(Rng::from_entropy, Rng::with_seed);
        let mut api = Api {
            store,
            registry,
            clock: self.clock,
            rng,
            pod_deletion: self.pod_deletion,
            admission: Chain::default(),
            authorizer: self.authorization.authorizer(&rbac),
            rbac,
            webhooks: Arc::default(),
            policies: crate::admission::Policies::default(),
            accounts: Accounts::default(),
            authority: OnceLock::new(),
            ledger: SharedLedger::default(),
            controllers: Controllers::default(),
            auditor: self.auditor,
            points: Pointed::default(),
            expiry: Expiry::default(),
            history: History::default(),
            listeners: Mutex::default(),
            registered: Registered::default(),
            components: Components::default(),
            pod_logs: PodLogs::default(),
            impersonated: LastModes::default(),
            openapi: Version2::default(),
            closing: CancellationToken::new(),
        };
        match &self.copied {
            Some(copied) => {
                api.registered = copied.registered.clone();
                api.adopt_stored();
            }
            None => api.bootstrap(),
        }
        // Bootstrap objects are not client requests, so install the hooks afterwards.
        api.points = self.points;
        for (mutating, hook) in self.webhooks {
            api.webhooks.hooks(mutating).add_local(hook);
        }
        if let Some(roots) = self.webhook_roots {
            api.webhooks.client.set_system_roots(roots);
        }
        for (service, target) in self.routes {
            api.webhooks.client.route(service, target);
        }
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
