//! Keys through the scheduler, which is what stands between triggers and reconciles here.
//!
//! It is a stream: whatever asks it is the only one that does, and it knows no "done". What keeps a
//! key from being reconciled twice at once is the runner behind it, which is not public; `reconcile`
//! measures both together.

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

/// As the applier asks for a key at once.
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

/// One producer adds, one consumer takes.
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
            // Nobody hangs up before the last key has come.
            let _ = requests.unbounded_send(request(key));
        }
        requests
    });
    consumer.await?;
    phase.end()?;
    phase.keep(producer.await?);
    Ok(phase)
}

/// Producers add keys that wait already; they are held back, and taken by nobody.
async fn duplicate(flags: &Flags) -> Result<Phase> {
    let keys: Arc<[Key]> = keys(1000).into();
    let (requests, queue) = mpsc::unbounded();
    let mut scheduler = Box::pin(scheduler(queue));
    for key in &*keys {
        requests.unbounded_send(request(key.clone()))?;
    }
    // Until it has nothing more to take in.
    let waits = futures::poll!(scheduler.as_mut().hold().next());
    anyhow::ensure!(waits.is_pending(), "a held scheduler let go of a key");
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
    // It ends when the last producer has, and all that they sent was taken in.
    let taken = tokio::spawn(async move { scheduler.as_mut().hold().next().await.is_none() });
    producers.join_all().await;
    anyhow::ensure!(taken.await?, "a held scheduler let go of a key");
    phase.end()?;
    Ok(phase)
}
