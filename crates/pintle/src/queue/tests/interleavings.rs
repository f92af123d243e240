//! The queue's hand-offs under many interleavings of producers, workers and shutdown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::future::join_all;
use shuttle::future::{JoinHandle, block_on, spawn};

use crate::{
    queue::{Item, WorkQueue, rate_limit::RateLimiter},
    sync::check,
};

/// Retries without a delay.
struct NoDelay;

impl RateLimiter<u8> for NoDelay {
    fn when(&self, _: &u8) -> Duration {
        Duration::ZERO
    }
    fn forget(&self, _: &u8) {}
    fn retries(&self, _: &u8) -> u32 {
        0
    }
}

fn queue() -> WorkQueue<u8> {
    WorkQueue::builder("model").rate_limiter(NoDelay).build()
}

/// The history of one key in a scenario.
#[derive(Default)]
struct Seen {
    processing: AtomicBool,
    runs: AtomicUsize,
    /// The number of adds when the last run started.
    adds_at_last_run: AtomicUsize,
    adds: AtomicUsize,
}

impl Seen {
    fn add(&self, queue: &WorkQueue<u8>, key: u8) {
        self.adds.fetch_add(1, SeqCst);
        queue.add(key);
    }

    async fn run(&self, item: &Item<u8>) {
        assert!(
            !self.processing.swap(true, SeqCst),
            "{} is being processed twice",
            item.key()
        );
        self.adds_at_last_run.store(self.adds.load(SeqCst), SeqCst);
        self.runs.fetch_add(1, SeqCst);
        shuttle::future::yield_now().await;
        self.processing.store(false, SeqCst);
    }
}

async fn work(queue: WorkQueue<u8>, seen: Arc<[Seen]>) {
    while let Some(item) = queue.get().await {
        seen[usize::from(*item.key())].run(&item).await;
        item.forget();
    }
}

/// Like [`work`], with `forget_and_next`.
async fn work_with_next(queue: WorkQueue<u8>, seen: Arc<[Seen]>) {
    while let Some(first) = queue.get().await {
        let mut next = Some(first);
        while let Some(item) = next {
            seen[usize::from(*item.key())].run(&item).await;
            next = item.forget_and_next();
        }
    }
}

/// Spawns one worker of each kind.
fn two_workers(queue: &WorkQueue<u8>, seen: &Arc<[Seen]>) -> [JoinHandle<()>; 2] {
    [
        spawn(work(queue.clone(), Arc::clone(seen))),
        spawn(work_with_next(queue.clone(), Arc::clone(seen))),
    ]
}

fn seen(keys: usize) -> Arc<[Seen]> {
    (0..keys).map(|_| Seen::default()).collect()
}

/// Proves queue/dedup.
#[test]
fn add_while_processing_is_not_lost_and_not_run_concurrently() {
    check(|| {
        let (queue, seen) = (queue(), seen(2));
        block_on(async {
            let workers = two_workers(&queue, &seen);
            let producers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, seen) = (queue.clone(), Arc::clone(&seen));
                    spawn(async move {
                        for key in [0, 1, 0] {
                            seen[usize::from(key)].add(&queue, key);
                            shuttle::future::yield_now().await;
                        }
                    })
                })
                .collect();
            join_all(producers).await;
            queue.shut_down();
            join_all(workers).await;
            for key in &*seen {
                let (adds, covered) = (key.adds.load(SeqCst), key.adds_at_last_run.load(SeqCst));
                assert_eq!(covered, adds, "the last run started after the last add");
                assert!(key.runs.load(SeqCst) <= adds);
            }
        });
    });
}

/// Proves queue/shutdown.
#[test]
fn dirty_key_runs_when_done_races_with_shutdown() {
    check(|| {
        let (queue, seen) = (queue(), seen(1));
        block_on(async {
            seen[0].add(&queue, 0);
            let item = queue.get().await.unwrap();
            seen[0].add(&queue, 0);
            let workers = two_workers(&queue, &seen);
            let end = spawn({
                let queue = queue.clone();
                async move { queue.shut_down() }
            });
            item.forget();
            end.await.unwrap();
            join_all(workers).await;
            assert_eq!(
                seen[0].runs.load(SeqCst),
                1,
                "one more run, and the workers ended"
            );
        });
    });
}

/// Proves queue/drain.
#[test]
fn nothing_runs_after_a_drain() {
    check(|| {
        let (queue, seen) = (queue(), seen(2));
        block_on(async {
            let workers = two_workers(&queue, &seen);
            seen[0].add(&queue, 0);
            seen[1].add(&queue, 1);
            shuttle::future::yield_now().await;
            seen[0].add(&queue, 0);
            let left = queue.drain(Duration::from_secs(1)).await;
            assert!(left.is_drained());
            let runs = || seen.iter().map(|key| key.runs.load(SeqCst)).sum::<usize>();
            let drained = runs();
            assert!(seen.iter().all(|key| !key.processing.load(SeqCst)));
            assert_eq!(seen[0].adds_at_last_run.load(SeqCst), 2);
            join_all(workers).await;
            assert_eq!(runs(), drained);
        });
    });
}

/// Proves queue/drain.
#[test]
fn concurrent_drains_survive_a_cancelled_one() {
    check(|| {
        let (queue, seen) = (queue(), seen(1));
        block_on(async {
            seen[0].add(&queue, 0);
            let drains: Vec<_> = (0..2)
                .map(|_| {
                    let queue = queue.clone();
                    spawn(async move { queue.drain(Duration::from_secs(1)).await.is_drained() })
                })
                .collect();
            let gives_up = spawn({
                let queue = queue.clone();
                async move {
                    let mut drain = Box::pin(queue.drain(Duration::from_secs(1)));
                    let _ = futures::poll!(&mut drain);
                }
            });
            work(queue.clone(), Arc::clone(&seen)).await;
            gives_up.await.unwrap();
            for drained in join_all(drains).await {
                assert!(drained.unwrap());
            }
        });
    });
}

/// Proves queue/no-lost-wakeup.
#[test]
fn cancelled_get_loses_no_wake_up() {
    check(|| {
        let queue = queue();
        block_on(async {
            let patient = spawn({
                let queue = queue.clone();
                async move { queue.get().await.map(Item::forget).is_some() }
            });
            let impatient = spawn({
                let queue = queue.clone();
                async move {
                    let mut get = Box::pin(queue.get());
                    if let std::task::Poll::Ready(item) = futures::poll!(&mut get) {
                        return item.map(Item::forget).is_some();
                    }
                    shuttle::future::yield_now().await;
                    false
                }
            });
            queue.add(0);
            if impatient.await.unwrap() {
                queue.add(1);
            }
            assert!(patient.await.unwrap());
        });
    });
}

/// Proves queue/dropped-item-retries.
#[test]
fn dropped_item_runs_again() {
    check(|| {
        let (queue, seen) = (queue(), seen(1));
        block_on(async {
            seen[0].add(&queue, 0);
            let careless = spawn({
                let queue = queue.clone();
                async move { drop(queue.get().await) }
            });
            let worker = spawn({
                let (queue, seen) = (queue.clone(), Arc::clone(&seen));
                async move {
                    let item = queue.get().await.unwrap();
                    seen[0].run(&item).await;
                    item.forget();
                }
            });
            // Whichever worker comes first, the other one gets the key too: a dropped key comes
            // back by itself, a forgotten one has to be added.
            worker.await.unwrap();
            seen[0].add(&queue, 0);
            careless.await.unwrap();
            assert!(queue.get().await.is_some_and(|item| *item.key() == 0));
        });
    });
}

/// Proves queue/delay, queue/no-lost-wakeup.
#[test]
fn delayed_keys_run_after_the_timekeeper_leaves() {
    check(|| {
        let queue = queue();
        block_on(async {
            let leaver = spawn({
                let queue = queue.clone();
                async move {
                    let mut get = Box::pin(queue.get());
                    if let std::task::Poll::Ready(item) = futures::poll!(&mut get) {
                        drop(get);
                        drop(item);
                    }
                }
            });
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let queue = queue.clone();
                    spawn(async move { queue.get().await.map(Item::forget).is_some() })
                })
                .collect();
            queue.add_after(0, Duration::from_micros(300));
            queue.add_after(1, Duration::from_micros(1));
            leaver.await.unwrap();
            for got in join_all(workers).await {
                assert!(got.unwrap());
            }
        });
    });
}
