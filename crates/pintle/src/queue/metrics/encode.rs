//! Encodes the metrics of queues for a scrape.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

use super::{Durations, QueueMetrics, Reading, Stats, seconds};
use crate::metrics::Encode;

impl Encode for QueueMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let readings = self.readings();
        if readings.is_empty() {
            return Ok(());
        }
        let mut gauge = |name: &str, help: &str, value: fn(&Reading) -> f64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (name, reading) in &readings {
                family
                    .encode_family(&labels(name))?
                    .encode_gauge(&value(reading))?;
            }
            fmt::Result::Ok(())
        };
        gauge("workqueue_depth", "Keys to run now", |reading| {
            count(reading.depth)
        })?;
        gauge("workqueue_delayed", "Delayed keys", |reading| {
            count(reading.delayed)
        })?;
        gauge(
            "workqueue_unfinished_work_seconds",
            "Total processing time of the keys being processed",
            |reading| seconds(reading.unfinished),
        )?;
        gauge(
            "workqueue_longest_running_processor_seconds",
            "Processing time of the longest running key",
            |reading| seconds(reading.longest),
        )?;
        let mut counter = |name: &str, help: &str, value: fn(&Stats) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (name, reading) in &readings {
                family
                    .encode_family(&labels(name))?
                    .encode_counter::<NoLabelSet, _, f64>(&value(&reading.stats), None)?;
            }
            fmt::Result::Ok(())
        };
        counter("workqueue_adds", "Adds that did not collapse", |stats| {
            stats.adds
        })?;
        counter(
            "workqueue_retries",
            "Delayed and rate-limited adds",
            |stats| stats.retries,
        )?;
        counter(
            "workqueue_undecided",
            "Items dropped without a result",
            |stats| stats.undecided,
        )?;
        let mut histogram = |name: &str, help: &str, value: fn(&Stats) -> &Durations| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (name, reading) in &readings {
                let durations = value(&reading.stats);
                family
                    .encode_family(&labels(name))?
                    .encode_histogram::<NoLabelSet>(
                        durations.sum,
                        durations.counts.iter().sum(),
                        &durations.buckets(),
                        None,
                    )?;
            }
            fmt::Result::Ok(())
        };
        histogram(
            "workqueue_queue_duration_seconds",
            "Time from ready to dequeued",
            |stats| &stats.queued,
        )?;
        histogram(
            "workqueue_work_duration_seconds",
            "Time from dequeued to done",
            |stats| &stats.worked,
        )
    }
}

/// controller-runtime labels every queue with both.
fn labels(name: &str) -> [(&str, &str); 2] {
    [("name", name), ("controller", name)]
}

#[allow(
    clippy::cast_precision_loss,
    reason = "metrics are floating point numbers"
)]
fn count(keys: usize) -> f64 {
    keys as f64
}
