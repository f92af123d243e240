//! Keys through the queue.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use pintle::{cache::ObjectKey, queue::WorkQueue};
use serde_json::Map;
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    Flags, Keys,
    measure::{Cost, Outcome, Phase},
};

/// Signals when a count is reached.
pub(crate) struct Countdown {
    left: AtomicU64,
    done: Notify,
}

impl Countdown {
    pub(crate) fn new(count: u64) -> Self {
        Self {
            left: AtomicU64::new(count),
            done: Notify::new(),
        }
    }

    /// Resets the count. Must not run concurrently with counting.
    pub(crate) fn reset(&self, count: u64) {
        self.left.store(count, Ordering::Relaxed);
    }

    pub(crate) fn decrement(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.notify_one();
        }
    }

    pub(crate) async fn wait(&self) {
        self.done.notified().await;
    }
}

pub(crate) fn keys(count: u64) -> Vec<ObjectKey> {
    (0..count)
        .map(|i| ObjectKey::namespaced("default", &format!("key-{i}")))
        .collect()
}

pub(crate) async fn queue(flags: &Flags) -> Result<Outcome> {
    let cost = match flags.keys {
        Keys::Distinct => distinct(flags).await?,
        Keys::Duplicate => duplicate(flags).await?,
    };
    Ok(Outcome {
        work: "queue",
        count: flags.count(),
        cost,
        bytes_received: 0,
        extra: Map::new(),
    })
}

/// One producer adds keys; the workers dequeue and finish them.
async fn distinct(flags: &Flags) -> Result<Cost> {
    let keys = keys(flags.count());
    let queue = WorkQueue::<ObjectKey>::new("bench");
    let done = Arc::new(Countdown::new(flags.count()));
    let mut workers = JoinSet::new();
    for _ in 0..flags.workers {
        let (queue, done) = (queue.clone(), Arc::clone(&done));
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                black_box(item.key());
                item.forget();
                done.decrement();
            }
        });
    }
    tokio::task::yield_now().await;
    let phase = Phase::begin()?;
    let producer = queue.clone();
    let producer = tokio::spawn(async move {
        for key in keys {
            producer.add(key);
        }
    });
    done.wait().await;
    let cost = phase.end()?;
    producer.await?;
    queue.shut_down();
    workers.join_all().await;
    Ok(cost)
}

/// Producers add keys that are already queued; no worker runs.
async fn duplicate(flags: &Flags) -> Result<Cost> {
    let keys: Arc<[ObjectKey]> = keys(1000).into();
    let queue = WorkQueue::<ObjectKey>::new("bench");
    for key in &*keys {
        queue.add(key.clone());
    }
    let (count, workers) = (usize::try_from(flags.count())?, flags.workers);
    let phase = Phase::begin()?;
    let mut producers = JoinSet::new();
    for producer in 0..workers {
        let (queue, keys) = (queue.clone(), Arc::clone(&keys));
        producers.spawn(async move {
            for i in (producer..count).step_by(workers) {
                queue.add(keys[i % keys.len()].clone());
            }
        });
    }
    producers.join_all().await;
    phase.end()
}
