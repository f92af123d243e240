//! Configures a manager.

use std::{fmt, sync::Arc, time::Duration};

use kube::Client;

use super::{Manager, election::ElectionPlan, metrics::ManagerMetrics};
use crate::{
    clock::{Clock, Rng},
    events::EventBroadcaster,
    informer::InformerFactory,
    inspect::Inspector,
    leader_election::LeaderElection,
    metrics::Metrics,
};

/// Configures a [`Manager`]. Returned by [`Manager::builder`].
#[must_use = "a manager does nothing until it is built and run"]
pub struct Builder {
    name: String,
    client: Client,
    informers: Option<InformerFactory>,
    metrics: Metrics,
    events: Option<EventBroadcaster>,
    clock: Clock,
    rng: Rng,
    election: Option<Configure>,
    #[cfg(feature = "probes")]
    probes: Option<String>,
    #[cfg(feature = "probes")]
    checks: Vec<Check>,
    inspector: Option<Inspector>,
    #[cfg(feature = "inspect")]
    inspect: Option<String>,
    version: Option<String>,
    sync_timeout: Duration,
    stop_within: Duration,
}

/// Changes the settings of an election.
pub(super) type Configure = Arc<dyn Fn(LeaderElection) -> LeaderElection + Send + Sync>;

/// A check; its error says why it fails.
#[cfg(feature = "probes")]
type RunCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A user's check.
#[cfg(feature = "probes")]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) is_liveness: bool,
    pub(super) run: RunCheck,
}

/// The state shared by all components of a manager.
pub(super) struct Common {
    pub(super) name: String,
    /// Not gated.
    pub(super) client: Client,
    pub(super) informers: InformerFactory,
    pub(super) metrics: Metrics,
    pub(super) own_metrics: ManagerMetrics,
    pub(super) clock: Clock,
    pub(super) rng: Rng,
    pub(super) events: EventBroadcaster,
    /// Whether the manager created the broadcaster, which has no sink yet.
    pub(super) starts_recording: bool,
    #[cfg(feature = "probes")]
    pub(super) probes: Option<String>,
    #[cfg(feature = "probes")]
    pub(super) checks: Vec<Check>,
    pub(super) inspector: Option<Inspector>,
    #[cfg(feature = "inspect")]
    pub(super) inspect: Option<String>,
    pub(super) sync_timeout: Duration,
    pub(super) stop_within: Duration,
}

impl Builder {
    pub(super) fn new(name: String, client: Client) -> Self {
        Self {
            name,
            client,
            informers: None,
            metrics: Metrics::new(),
            events: None,
            clock: Clock::default(),
            rng: Rng::default(),
            election: None,
            #[cfg(feature = "probes")]
            probes: None,
            #[cfg(feature = "probes")]
            checks: Vec::new(),
            inspector: None,
            #[cfg(feature = "inspect")]
            inspect: None,
            version: None,
            sync_timeout: Duration::from_secs(120),
            stop_within: Duration::from_secs(30),
        }
    }

    /// Elects a leader among the replicas through a Lease that is named after the manager, in the
    /// client's default namespace, with client-go's timing.
    pub fn leader_election(self) -> Self {
        self.leader_election_with(|election| election)
    }

    /// Elects a leader with custom settings: another namespace, identity or timing. They also apply
    /// to the elections of components that are [elected under another
    /// name](super::Component::elected_as).
    ///
    /// ```
    /// # use pintle::manager::Manager;
    /// # use std::time::Duration;
    /// # fn example(client: kube::Client) {
    /// let builder = Manager::builder("shop-operator", client)
    ///     .leader_election_with(|election| election.namespace("shop").identity("pod-7"));
    /// # }
    /// ```
    pub fn leader_election_with(
        mut self,
        configure: impl Fn(LeaderElection) -> LeaderElection + Send + Sync + 'static,
    ) -> Self {
        self.election = Some(Arc::new(configure));
        self
    }

    /// Serves `/healthz`, `/livez`, `/readyz` and `/metrics` on `address`, such as `0.0.0.0:8080`.
    /// See [`Probes`](crate::probes::Probes).
    #[cfg(feature = "probes")]
    pub fn probes(mut self, address: impl Into<String>) -> Self {
        self.probes = Some(address.into());
        self
    }

    /// Records why keys run, wait and fail, and serves the [inspector](crate::inspect) on
    /// `address`, such as `127.0.0.1:0`.
    ///
    /// The URL is logged, with its token unless you set one. On an address other than loopback,
    /// anyone who knows the token can read every object in the caches, without its secrets.
    #[cfg(feature = "inspect")]
    pub fn inspect(mut self, address: impl Into<String>) -> Self {
        self.inspect = Some(address.into());
        self
    }

    /// Records with this inspector, to use other [settings](crate::inspect::Settings) or to serve
    /// it yourself.
    #[cfg(feature = "inspect")]
    pub fn inspector(mut self, inspector: &Inspector) -> Self {
        self.inspector = Some(inspector.clone());
        self
    }

    /// Adds a check to `/readyz`. It is called for every request and must not block.
    #[cfg(feature = "probes")]
    pub fn ready_check<F>(self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.check(name.into(), false, Arc::new(check))
    }

    /// Adds a check to `/healthz` and `/livez`: if it fails for long enough, the kubelet restarts
    /// the container. It is called for every request and must not block.
    #[cfg(feature = "probes")]
    pub fn alive_check<F>(self, name: impl Into<String>, check: F) -> Self
    where
        F: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.check(name.into(), true, Arc::new(check))
    }

    #[cfg(feature = "probes")]
    fn check(mut self, name: String, is_liveness: bool, run: RunCheck) -> Self {
        self.checks.push(Check {
            name,
            is_liveness,
            run,
        });
        self
    }

    /// Sets the program's version, which the metric `build_info` reports.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Uses these informers, for example restricted to a namespace, instead of new ones. Configure
    /// them with the same [metrics](InformerFactory::metrics), or `/metrics` lacks `informer_*`.
    /// They are shut down with the manager.
    pub fn informers(mut self, informers: InformerFactory) -> Self {
        self.informers = Some(informers);
        self
    }

    /// Registers all metrics in `metrics`.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Records events with `events`, which must already have a sink, instead of creating a
    /// broadcaster. It is shut down with the manager.
    pub fn events(mut self, events: EventBroadcaster) -> Self {
        self.events = Some(events);
        self
    }

    /// Sets the clock for timestamps in conditions, events and Leases. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of jitter.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Sets how long caches may take to fill and servers to be ready before [`Manager::run`] fails.
    /// Default: 2 minutes. Controllers have [their own
    /// limit](crate::controller::Controller::sync_timeout).
    pub fn sync_timeout(mut self, limit: Duration) -> Self {
        self.sync_timeout = limit;
        self
    }

    /// Sets how long stopping may take in total. Default: 30 s, the grace period of a Pod.
    pub fn stop_within(mut self, limit: Duration) -> Self {
        self.stop_within = limit;
        self
    }

    /// Builds the manager. An election that cannot be held as configured is reported by
    /// [`Manager::run`].
    pub fn build(self) -> Manager {
        let informers = self.informers.unwrap_or_else(|| {
            InformerFactory::new(self.client.clone())
                .metrics(self.metrics.clone())
                .rng(self.rng.clone())
        });
        let starts_recording = self.events.is_none();
        let events = self.events.unwrap_or_else(|| {
            EventBroadcaster::builder()
                .clock(self.clock.clone())
                .rng(self.rng.clone())
                .metrics(self.metrics.clone())
                .build()
        });
        let own_metrics = self.metrics.set::<ManagerMetrics>();
        if let Some(version) = self.version {
            own_metrics.set_build_info(&self.name, &version);
        }
        #[cfg(not(feature = "inspect"))]
        let inspector = self.inspector;
        #[cfg(feature = "inspect")]
        let inspector = self.inspector.or_else(|| {
            self.inspect.as_ref()?;
            let settings = crate::inspect::Settings::new(&self.name).clock(self.clock.clone());
            Some(settings.build())
        });
        if let Some(inspector) = &inspector {
            inspector.caches(&informers);
        }
        let common = Common {
            name: self.name,
            client: self.client,
            informers,
            own_metrics,
            metrics: self.metrics,
            clock: self.clock,
            rng: self.rng,
            events,
            starts_recording,
            #[cfg(feature = "probes")]
            probes: self.probes,
            #[cfg(feature = "probes")]
            checks: self.checks,
            inspector,
            #[cfg(feature = "inspect")]
            inspect: self.inspect,
            sync_timeout: self.sync_timeout,
            stop_within: self.stop_within,
        };
        let elects = self.election.is_some();
        let election = ElectionPlan::new(self.election);
        let elector = elects.then(|| election.candidate(&common, &common.name));
        Manager {
            common,
            elector,
            election,
            components: Vec::new(),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
