//! Keys through the scheduler, kube-rs's stage between triggers and reconciles.
//!
//! The scheduler is a stream, so it has a single consumer and no "done". The runner behind it, which
//! keeps a key from being reconciled twice at once, is private; `reconcile` measures both together.

use std::{hint::black_box, sync::Arc};

use anyhow::Result;
use futures::{StreamExt as _, channel::mpsc};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{
    reflector::ObjectRef,
    scheduler::{ScheduleRequest, scheduler},
};
use tokio::{task::JoinSet, time::Instant};

use crate::{CannotDo, Flags, Keys, measure::Phase};

type Key = ObjectRef<Pod>;

fn keys(count: usize) -> Vec<Key> {
    (0..count)
        .map(|i| ObjectRef::new(&format!("key-{i}")).within("default"))
        .collect()
}

/// Schedules a key immediately, like the applier.
fn request(message: Key) -> ScheduleRequest<Key> {
    ScheduleRequest {
        message,
        run_at: Instant::now(),
    }
}

pub async fn run(flags: &Flags) -> Result<Phase> {
    let mut phase = match flags.keys {
        Keys::Distinct if flags.workers > 1 => {
            return Err(CannotDo("the scheduler is a stream, which one consumer polls").into());
        }
        Keys::Distinct => distinct(flags).await?,
        Keys::Duplicate => duplicate(flags).await?,
    };
    if matches!(flags.keys, Keys::Distinct) {
        let reason = "add and get only: the scheduler has no done";
        phase.extra.insert("done_reason".into(), reason.into());
    }
    Ok(phase)
}

/// One producer adds, one consumer dequeues.
async fn distinct(flags: &Flags) -> Result<Phase> {
    let keys = keys(flags.count);
    let (requests, queue) = mpsc::unbounded();
    let mut scheduler = Box::pin(scheduler(queue));
    let count = flags.count;
    let mut phase = Phase::begin()?;
    let consumer = tokio::spawn(async move {
        for _ in 0..count {
            black_box(scheduler.next().await);
        }
    });
    let producer = tokio::spawn(async move {
        for key in keys {
            // Keep the sender open until the last key has arrived.
            let _ = requests.unbounded_send(request(key));
        }
        requests
    });
    consumer.await?;
    phase.end()?;
    phase.keep(producer.await?);
    Ok(phase)
}

/// Producers add keys that are already scheduled. The scheduler is held, so none is dequeued.
async fn duplicate(flags: &Flags) -> Result<Phase> {
    let keys: Arc<[Key]> = keys(1000).into();
    let (requests, queue) = mpsc::unbounded();
    let mut scheduler = Box::pin(scheduler(queue));
    for key in &*keys {
        requests.unbounded_send(request(key.clone()))?;
    }
    // Poll until the scheduler has consumed all requests.
    let waits = futures::poll!(scheduler.as_mut().hold().next());
    anyhow::ensure!(waits.is_pending(), "a held scheduler emitted a key");
    let (count, workers) = (flags.count, usize::from(flags.workers));
    let mut phase = Phase::begin()?;
    let mut producers = JoinSet::new();
    for producer in 0..workers {
        let (requests, keys) = (requests.clone(), Arc::clone(&keys));
        producers.spawn(async move {
            for i in (producer..count).step_by(workers) {
                let _ = requests.unbounded_send(request(keys[i % keys.len()].clone()));
            }
        });
    }
    drop(requests);
    // Ends when the last producer is done and all requests are consumed.
    let taken = tokio::spawn(async move { scheduler.as_mut().hold().next().await.is_none() });
    producers.join_all().await;
    anyhow::ensure!(taken.await?, "a held scheduler emitted a key");
    phase.end()?;
    Ok(phase)
}
