//! Builds, runs and stops a cluster.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use pintle::{
    clock::{Clock, Rng},
    events::EventBroadcaster,
    informer::InformerFactory,
    metrics::Metrics,
};
use pintle_apiserver::{
    ApiServer, Bound, ControllerRegistration, PodDeletion, PodLogsRegistration, ServeError,
    ServeOptions, User,
};
use tokio::net::ToSocketAddrs;
use tokio_util::sync::CancellationToken;

use crate::{
    autoscaler::{Load, Loads},
    components::Components,
    loop_set::{Loops, select},
    loops::{Environment, RunningLoops},
    nodes::{NodeBehavior, NodeHandle, NodeTemplate, machines::Machines},
    pods::{Pods, plan::Pace, script::Scripts},
    script::Script,
    volumes::behavior::{ClaimScripts, Claims},
};

/// Configures a cluster; see [`Cluster::builder`].
#[must_use = "call start to start the cluster"]
pub struct Builder {
    loops: Loops,
    /// The number of plain nodes, if it is set.
    nodes: Option<u16>,
    templates: Vec<NodeTemplate>,
    script: Script,
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

    /// Sets the number of plain simulated nodes, `node-0`, `node-1` and so on. Default: 1, or 0 if
    /// there are [others](Self::node).
    pub fn nodes(mut self, nodes: u16) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Adds a simulated node with its own name, labels, taints and resources.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle_cluster::{Cluster, NodeTemplate};
    ///
    /// let zone = "topology.kubernetes.io/zone";
    /// let builder = Cluster::builder()
    ///     .node(NodeTemplate::new("east").label(zone, "east"))
    ///     .node(NodeTemplate::new("west").label(zone, "west").allocatable("cpu", "2"));
    /// ```
    pub fn node(mut self, node: NodeTemplate) -> Self {
        self.templates.push(node);
        self
    }

    /// Adds a script's nodes and its rules for Pods and claims. Later scripts take precedence.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle_cluster::{Cluster, Script};
    ///
    /// let script = Script::parse("pods: [{ selector: app=web, behavior: crash-loop }]")?;
    /// let builder = Cluster::builder().script(script);
    /// # Ok::<(), pintle_cluster::InvalidScript>(())
    /// ```
    pub fn script(mut self, script: Script) -> Self {
        self.script.nodes.extend(script.nodes);
        self.script.pods.extend(script.pods);
        self.script.claims.extend(script.claims);
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

    /// Uses an existing wall clock, such as a trial's.
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

    /// Starts the cluster and waits up to 5 s for its informers to sync, and as long for its nodes
    /// to be ready.
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
        let which = self.loops;
        let scripted = Scripted::default();
        let loops = select(which);
        let kinds = loops.iter().flat_map(|it| it.acts_on);
        let acting = kinds.map(|(group, plural)| server.register_controller(group, plural));
        let acting = acting.collect();
        let environment = self.environment(client, clock, &scripted, Some(server.clone()));
        let machines = environment.machines.clone();
        let logs = scripted.pods.clone();
        let logs = which
            .contains(Loops::PODS)
            .then(|| server.register_pod_logs(move |request| logs.logs(request)));
        let loops = RunningLoops::start(environment, loops).await;
        Cluster {
            _components: Components::new(&server, which),
            server,
            loops,
            scripted,
            machines,
            _logs: logs,
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
        let environment = self.environment(client, clock, &Scripted::default(), None);
        let running = RunningLoops::start(environment, loops).await;
        shutdown.cancelled().await;
        running.stop().await;
    }

    /// Returns the context that the loops share.
    fn environment(
        self,
        client: kube::Client,
        clock: Clock,
        scripted: &Scripted,
        server: Option<ApiServer>,
    ) -> Environment {
        let rng = self.seed.map_or_else(Rng::from_entropy, Rng::with_seed);
        let events = EventBroadcaster::builder()
            .clock(clock.clone())
            .rng(rng.clone())
            .metrics(self.metrics.clone())
            .build();
        let nodes = self.script.nodes.iter().map(|(node, _)| node.clone());
        let others = self.templates.into_iter().chain(nodes).collect();
        let machines = Machines::new(NodeTemplate::all(self.nodes, others));
        for (node, behavior) in self.script.nodes {
            if behavior != NodeBehavior::healthy() {
                machines.start_as(node.name(), behavior);
            }
        }
        for rule in self.script.pods {
            rule.apply(Pods::new(scripted.pods.clone()));
        }
        for rule in self.script.claims {
            rule.apply(Claims::new(scripted.claims.clone()));
        }
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
            scripts: scripted.pods.clone(),
            claims: scripted.claims.clone(),
            loads: scripted.loads.clone(),
            machines,
            root_ca: self.root_ca,
            binds_claims: self.loops.contains(Loops::VOLUMES),
            server,
        }
    }
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

/// What a test sets while the cluster runs. Clones share it.
#[derive(Clone, Debug, Default)]
struct Scripted {
    pods: Scripts,
    claims: ClaimScripts,
    loads: Loads,
}

/// A running cluster; see the [crate documentation](crate).
///
/// Dropping it aborts the loops, like a crash. [`stop`](Self::stop) shuts them down gracefully.
#[derive(Debug)]
pub struct Cluster {
    server: ApiServer,
    loops: RunningLoops,
    scripted: Scripted,
    machines: Machines,
    /// Serves the logs of Pods.
    _logs: Option<PodLogsRegistration>,
    /// Suppresses the "has no effect" warnings of the server for the kinds the loops implement.
    _acting: Vec<ControllerRegistration>,
    _components: Components,
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
            nodes: None,
            templates: Vec::new(),
            script: Script::default(),
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
    /// `"system:serviceaccount:NAMESPACE:NAME"`. Groups are derived from the name; see
    /// [`User::new`]. The user or service account need not exist: only the roles bound to it count.
    ///
    /// Must be called within a tokio runtime; the client belongs to it.
    pub fn client_as(&self, user: impl Into<User>) -> kube::Client {
        self.server.client_as(user)
    }

    /// Selects Pods, to script their containers: crash, exit, never become ready.
    ///
    /// By default, containers run until their Pod is deleted; those of Jobs exit with code 0. An
    /// annotation can override this: see [`Behavior`](crate::Behavior).
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
        Pods::new(self.scripted.pods.clone())
    }

    /// Selects `PersistentVolumeClaim`s, to script when they are bound: late, or never.
    ///
    /// By default a claim is bound as soon as there is a volume for it, and the class `standard`
    /// creates one. An annotation can override this: see [`ClaimBehavior`](crate::ClaimBehavior).
    ///
    /// # Examples
    ///
    /// ```
    /// # use pintle_cluster::Cluster;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::start().await;
    /// cluster.claims().matching("app=db").never_bind()?;
    /// # cluster.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn claims(&self) -> Claims {
        Claims::new(self.scripted.claims.clone())
    }

    /// Selects Pods, to set their usage: the load that `HorizontalPodAutoscaler`s see. By default
    /// they see no metrics.
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
        Load::new(self.scripted.loads.clone())
    }

    /// Controls a simulated node: lose it, fill its disk, cordon and drain it.
    ///
    /// A test in another language sets an annotation instead: see
    /// [`NodeBehavior`](crate::NodeBehavior).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Node;
    /// # use pintle_cluster::Cluster;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::builder().nodes(3).start().await;
    /// cluster.node("node-1").lose()?;
    /// tokio::time::sleep(Duration::from_secs(60)).await; // the node is unreachable now
    /// cluster.node("node-1").recover()?;
    /// cluster.node("node-2").drain().await?;
    /// # cluster.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Must be called within a tokio runtime.
    pub fn node(&self, name: impl Into<String>) -> NodeHandle {
        NodeHandle::new(self.machines.clone(), self.client(), name.into())
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
    /// Fails as [`ApiServer::serve_with`] does.
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
    /// Fails as [`ApiServer::serve_with`] does.
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

    /// Stops the loops, letting each finish its current work. The server and its data live on while
    /// handles to it or clients of it exist.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future aborts the loops that are still running.
    pub async fn stop(self) {
        self.loops.stop().await;
    }
}
