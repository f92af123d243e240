//! Metrics of events, by sink.

use crate::metrics::{Counter, Families, Family, MetricSet, label_set};

label_set! {
    pub(super) struct SinkLabel {
        sink: String,
    }
}

type PerSink = Family<SinkLabel, Counter>;

/// The counters of all sinks.
///
/// Every event offered to a sink is counted in `recorded` and ends in exactly one of `written`,
/// `aggregated`, `filtered`, `dropped` and `failed`.
#[derive(Clone, Debug, Default)]
pub(super) struct EventMetrics {
    recorded: PerSink,
    written: PerSink,
    aggregated: PerSink,
    filtered: PerSink,
    dropped: PerSink,
    failed: PerSink,
    retried: PerSink,
    refused: Counter,
}

impl MetricSet for EventMetrics {
    fn register(&self, families: &mut Families) {
        let mut family = |name: &str, help: &str, metric: &PerSink| {
            families.register(format!("pintle_events_{name}"), help, metric.clone());
        };
        family("recorded", "Events offered to a sink", &self.recorded);
        family(
            "written",
            "Events written as they were recorded",
            &self.written,
        );
        family(
            "aggregated",
            "Events merged into a combined event or a series",
            &self.aggregated,
        );
        family(
            "filtered",
            "Events withheld because their object had too many",
            &self.filtered,
        );
        family(
            "dropped",
            "Events lost to a full queue or at shutdown",
            &self.dropped,
        );
        family(
            "failed",
            "Events that the sink failed to write",
            &self.failed,
        );
        family("retried", "Writes that were retried", &self.retried);
        families.register(
            "pintle_events_refused",
            "Events without a valid object, or recorded after shutdown",
            self.refused.clone(),
        );
    }
}

impl EventMetrics {
    pub(super) fn refused(&self) -> &Counter {
        &self.refused
    }

    pub(super) fn sink(&self, name: &str) -> SinkCounters {
        let label = SinkLabel {
            sink: name.to_owned(),
        };
        let of = |family: &PerSink| family.get_or_create(&label).clone();
        SinkCounters {
            recorded: of(&self.recorded),
            written: of(&self.written),
            aggregated: of(&self.aggregated),
            filtered: of(&self.filtered),
            dropped: of(&self.dropped),
            failed: of(&self.failed),
            retried: of(&self.retried),
        }
    }
}

/// The counters of one sink.
#[derive(Clone, Debug)]
pub(super) struct SinkCounters {
    pub(super) recorded: Counter,
    pub(super) written: Counter,
    pub(super) aggregated: Counter,
    pub(super) filtered: Counter,
    pub(super) dropped: Counter,
    pub(super) failed: Counter,
    pub(super) retried: Counter,
}
