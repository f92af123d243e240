//! Metrics of informers and their handlers.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use crate::metrics::{Counter, Families, Family, Gauge, Histogram, MetricSet, label_set};

/// The metrics of informers, by resource.
#[derive(Clone)]
pub(super) struct InformerMetrics {
    queued: Family<OfResource, Gauge>,
    latency: Family<OfResource, Histogram>,
    version: Family<OfResource, Gauge<f64, AtomicU64>>,
    objects: Family<OfResource, Gauge>,
    unindexed: Family<OfResource, Counter>,
    undecoded: Family<OfResource, Counter>,
    waiting: Family<OfHandler, Gauge>,
    coalesced: Family<OfHandler, Counter>,
    panics: Family<OfHandler, Counter>,
}

label_set! {
    struct OfResource {
        name: String,
        resource: String,
    }
}

label_set! {
    struct OfHandler {
        name: String,
        resource: String,
        handler: String,
    }
}

const SECONDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

impl Default for InformerMetrics {
    fn default() -> Self {
        Self {
            queued: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            version: Family::default(),
            objects: Family::default(),
            unindexed: Family::default(),
            undecoded: Family::default(),
            waiting: Family::default(),
            coalesced: Family::default(),
            panics: Family::default(),
        }
    }
}

impl MetricSet for InformerMetrics {
    fn register(&self, families: &mut Families) {
        families.register(
            "informer_queued_items",
            "Entries waiting between the reflector and the cache",
            self.queued.clone(),
        );
        families.register(
            "informer_processing_latency_seconds",
            "Time to apply entries to the cache and notify the handlers",
            self.latency.clone(),
        );
        families.register(
            "informer_store_resource_version",
            "Last fifteen digits of the resourceVersion that the cache shows",
            self.version.clone(),
        );
        families.register(
            "informer_store_objects",
            "Objects in the cache",
            self.objects.clone(),
        );
        families.register(
            "informer_unindexed_objects",
            "Objects left out of an index because its values could not be computed",
            self.unindexed.clone(),
        );
        families.register(
            "informer_undecoded_objects",
            "Objects that failed to decode on their way into the cache",
            self.undecoded.clone(),
        );
        families.register(
            "informer_handler_waiting_events",
            "Events waiting for a handler",
            self.waiting.clone(),
        );
        families.register(
            "informer_handler_coalesced_events",
            "Events merged into others because a coalescing handler was slow",
            self.coalesced.clone(),
        );
        families.register(
            "informer_handler_panics",
            "Panics in a handler",
            self.panics.clone(),
        );
    }
}

impl InformerMetrics {
    /// Returns the metrics of the informer `name` of `resource`.
    pub(super) fn stage(&self, name: &str, resource: &str) -> StageMetrics {
        let labels = OfResource {
            name: name.to_owned(),
            resource: resource.to_owned(),
        };
        StageMetrics {
            queued: self.queued.get_or_create_owned(&labels),
            latency: self.latency.get_or_create_owned(&labels),
            version: self.version.get_or_create_owned(&labels),
            objects: Share::new(self.objects.get_or_create_owned(&labels)),
            unindexed: Tally::new(self.unindexed.get_or_create_owned(&labels)),
            undecoded: Tally::new(self.undecoded.get_or_create_owned(&labels)),
            all: self.clone(),
            labels,
        }
    }
}

/// The metrics of one informer.
pub(super) struct StageMetrics {
    queued: Gauge,
    latency: Histogram,
    version: Gauge<f64, AtomicU64>,
    objects: Share,
    unindexed: Tally,
    undecoded: Tally,
    all: InformerMetrics,
    labels: OfResource,
}

impl StageMetrics {
    pub(super) fn queued(&self, entries: usize) {
        self.queued.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    pub(super) fn processed(&self, took: Duration) {
        self.latency.observe(took.as_secs_f64());
    }

    /// Publishes a `resourceVersion`, unless it is not a number.
    pub(super) fn reached(&self, version: &str) {
        let last = version.get(version.len().saturating_sub(15)..);
        if let Some(number) = last.and_then(|digits| digits.parse().ok()) {
            self.version.set(number);
        }
    }

    /// Publishes the size of the cache.
    pub(super) fn objects(&self, count: usize) {
        self.objects.set(count);
    }

    pub(super) fn unindexed(&self, total: u64) {
        self.unindexed.reach(total);
    }

    pub(super) fn undecoded(&self, total: u64) {
        self.undecoded.reach(total);
    }

    /// Returns the metrics of a handler. Handlers with the same name are counted together.
    pub(super) fn handler(&self, handler: &str) -> HandlerMetrics {
        let OfResource { name, resource } = self.labels.clone();
        let labels = OfHandler {
            name,
            resource,
            handler: handler.to_owned(),
        };
        HandlerMetrics {
            waiting: Share::new(self.all.waiting.get_or_create_owned(&labels)),
            coalesced: self.all.coalesced.get_or_create_owned(&labels),
            panics: self.all.panics.get_or_create_owned(&labels),
        }
    }
}

/// This informer's share of a counter that all informers with the same labels have in common.
struct Tally {
    counter: Counter,
    shown: AtomicU64,
}

impl Tally {
    fn new(counter: Counter) -> Self {
        Self {
            counter,
            shown: AtomicU64::new(0),
        }
    }

    /// Raises this informer's share to `total`.
    fn reach(&self, total: u64) {
        let before = self.shown.swap(total, Ordering::Relaxed);
        if total > before {
            self.counter.inc_by(total - before);
        }
    }
}

/// A share of a gauge that everything with the same labels has in common. Dropping it subtracts the
/// share.
struct Share {
    gauge: Gauge,
    shown: AtomicI64,
}

impl Share {
    fn new(gauge: Gauge) -> Self {
        Self {
            gauge,
            shown: AtomicI64::new(0),
        }
    }

    fn set(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let before = self.shown.swap(count, Ordering::Relaxed);
        if before != count {
            self.gauge.inc_by(count - before);
        }
    }

    fn get(&self) -> i64 {
        self.shown.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The metrics of one handler.
pub(super) struct HandlerMetrics {
    waiting: Share,
    coalesced: Counter,
    panics: Counter,
}

impl HandlerMetrics {
    pub(super) fn waiting(&self, events: usize, merged: u64) {
        self.waiting.set(events);
        if merged > 0 {
            self.coalesced.inc_by(merged);
        }
    }

    /// Returns the number of waiting events.
    pub(super) fn shown(&self) -> i64 {
        self.waiting.get()
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }
}
