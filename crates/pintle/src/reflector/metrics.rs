//! What a reflector counts, by resource.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::metrics::MetricSet;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    resource: String,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// The metrics of all reflectors of a program.
#[derive(Clone, Debug)]
pub(super) struct ReflectorMetrics {
    lists: Family<Labels, Counter>,
    list_duration: Histograms,
    items_per_list: Histograms,
    watches: Family<Labels, Counter>,
    short_watches: Family<Labels, Counter>,
    silent_watches: Family<Labels, Counter>,
    watch_duration: Histograms,
    failures: Family<Labels, Counter>,
    unreadable: Family<Labels, Counter>,
    last_resource_version: Family<Labels, Gauge>,
}

impl Default for ReflectorMetrics {
    fn default() -> Self {
        Self {
            lists: Family::default(),
            // A millisecond to a minute.
            list_duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 4.0, 9))
            }),
            items_per_list: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1.0, 10.0, 7))
            }),
            watches: Family::default(),
            short_watches: Family::default(),
            silent_watches: Family::default(),
            // A second to a quarter of an hour.
            watch_duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1.0, 3.0, 7))
            }),
            failures: Family::default(),
            unreadable: Family::default(),
            last_resource_version: Family::default(),
        }
    }
}

impl MetricSet for ReflectorMetrics {
    fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("pintle_reflector");
        registry.register("lists", "Complete lists read", self.lists.clone());
        registry.register_with_unit(
            "list_duration",
            "How long complete lists took",
            Unit::Seconds,
            self.list_duration.clone(),
        );
        registry.register(
            "items_per_list",
            "Objects in a complete list",
            self.items_per_list.clone(),
        );
        registry.register("watches", "Watches opened", self.watches.clone());
        registry.register(
            "short_watches",
            "Watches closed within a second that had told nothing",
            self.short_watches.clone(),
        );
        registry.register(
            "silent_watches",
            "Watches given up because they went silent",
            self.silent_watches.clone(),
        );
        registry.register_with_unit(
            "watch_duration",
            "How long watches stayed open",
            Unit::Seconds,
            self.watch_duration.clone(),
        );
        registry.register(
            "failures",
            "Failures that cost a wait",
            self.failures.clone(),
        );
        registry.register(
            "unreadable_objects",
            "Objects that came but could not be read",
            self.unreadable.clone(),
        );
        registry.register(
            "last_resource_version",
            "The last resource version seen, where it is a number",
            self.last_resource_version.clone(),
        );
    }
}

/// The metrics of one reflector, looked up once.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) lists: Counter,
    pub(super) list_duration: Histogram,
    pub(super) items_per_list: Histogram,
    pub(super) watches: Counter,
    pub(super) short_watches: Counter,
    pub(super) silent_watches: Counter,
    pub(super) watch_duration: Histogram,
    pub(super) failures: Counter,
    pub(super) unreadable: Counter,
    pub(super) last_resource_version: Gauge,
}

impl ReflectorMetrics {
    pub(super) fn of(&self, resource: &str) -> Counters {
        let labels = Labels {
            resource: resource.to_owned(),
        };
        Counters {
            lists: self.lists.get_or_create_owned(&labels),
            list_duration: self.list_duration.get_or_create_owned(&labels),
            items_per_list: self.items_per_list.get_or_create_owned(&labels),
            watches: self.watches.get_or_create_owned(&labels),
            short_watches: self.short_watches.get_or_create_owned(&labels),
            silent_watches: self.silent_watches.get_or_create_owned(&labels),
            watch_duration: self.watch_duration.get_or_create_owned(&labels),
            failures: self.failures.get_or_create_owned(&labels),
            unreadable: self.unreadable.get_or_create_owned(&labels),
            last_resource_version: self.last_resource_version.get_or_create_owned(&labels),
        }
    }
}
