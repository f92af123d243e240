//! The metrics of queues, under client-go's names.
//!
//! A queue counts in plain numbers, under the lock it holds anyway; they are added up when metrics
//! are scraped. No task refreshes gauges, so the duration of unfinished work is exact at scrape
//! time.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
};

use super::state::Tick;
use crate::{
    metrics::{Families, MetricSet},
    sync::Mutex,
};

#[cfg(feature = "metrics")]
mod encode;

/// The number of histogram bounds: 10 ns, 100 ns, … 10 s.
const BUCKETS: usize = 10;

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub(super) struct Durations {
    /// Per bucket, not cumulative. The last one is for longer durations.
    counts: [u64; BUCKETS + 1],
    sum: f64,
}

impl Durations {
    fn observe(&mut self, nanos: Tick) {
        let mut bound = 10;
        let mut bucket = 0;
        while bucket < BUCKETS && nanos > bound {
            bound *= 10;
            bucket += 1;
        }
        self.counts[bucket] += 1;
        self.sum += seconds(nanos);
    }

    fn absorb(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum += other.sum;
    }

    fn buckets(&self) -> Vec<(f64, u64)> {
        // Written out, because a computed label would read `0.0010000000000000002`.
        const BOUNDS: [f64; BUCKETS + 1] = [
            1e-8,
            1e-7,
            1e-6,
            1e-5,
            1e-4,
            1e-3,
            1e-2,
            1e-1,
            1.0,
            10.0,
            f64::INFINITY,
        ];
        BOUNDS.into_iter().zip(self.counts).collect()
    }
}

/// The counters of a queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    /// Whether durations are measured: reading the clock costs as much as the rest of a dequeue.
    timed: bool,
    pub(super) adds: u64,
    pub(super) retries: u64,
    /// Items dropped without a result.
    pub(super) undecided: u64,
    queued: Durations,
    worked: Durations,
}

impl Stats {
    pub(super) fn new(timed: bool) -> Self {
        Self {
            timed,
            ..Self::default()
        }
    }

    pub(super) fn taken(&mut self, since: Tick, now: Tick) {
        if self.timed {
            self.queued.observe(now.saturating_sub(since));
        }
    }

    pub(super) fn finished(&mut self, since: Tick, now: Tick) {
        if self.timed {
            self.worked.observe(now.saturating_sub(since));
        }
    }
}

/// The values of a queue at scrape time.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) stats: Stats,
    pub(super) depth: usize,
    pub(super) delayed: usize,
    /// The total processing time of the keys being processed.
    pub(super) unfinished: Tick,
    /// The longest of these times.
    pub(super) longest: Tick,
}

impl Reading {
    fn absorb(&mut self, other: &Self) {
        self.stats.adds += other.stats.adds;
        self.stats.retries += other.stats.retries;
        self.stats.undecided += other.stats.undecided;
        self.stats.queued.absorb(&other.stats.queued);
        self.stats.worked.absorb(&other.stats.worked);
        self.depth += other.depth;
        self.delayed += other.delayed;
        self.unfinished += other.unfinished;
        self.longest = self.longest.max(other.longest);
    }
}

/// A queue whose metrics can be read.
pub(super) trait Readable: Send + Sync {
    fn name(&self) -> Arc<str>;
    fn read(&self) -> Reading;
}

/// The metrics of all queues built with one [`Metrics`](crate::metrics::Metrics), by the label
/// `name`. See the [module](super#metrics) for what they mean.
#[derive(Clone, Default)]
pub(super) struct QueueMetrics {
    queues: Arc<Mutex<Queues>>,
}

/// The live queues, and the counters of those that have ended.
#[derive(Default)]
struct Queues {
    live: Vec<Weak<dyn Readable>>,
    ended: BTreeMap<Arc<str>, Reading>,
}

impl QueueMetrics {
    pub(super) fn join(&self, queue: Weak<dyn Readable>) {
        let mut queues = self.queues.lock();
        queues.live.retain(|queue| queue.strong_count() > 0);
        queues.live.push(queue);
    }

    /// Returns the number of queues that are tracked as live.
    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        self.queues.lock().live.len()
    }

    /// Retains the counters of a queue that ends: counters must not decrease.
    pub(super) fn retire(&self, name: Arc<str>, stats: Stats) {
        let last = Reading {
            stats,
            ..Reading::default()
        };
        self.queues
            .lock()
            .ended
            .entry(name)
            .or_default()
            .absorb(&last);
    }

    fn readings(&self) -> BTreeMap<Arc<str>, Reading> {
        let mut readings = BTreeMap::<Arc<str>, Reading>::new();
        let live: Vec<_> = {
            let queues = self.queues.lock();
            for (name, last) in &queues.ended {
                readings.entry(Arc::clone(name)).or_default().absorb(last);
            }
            queues.live.iter().filter_map(Weak::upgrade).collect()
        };
        // Outside the lock: this may be the last handle of a queue by now, and dropping it takes
        // the lock again.
        for queue in live {
            readings
                .entry(queue.name())
                .or_default()
                .absorb(&queue.read());
        }
        readings
    }
}

impl MetricSet for QueueMetrics {
    fn register(&self, families: &mut Families) {
        families.register_collector(self.clone());
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueMetrics")
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "metrics are floating point numbers"
)]
fn seconds(nanos: Tick) -> f64 {
    nanos as f64 / 1e9
}
