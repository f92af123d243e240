//! One registry for what every stage counts.
//!
//! A stage keeps its metrics in a struct of its own beside its code, a [`MetricSet`]; the registry
//! makes one instance of each set, whoever asks first. So no stage knows another's metrics, and no
//! name is registered twice.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::{encoding::text, registry::Registry};

/// The metrics of one stage: families that share their counters when cloned.
pub trait MetricSet: Clone + Default + Send + Sync + 'static {
    /// Names every family of the set in `registry`. Called once per [`Metrics`].
    fn register(&self, registry: &mut Registry);
}

/// A registry of metrics, cheap to clone and shared by every part of a program.
///
/// ```
/// use pintle::metrics::{MetricSet, Metrics};
/// use prometheus_client::{metrics::counter::Counter, registry::Registry};
///
/// #[derive(Clone, Default)]
/// struct Door {
///     opened: Counter,
/// }
///
/// impl MetricSet for Door {
///     fn register(&self, registry: &mut Registry) {
///         registry.register("door_opened", "How often the door was opened", self.opened.clone());
///     }
/// }
///
/// let metrics = Metrics::new();
/// metrics.set::<Door>().opened.inc();
/// metrics.set::<Door>().opened.inc();
/// assert!(metrics.encode().contains("door_opened_total 2"));
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    registry: Registry,
    sets: BTreeMap<TypeId, Box<dyn Any + Send>>,
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set `S` of this registry; the first call registers it.
    pub fn set<S: MetricSet>(&self) -> S {
        let mut state = self.state.lock();
        let State { registry, sets } = &mut *state;
        let set = sets.entry(TypeId::of::<S>()).or_insert_with(|| {
            let set = S::default();
            set.register(registry);
            Box::new(set)
        });
        set.downcast_ref::<S>().cloned().unwrap_or_default()
    }

    /// Everything counted so far, in the text format that Prometheus scrapes.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail; a metric that fails to encode leaves what came before.
        let _ = text::encode(&mut out, &self.state.lock().registry);
        out
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("sets", &self.state.lock().sets.len())
            .finish()
    }
}
