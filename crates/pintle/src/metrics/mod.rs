//! Prometheus metrics of every stage, in one registry.
//!
//! Whether a controller keeps up, retries or works from a stale cache is visible only in its
//! metrics. Pass one [`Metrics`] to the informers, controllers, queues, event broadcasters and rate
//! limits of a program, and serve it with [`Probes`](crate::probes::Probes) or through a registry
//! of your own.
//!
//! # Names
//! Metrics that controller-runtime and client-go also have carry their names and labels, so
//! existing dashboards and alerts work unchanged:
//!
//! | metrics | labels | from |
//! |---|---|---|
//! | `controller_runtime_reconcile_total` | `controller`, `result` | controllers |
//! | `controller_runtime_reconcile_{errors,panics,timeouts}_total`, `controller_runtime_terminal_reconcile_errors_total` | `controller` | controllers |
//! | `controller_runtime_reconcile_time_seconds`, `controller_runtime_active_workers`, `controller_runtime_max_concurrent_reconciles` | `controller` | controllers |
//! | `workqueue_{depth,adds_total,retries_total,…}` | `name`, `controller` | queues |
//! | `leader_election_master_status`, `leader_election_slowpath_total`, `leader_election_lost_total` | `name` | leader elections |
//! | `leader_election_lease_age_seconds`, on the leader | `name` | leader elections |
//! | `manager_component_running`, `manager_component_failures_total` | `component` | managers |
//! | `build_info` | `name`, `version`, `pintle_version` | managers |
//! | `rest_client_rate_limiter_duration_seconds` | `lane` | rate limits |
//! | `informer_*` | `name`, `resource` | informers |
//! | `pintle_reflector_*` | `resource` | reflectors |
//! | `pintle_events_*` | `sink` | event broadcasters |
//!
//! # Joining a registry
//! `Metrics` is a [`Collector`], so a registry that a program already has can include it:
//!
//! ```
//! use pintle::metrics::Metrics;
//! use prometheus_client::registry::Registry;
//!
//! let metrics = Metrics::new();
//! let mut registry = Registry::default();
//! registry.register_collector(Box::new(metrics.clone()));
//! ```
//!
//! Conversely, [`Metrics::with_registry`] serves a program's own metrics beside Pintle's.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
pub(crate) use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    registry::{Metric, Registry, Unit},
};

/// The metrics of a program. Cheap to clone; clones share everything.
///
/// # Examples
/// ```
/// use pintle::metrics::Metrics;
/// use prometheus_client::{metrics::counter::Counter, registry::Registry};
///
/// let mut registry = Registry::default();
/// let orders = Counter::<u64>::default();
/// registry.register("shop_orders", "Orders placed", orders.clone());
///
/// let metrics = Metrics::with_registry(registry);
/// orders.inc();
/// assert!(metrics.encode().contains("shop_orders_total 1"));
/// ```
#[derive(Clone)]
pub struct Metrics {
    sets: Arc<Mutex<Sets>>,
    /// The program's own metrics.
    registry: Arc<Registry>,
}

#[derive(Default)]
struct Sets {
    sets: BTreeMap<TypeId, Box<dyn Any + Send>>,
    families: Families,
}

impl Metrics {
    /// Returns an empty set of metrics.
    pub fn new() -> Self {
        Self::with_registry(Registry::default())
    }

    /// Returns metrics that are encoded together with those in `registry`. A prefix or labels of
    /// the registry apply only to its own metrics.
    pub fn with_registry(registry: Registry) -> Self {
        Self {
            sets: Arc::default(),
            registry: Arc::new(registry),
        }
    }

    /// Returns the set `S`; the first call creates and registers it.
    pub(crate) fn set<S: MetricSet>(&self) -> S {
        let mut sets = self.sets.lock();
        let Sets { sets, families } = &mut *sets;
        let set = sets.entry(TypeId::of::<S>()).or_insert_with(|| {
            let set = S::default();
            set.register(families);
            Box::new(set)
        });
        set.downcast_ref::<S>().cloned().unwrap_or_default()
    }

    /// Encodes all metrics in the text format that Prometheus scrapes.
    pub fn encode(&self) -> String {
        let mut own = Registry::default();
        own.register_collector(Box::new(self.clone()));
        let mut out = String::new();
        // Writing to a String cannot fail; if a metric fails to encode, the output ends before it.
        let _ = text::encode_registry(&mut out, &self.registry);
        let _ = text::encode(&mut out, &own);
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Encodes Pintle's metrics, without those of a registry passed to [`Metrics::with_registry`].
impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sets = self.sets.lock();
        let mut families = sets.families.0.iter();
        families.try_for_each(|family| family.encode(&mut encoder))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("sets", &self.sets.lock().sets.len())
            .finish_non_exhaustive()
    }
}

/// The metrics of one stage, which live beside its code: families that share their counters when
/// cloned. No stage knows the metrics of another, and no name is registered twice.
pub(crate) trait MetricSet: Clone + Default + Send + Sync + 'static {
    /// Registers every family of the set. Called once per [`Metrics`].
    fn register(&self, families: &mut Families);
}

/// Something a scrape encodes: a family of metrics, or values computed for the scrape.
pub(crate) trait Encode: Send + Sync + 'static {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result;
}

/// The metrics that a scrape encodes, in order of registration.
///
/// A `Registry` would do, but it cannot be encoded as part of another one.
#[derive(Default)]
pub(crate) struct Families(Vec<Box<dyn Encode>>);

impl Families {
    /// Registers a family under `name`.
    pub(crate) fn register(&mut self, name: impl Into<String>, help: &str, metric: impl Metric) {
        self.push(name.into(), help, None, metric);
    }

    /// Registers a family of durations; `_seconds` is appended to its name.
    pub(crate) fn register_seconds(
        &mut self,
        name: impl Into<String>,
        help: &str,
        metric: impl Metric,
    ) {
        self.push(name.into(), help, Some(Unit::Seconds), metric);
    }

    /// Registers values that are computed when they are scraped.
    pub(crate) fn register_collector(&mut self, collector: impl Encode) {
        self.0.push(Box::new(collector));
    }

    fn push(&mut self, name: String, help: &str, unit: Option<Unit>, metric: impl Metric) {
        self.0.push(Box::new(Registered {
            name,
            help: format!("{help}."),
            unit,
            metric,
        }));
    }
}

struct Registered<M> {
    name: String,
    help: String,
    unit: Option<Unit>,
    metric: M,
}

impl<M: Metric> Encode for Registered<M> {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.metric.is_empty() {
            return Ok(());
        }
        let kind = self.metric.metric_type();
        let encoder =
            encoder.encode_descriptor(&self.name, &self.help, self.unit.as_ref(), kind)?;
        self.metric.encode(encoder)
    }
}

/// Declares a struct whose fields are labels.
macro_rules! label_set {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
        $visibility struct $name {
            $($field: $type,)*
        }
    };
}
pub(crate) use label_set;
