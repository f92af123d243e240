//! Builds, runs and stops a cluster.

use std::{fmt, ops::BitOr, time::Duration};

use jiff::Timestamp;
use pintle::{
    clock::{Clock, Rng},
    events::EventBroadcaster,
    informer::InformerFactory,
    metrics::Metrics,
};
use pintle_apiserver::{
    ApiServer, Bound, ControllerRegistration, PodDeletion, ServeError, ServeOptions, User,
};
use tokio::net::ToSocketAddrs;
use tokio_util::sync::CancellationToken;

use crate::{
    autoscaler::{self, Load, Loads},
    cron_job, daemon_set, deployment, disruption, endpoints, garbage_collector, job,
    loops::{Environment, Loop, RunningLoops},
    namespace, nodes,
    pods::{self, Pods, plan::Pace, script::Scripts},
    policy_status, provisioner, quota, replica_set, role_aggregation, service_account,
    stateful_set, ttl_after_finished, volume_protection, volumes,
};

/// A set of control loops.
///
/// # Examples
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
pub struct Loops(u32);

impl Loops {
    /// No loops, only an API server.
    pub const NONE: Self = Self(0);
    /// Rolls out Deployments.
    pub const DEPLOYMENT: Self = Self(1);
    /// Creates and deletes the Pods of `ReplicaSet`s.
    pub const REPLICA_SET: Self = Self(1 << 1);
    /// Binds, starts and stops Pods.
    pub const PODS: Self = Self(1 << 2);
    /// Deletes objects whose owners are gone.
    pub const GARBAGE_COLLECTOR: Self = Self(1 << 3);
    /// Deletes the contents of terminating namespaces.
    pub const NAMESPACE: Self = Self(1 << 4);
    /// Creates the default service account and `kube-root-ca.crt` of each namespace.
    pub const SERVICE_ACCOUNT: Self = Self(1 << 5);
    /// Registers simulated nodes and renews their leases.
    pub const NODES: Self = Self(1 << 6);
    /// Protects persistent volumes and claims in use from deletion.
    pub const VOLUME_PROTECTION: Self = Self(1 << 7);
    /// Updates the status of `PodDisruptionBudget`s, which evictions depend on.
    pub const DISRUPTION: Self = Self(1 << 8);
    /// Counts the usage of `ResourceQuota`s, which admission depends on: a new quota limits nothing
    /// until its `status.hard` is set.
    pub const QUOTA: Self = Self(1 << 9);
    /// Collects the rules of aggregated `ClusterRole`s, such as `view`.
    pub const ROLE_AGGREGATION: Self = Self(1 << 10);
    /// Type-checks `ValidatingAdmissionPolicy` objects.
    pub const POLICY_STATUS: Self = Self(1 << 11);
    /// Creates, updates and deletes the Pods and claims of `StatefulSet`s.
    pub const STATEFUL_SET: Self = Self(1 << 12);
    /// Runs Jobs.
    pub const JOB: Self = Self(1 << 13);
    /// Deletes finished Jobs whose `ttlSecondsAfterFinished` has passed.
    pub const TTL_AFTER_FINISHED: Self = Self(1 << 14);
    /// Starts the Jobs of `CronJob`s.
    pub const CRON_JOB: Self = Self(1 << 15);
    /// Runs a Pod of each `DaemonSet` on every node that its template allows.
    pub const DAEMON_SET: Self = Self(1 << 16);
    /// Writes the `EndpointSlice`s and Endpoints of Services, and mirrors Endpoints that users write.
    pub const ENDPOINTS: Self = Self(1 << 17);
    /// Binds `PersistentVolumeClaim`s to volumes.
    pub const VOLUMES: Self = Self(1 << 18);
    /// Creates volumes for claims of any storage class, deletes released ones, and adds the default
    /// class `standard`.
    pub const PROVISIONER: Self = Self(1 << 19);
    /// Creates and deletes the Pods of `ReplicationController`s.
    pub const REPLICATION_CONTROLLER: Self = Self(1 << 20);
    /// Scales the targets of `HorizontalPodAutoscaler`s; see [`Cluster::load`].
    pub const AUTOSCALER: Self = Self(1 << 21);
    /// All loops.
    pub const ALL: Self = Self((1 << 22) - 1);

    /// Returns whether all loops of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this set without the loops of `other`.
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

/// Configures a cluster; see [`Cluster::builder`].
#[must_use = "call start to start the cluster"]
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

/// The source of wall-clock time.
enum Time {
    /// The system clock, or tokio's if that is paused.
    Default,
    From(Timestamp),
    Of(Clock),
}

impl Time {
    fn clock(&self) -> Clock {
        match self {
            Self::Default => Clock::system_or_paused(),
            Self::From(start) => Clock::starting_at(*start),
            Self::Of(clock) => clock.clone(),
        }
    }
}

impl Builder {
    /// Sets the loops to run. Default: [`Loops::ALL`].
    pub fn loops(mut self, loops: Loops) -> Self {
        self.loops = loops;
        self
    }

    /// Sets the number of simulated nodes. Default: 1.
    pub fn nodes(mut self, nodes: u16) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the time from the binding of a Pod until it is Running and Ready. Default: 1 s.
    ///
    /// Containers that exit, such as those of Jobs, by default do so after this time.
    pub fn pod_ready_after(mut self, delay: Duration) -> Self {
        self.pace.ready_after = delay;
        self
    }

    /// Sets the time a deleted Pod takes to stop, limited by its grace period. Default: 0 s.
    pub fn pod_stop_after(mut self, delay: Duration) -> Self {
        self.pace.stop_after = delay;
        self
    }

    /// Uses a wall clock that starts at `start` and advances with tokio's clock, paused or not.
    ///
    /// Default: the system clock or, if tokio's clock is paused when the cluster starts, one that
    /// starts at the system time and advances with tokio's. Set it for timestamps that are the same
    /// in every run.
    pub fn starting_at(mut self, start: Timestamp) -> Self {
        self.time = Time::From(start);
        self
    }

    /// Takes the time from an existing clock, such as that of a trial.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.time = Time::Of(clock);
        self
    }

    /// Derives all generated names, UIDs and jitter from `seed`, so that runs are reproducible.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Runs the loops on an existing server, for example to restart them.
    ///
    /// With [`Loops::PODS`], the server must leave the deletion of Pods to the loop: see
    /// [`PodDeletion::Leave`].
    pub fn server(mut self, server: ApiServer) -> Self {
        self.server = Some(server);
        self
    }

    /// Sets the client of the loops, for example one with a layer that delays or fails requests.
    /// It must send its requests to the server of this cluster.
    pub fn client(mut self, client: kube::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the metrics registry of the loops.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Sets the CA certificate that is published in every namespace as `kube-root-ca.crt`.
    pub fn root_ca(mut self, pem: impl Into<String>) -> Self {
        self.root_ca = pem.into();
        self
    }

    /// Starts the cluster and waits up to 5 s for its informers to sync and for its nodes to be
    /// registered.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future aborts the loops.
    pub async fn start(self) -> Cluster {
        let clock = self.time.clock();
        let server = self.server.clone().unwrap_or_else(|| {
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
        let client = self.client.clone().unwrap_or_else(|| server.client());
        let (scripts, which) = (Scripts::new(), self.loops);
        let loads = Loads::default();
        let loops = select(which);
        let kinds = loops.iter().flat_map(|it| it.acts_on);
        let acting = kinds.map(|(group, plural)| server.register_controller(group, plural));
        let acting = acting.collect();
        let environment = self.environment(client, clock, &scripts, &loads);
        let loops = RunningLoops::start(environment, loops).await;
        Cluster {
            _components: Components::new(&server, which),
            server,
            loops,
            scripts,
            loads,
            _acting: acting,
        }
    }

    /// Runs the loops on another API server until `shutdown` is cancelled: on a kube-apiserver
    /// without a controller manager, or on the server of a trial. Starts no server.
    ///
    /// [`server`](Self::server) and [`client`](Self::client) have no effect here.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kube::Client) {
    /// use pintle_cluster::{Cluster, Loops};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// let loops = Loops::JOB | Loops::CRON_JOB;
    /// Cluster::builder().loops(loops).run_on(client, &CancellationToken::new()).await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future aborts the loops, like a crash.
    pub async fn run_on(self, client: kube::Client, shutdown: &CancellationToken) {
        let (clock, loops) = (self.time.clock(), select(self.loops));
        let environment = self.environment(client, clock, &Scripts::new(), &Loads::default());
        let running = RunningLoops::start(environment, loops).await;
        shutdown.cancelled().await;
        running.stop().await;
    }

    /// Returns what the loops share.
    fn environment(
        self,
        client: kube::Client,
        clock: Clock,
        scripts: &Scripts,
        loads: &Loads,
    ) -> Environment {
        let rng = self.seed.map_or_else(Rng::from_entropy, Rng::with_seed);
        let events = EventBroadcaster::builder()
            .clock(clock.clone())
            .rng(rng.clone())
            .metrics(self.metrics.clone())
            .build();
        Environment {
            informers: InformerFactory::new(client.clone())
                .metrics(self.metrics.clone())
                .rng(rng.clone()),
            client,
            clock,
            rng,
            events,
            metrics: self.metrics,
            pace: self.pace,
            scripts: scripts.clone(),
            loads: loads.clone(),
            nodes: self.nodes,
            root_ca: self.root_ca,
        }
    }
}

/// Returns the selected loops in start order.
fn select(loops: Loops) -> Vec<Loop> {
    let all = [
        (Loops::NODES, Loop::new(nodes::LOOP, nodes::run)),
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
            Loops::QUOTA,
            Loop::new("resource-quotas", quota::run).acts_on(&[("", "resourcequotas")]),
        ),
        (
            Loops::ROLE_AGGREGATION,
            Loop::new("role-aggregation", role_aggregation::run)
                .acts_on(&[("rbac.authorization.k8s.io", "clusterroles")]),
        ),
        (
            Loops::POLICY_STATUS,
            Loop::new("policy-status", policy_status::run),
        ),
        (
            Loops::REPLICA_SET,
            Loop::new("replica-sets", replica_set::run).acts_on(&[("apps", "replicasets")]),
        ),
        (
            Loops::REPLICATION_CONTROLLER,
            Loop::new("replication-controllers", replica_set::run_controllers)
                .acts_on(&[("", "replicationcontrollers")]),
        ),
        (
            Loops::DEPLOYMENT,
            Loop::new("deployments", deployment::run).acts_on(&[("apps", "deployments")]),
        ),
        (
            Loops::STATEFUL_SET,
            Loop::new("stateful-sets", stateful_set::run).acts_on(&[("apps", "statefulsets")]),
        ),
        (
            Loops::DAEMON_SET,
            Loop::new("daemon-sets", daemon_set::run).acts_on(&[("apps", "daemonsets")]),
        ),
        (
            Loops::JOB,
            Loop::new("jobs", job::run).acts_on(&[("batch", "jobs")]),
        ),
        (
            Loops::TTL_AFTER_FINISHED,
            Loop::new("ttl-after-finished", ttl_after_finished::run),
        ),
        (
            Loops::CRON_JOB,
            Loop::new("cron-jobs", cron_job::run).acts_on(&[("batch", "cronjobs")]),
        ),
        (
            Loops::ENDPOINTS,
            Loop::new("endpoints", endpoints::run).acts_on(&[("", "services")]),
        ),
        (
            Loops::AUTOSCALER,
            Loop::new("autoscaler", autoscaler::run)
                .acts_on(&[("autoscaling", "horizontalpodautoscalers")]),
        ),
        (
            Loops::VOLUMES,
            Loop::new("volumes", volumes::run)
                .acts_on(&[("", "persistentvolumes"), ("", "persistentvolumeclaims")]),
        ),
        (
            Loops::PROVISIONER,
            Loop::new("provisioner", provisioner::run),
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

/// A running cluster; see the [crate documentation](crate).
///
/// Dropping it aborts the loops, like a crash. [`stop`](Self::stop) shuts them down gracefully.
#[derive(Debug)]
pub struct Cluster {
    server: ApiServer,
    loops: RunningLoops,
    scripts: Scripts,
    loads: Loads,
    /// Suppresses the "has no effect" warnings of the server for the kinds the loops implement.
    _acting: Vec<ControllerRegistration>,
    _components: Components,
}

/// Reports the control plane components that the loops replace as healthy until dropped.
#[derive(Debug)]
struct Components {
    server: ApiServer,
    names: Vec<&'static str>,
}

impl Components {
    fn new(server: &ApiServer, loops: Loops) -> Self {
        let mut names = Vec::new();
        if loops.contains(Loops::PODS) {
            names.push("scheduler");
        }
        // Nodes register themselves; all other loops belong to the controller manager.
        if loops.without(Loops::PODS | Loops::NODES) != Loops::NONE {
            names.push("controller-manager");
        }
        for name in &names {
            server.report_component(name, Ok(()));
        }
        Self {
            server: server.clone(),
            names,
        }
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        for name in &self.names {
            let stopped = Err("stopped".to_owned());
            self.server.report_component(name, stopped);
        }
    }
}

impl Cluster {
    /// Starts a cluster with default settings.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future aborts the loops.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for a cluster.
    pub fn builder() -> Builder {
        Builder {
            loops: Loops::ALL,
            nodes: 1,
            pace: Pace {
                ready_after: Duration::from_secs(1),
                stop_after: Duration::ZERO,
            },
            time: Time::Default,
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
    /// The user or service account need not exist: only the roles bound to it count.
    ///
    /// Must be called within a tokio runtime; the client belongs to it.
    pub fn client_as(&self, user: impl Into<User>) -> kube::Client {
        self.server.client_as(user)
    }

    /// Selects Pods, to script what their containers do: crash, exit, never become ready.
    ///
    /// By default, containers run until their Pod is deleted; those of Jobs exit with code 0. An
    /// annotation can say otherwise: see [`Behavior`](crate::Behavior).
    ///
    /// # Examples
    ///
    /// ```
    /// # use pintle_cluster::Cluster;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::start().await;
    /// cluster.pods().matching("app=web").crash_loop()?;
    /// cluster.pods().matching("app=migration").in_namespace("prod").exit(3)?;
    /// # cluster.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pods(&self) -> Pods {
        Pods::new(self.scripts.clone())
    }

    /// Selects Pods, to say what they use: the load that `HorizontalPodAutoscaler`s see. Without it they
    /// see no metrics.
    ///
    /// Tests in other languages annotate Pods (`pintle.dev/usage: cpu=250m memory=100Mi`) and, for
    /// object and external metrics, autoscalers (`pintle.dev/metrics: queue-length=30`).
    ///
    /// # Examples
    ///
    /// ```
    /// # use pintle_cluster::Cluster;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::start().await;
    /// cluster.load().matching("app=web").uses("cpu", "250m")?;
    /// cluster.load().in_namespace("default").value("queue-length", "30")?;
    /// # cluster.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load(&self) -> Load {
        Load::new(self.loads.clone())
    }

    /// Returns the API server, for example to run a closure as a webhook with
    /// [`ApiServer::register_webhook`].
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Serves the API on `address` (`127.0.0.1:0` for any free port) with TLS and token
    /// authentication.
    ///
    /// Do not use it under a paused clock: sockets do not follow virtual time.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn serve(&self, address: impl ToSocketAddrs) -> Result<Bound, ServeError> {
        self.server.serve(address).await
    }

    /// Like [`serve`](Self::serve), with custom limits or additional server names.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn serve_with(
        &self,
        address: impl ToSocketAddrs,
        options: ServeOptions,
    ) -> Result<Bound, ServeError> {
        self.server.serve_with(address, options).await
    }

    /// Stops the loops, letting each finish its current work. The server and its
    /// data live on while clients of it exist.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future aborts the loops that are still running.
    pub async fn stop(self) {
        self.loops.stop().await;
    }
}
