//! Reflector metrics, by resource.

use crate::metrics::{
    Counter, Families, Family, Gauge, Histogram, MetricSet, exponential_buckets, label_set,
};

label_set! {
    pub(super) struct Labels {
        resource: String,
    }
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
            // A second to twelve minutes.
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
    fn register(&self, families: &mut Families) {
        families.register(
            "pintle_reflector_lists",
            "Complete lists read",
            self.lists.clone(),
        );
        families.register_seconds(
            "pintle_reflector_list_duration",
            "Duration of complete lists",
            self.list_duration.clone(),
        );
        families.register(
            "pintle_reflector_items_per_list",
            "Objects in a complete list",
            self.items_per_list.clone(),
        );
        families.register(
            "pintle_reflector_watches",
            "Watches opened",
            self.watches.clone(),
        );
        families.register(
            "pintle_reflector_short_watches",
            "Watches closed within a second without any event",
            self.short_watches.clone(),
        );
        families.register(
            "pintle_reflector_silent_watches",
            "Watches closed because they went silent",
            self.silent_watches.clone(),
        );
        families.register_seconds(
            "pintle_reflector_watch_duration",
            "Duration of watches",
            self.watch_duration.clone(),
        );
        families.register(
            "pintle_reflector_failures",
            "Failures that led to a delayed retry",
            self.failures.clone(),
        );
        families.register(
            "pintle_reflector_unreadable_objects",
            "Objects that could not be read",
            self.unreadable.clone(),
        );
        families.register(
            "pintle_reflector_last_resource_version",
            "Last resourceVersion seen, if it is a number",
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
