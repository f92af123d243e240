//! The cluster as a value.

use std::{fmt, ops::BitOr, time::Duration};

use jiff::Timestamp;
use pintle::{
    clock::{Clock, Rng},
    events::{ApiSink, EventBroadcaster},
    informer::InformerFactory,
    metrics::Metrics,
};
use pintle_apiserver::{
    ApiServer, Bound, ControllerRegistration, PodDeletion, ServeError, ServeOptions, User,
};
use tokio::net::ToSocketAddrs;
use tokio_util::sync::CancellationToken;

use crate::{
    deployment, disruption, garbage_collector,
    manager::{Environment, Loop, Manager},
    namespace, nodes,
    pods::{self, plan::Pace},
    replica_set, service_account, volume_protection,
};

/// Which loops run.
///
/// ```
/// use pintle_cluster::Loops;
///
/// let some = Loops::REPLICA_SET | Loops::PODS | Loops::NODES;
/// assert!(some.contains(Loops::PODS));
/// assert!(!some.contains(Loops::DEPLOYMENT));
/// assert!(Loops::ALL.contains(some));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops(u16);

impl Loops {
    /// None: a bare API server.
    pub const NONE: Self = Self(0);
    /// Rolls Deployments out.
    pub const DEPLOYMENT: Self = Self(1);
    /// Keeps as many Pods as wanted.
    pub const REPLICA_SET: Self = Self(1 << 1);
    /// Binds, starts and stops Pods.
    pub const PODS: Self = Self(1 << 2);
    /// Deletes what no owner is left for.
    pub const GARBAGE_COLLECTOR: Self = Self(1 << 3);
    /// Empties deleted namespaces.
    pub const NAMESPACE: Self = Self(1 << 4);
    /// Gives namespaces their account and certificates.
    pub const SERVICE_ACCOUNT: Self = Self(1 << 5);
    /// Registers simulated nodes and renews their leases.
    pub const NODES: Self = Self(1 << 6);
    /// Lets deleted claims and volumes go once nothing uses them.
    pub const VOLUME_PROTECTION: Self = Self(1 << 7);
    /// Counts how many Pods a `PodDisruptionBudget` lets be evicted.
    pub const DISRUPTION: Self = Self(1 << 8);
    /// The whole cluster.
    pub const ALL: Self = Self((1 << 9) - 1);

    /// Whether all of `other` are among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These without `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Loops {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How a cluster is to be; see [`Cluster::builder`].
#[must_use = "a cluster is made by start"]
pub struct Builder {
    loops: Loops,
    nodes: u16,
    pace: Pace,
    time: Time,
    seed: Option<u64>,
    server: Option<ApiServer>,
    client: Option<kube::Client>,
    metrics: Metrics,
    root_ca: String,
}

/// Whose time the cluster shows.
enum Time {
    System,
    From(Timestamp),
}

impl Builder {
    /// Which loops run; all unless said otherwise.
    pub fn loops(mut self, loops: Loops) -> Self {
        self.loops = loops;
        self
    }

    /// How many simulated nodes there are; one unless said otherwise.
    pub fn nodes(mut self, nodes: u16) -> Self {
        self.nodes = nodes;
        self
    }

    /// How long a Pod takes from being bound to being Running and Ready; a second unless said
    /// otherwise.
    pub fn pod_ready_after(mut self, delay: Duration) -> Self {
        self.pace.ready_after = delay;
        self
    }

    /// How long a Pod takes to stop when it is deleted, within its grace period; no time unless
    /// said otherwise.
    pub fn pod_stop_after(mut self, delay: Duration) -> Self {
        self.pace.stop_after = delay;
        self
    }

    /// Shows a time of day that begins at `start` and runs with tokio's clock, paused or not,
    /// instead of the machine's own.
    pub fn starting_at(mut self, start: Timestamp) -> Self {
        self.time = Time::From(start);
        self
    }

    /// Makes every name, UID and jitter replay from a seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Runs the loops on a server that is there already, for one to restart them on.
    ///
    /// A server with [`Loops::PODS`] must leave deleted Pods to them: see [`PodDeletion::Leave`].
    pub fn server(mut self, server: ApiServer) -> Self {
        self.server = Some(server);
        self
    }

    /// Lets the loops talk through `client`, such as one with a layer that delays or fails
    /// requests. It must lead to the cluster's server.
    pub fn client(mut self, client: kube::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Where the loops count.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// The certificate authority that namespaces are given as `kube-root-ca.crt`.
    pub fn root_ca(mut self, pem: impl Into<String>) -> Self {
        self.root_ca = pem.into();
        self
    }

    /// Starts the cluster. Resolves when its loops know what there is, at the latest after a few
    /// seconds.
    ///
    /// Must be called within a tokio runtime. Cancel safe: dropping the future ends the loops.
    pub async fn start(self) -> Cluster {
        let clock = match self.time {
            Time::System => Clock::system(),
            Time::From(start) => Clock::starting_at(start),
        };
        let server = self.server.unwrap_or_else(|| {
            let kubelet = self.loops.contains(Loops::PODS);
            let deletion = if kubelet {
                PodDeletion::Leave
            } else {
                PodDeletion::AtOnce
            };
            let builder = ApiServer::builder()
                .clock(clock.clone())
                .pod_deletion(deletion);
            self.seed
                .into_iter()
                .fold(builder, pintle_apiserver::Builder::seed)
                .build()
        });
        let client = self.client.unwrap_or_else(|| server.client());
        let rng = self.seed.map_or_else(Rng::from_entropy, Rng::with_seed);
        let events = EventBroadcaster::builder()
            .clock(clock.clone())
            .rng(rng.clone())
            .metrics(self.metrics.clone())
            .build();
        if self.loops != Loops::NONE {
            // In core/v1, as the controller manager of Kubernetes does: there each message is an event
            // of its own, so that people read which set was scaled to what. It ends with the
            // broadcaster.
            let _ = events.start_recording_to_sink(ApiSink::new(client.clone()));
        }
        let environment = Environment {
            informers: InformerFactory::new(client.clone())
                .metrics(self.metrics.clone())
                .rng(rng),
            client,
            informing: CancellationToken::new(),
            clock,
            events,
            metrics: self.metrics,
            pace: self.pace,
            nodes: self.nodes,
            root_ca: self.root_ca,
        };
        let loops = chosen(self.loops);
        let kinds = loops.iter().flat_map(|one| one.acts_on);
        let acting = kinds.map(|(group, plural)| server.register_controller(group, plural));
        let acting = acting.collect();
        let manager = Manager::start(environment, loops);
        manager.synced().await;
        Cluster {
            _reported: Reported::new(&server, self.loops),
            server,
            manager,
            _acting: acting,
        }
    }
}

/// The loops in the order in which they start.
fn chosen(loops: Loops) -> Vec<Loop> {
    let all = [
        (Loops::NODES, Loop::new("nodes", nodes::run)),
        (
            Loops::SERVICE_ACCOUNT,
            Loop::new("service-accounts", service_account::run),
        ),
        (Loops::NAMESPACE, Loop::new("namespaces", namespace::run)),
        (
            Loops::GARBAGE_COLLECTOR,
            Loop::new("garbage-collector", garbage_collector::run),
        ),
        (
            Loops::VOLUME_PROTECTION,
            Loop::new("volume-protection", volume_protection::run),
        ),
        (
            Loops::PODS,
            Loop::new("pods", pods::run).acts_on(&[("", "pods")]),
        ),
        (
            Loops::DISRUPTION,
            Loop::new("disruption", disruption::run).acts_on(&[("policy", "poddisruptionbudgets")]),
        ),
        (
            Loops::REPLICA_SET,
            Loop::new("replica-sets", replica_set::run).acts_on(&[("apps", "replicasets")]),
        ),
        (
            Loops::DEPLOYMENT,
            Loop::new("deployments", deployment::run).acts_on(&[("apps", "deployments")]),
        ),
    ];
    all.into_iter()
        .filter(|(which, _)| loops.contains(*which))
        .map(|(_, run)| run)
        .collect()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("loops", &self.loops)
            .field("nodes", &self.nodes)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// A running cluster. See the [crate](crate).
///
/// Dropping it ends the loops at once, as a crash would; [`stop`](Self::stop) lets them finish.
#[derive(Debug)]
pub struct Cluster {
    server: ApiServer,
    manager: Manager,
    /// Registers the kinds the loops implement while they run.
    _acting: Vec<ControllerRegistration>,
    _reported: Reported,
}

/// The parts of a control plane the loops stand for, reported as healthy while they run.
#[derive(Debug)]
struct Reported {
    server: ApiServer,
    parts: Vec<&'static str>,
}

impl Reported {
    fn new(server: &ApiServer, loops: Loops) -> Self {
        let mut parts = Vec::new();
        if loops.contains(Loops::PODS) {
            parts.push("scheduler");
        }
        // Nodes bring themselves; every other loop is one of the controller manager's.
        if loops.without(Loops::PODS | Loops::NODES) != Loops::NONE {
            parts.push("controller-manager");
        }
        for part in &parts {
            server.report_component(part, Ok(()));
        }
        Self {
            server: server.clone(),
            parts,
        }
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        for part in &self.parts {
            let stopped = Err("stopped".to_owned());
            self.server.report_component(part, stopped);
        }
    }
}

impl Cluster {
    /// A whole cluster with everything at its default.
    ///
    /// Must be called within a tokio runtime. Cancel safe.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A cluster with settings.
    pub fn builder() -> Builder {
        Builder {
            loops: Loops::ALL,
            nodes: 1,
            pace: Pace {
                ready_after: Duration::from_secs(1),
                stop_after: Duration::ZERO,
            },
            time: Time::System,
            seed: None,
            server: None,
            client: None,
            metrics: Metrics::new(),
            root_ca: String::new(),
        }
    }

    /// Returns an in-process client that acts as the administrator.
    ///
    /// Must be called within a tokio runtime; the client belongs to it.
    pub fn client(&self) -> kube::Client {
        self.server.client()
    }

    /// Returns an in-process client that acts as `user`, for example `"jane"` or
    /// `"system:serviceaccount:NAMESPACE:NAME"`. Groups are derived from the name; see [`User::new`].
    ///
    /// Must be called within a tokio runtime; the client belongs to it.
    pub fn client_as(&self, user: impl Into<User>) -> kube::Client {
        self.server.client_as(user)
    }

    /// The cluster's API server: to serve it over TLS, or to look behind the curtain.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Lets others in: listens on `address` (`127.0.0.1:0` for any free port) with TLS and a token.
    ///
    /// Not under a paused clock: sockets know no virtual time. Cancel safe.
    pub async fn serve(&self, address: impl ToSocketAddrs) -> Result<Bound, ServeError> {
        self.server.serve(address).await
    }

    /// Listens as [`serve`](Self::serve) does, with other limits or more names.
    ///
    /// Cancel safe.
    pub async fn serve_with(
        &self,
        address: impl ToSocketAddrs,
        options: ServeOptions,
    ) -> Result<Bound, ServeError> {
        self.server.serve_with(address, options).await
    }

    /// Stops the loops one after the other, each at the end of what it is doing. The server and
    /// what it holds live on for as long as somebody has a client of it.
    ///
    /// Not cancel safe: loops that still run when the future is dropped end at once.
    pub async fn stop(self) {
        self.manager.stop().await;
    }
}
