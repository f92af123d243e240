//! The cost of a key in the work queue.
//!
//! Run it with `cargo bench -p pintle --bench queue`. Each figure is the best of many short rounds,
//! so that some of them run undisturbed even on a busy machine. With several workers the CPU time
//! of all threads is shown too, because wall time says little on a busy machine.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a benchmark prints its results"
)]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::cast_precision_loss, reason = "results are approximate")]

use std::{
    fs,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use pintle::{metrics::Metrics, queue::WorkQueue};
use tokio::runtime::{Builder, Runtime};

/// How long each figure is measured.
const BUDGET: Duration = Duration::from_millis(400);

fn keys(count: usize) -> Vec<Arc<str>> {
    (0..count)
        .map(|n| format!("default/some-object-{n:06}").into())
        .collect()
}

fn add_all(queue: &WorkQueue<Arc<str>>, keys: &[Arc<str>]) {
    for key in keys {
        queue.add(Arc::clone(key));
    }
}

/// Prints the best of several rounds, in nanoseconds per operation.
fn best(what: &str, count: usize, mut round: impl FnMut() -> Duration) {
    let begin = Instant::now();
    let mut best = round();
    while begin.elapsed() < BUDGET {
        best = best.min(round());
    }
    println!(
        "{what:<72} {:>8.1} ns",
        best.as_nanos() as f64 / count as f64
    );
}

fn timed(run: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    run();
    begin.elapsed()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Measures one key at a time in an otherwise empty queue.
fn one_key_at_a_time(what: &str, queue: &WorkQueue<Arc<str>>, keys: &[Arc<str>]) {
    let runtime = one_thread();
    best(what, keys.len(), || {
        runtime.block_on(async {
            timed_async(async {
                for key in keys {
                    queue.add(Arc::clone(key));
                    queue.get().await.expect("queue is open").forget();
                }
            })
            .await
        })
    });
}

async fn timed_async(run: impl Future<Output = ()>) -> Duration {
    let begin = Instant::now();
    run.await;
    begin.elapsed()
}

fn add_get_done() {
    let keys = keys(100_000);
    let few = &keys[..1000];
    one_key_at_a_time(
        "add + get + forget, string keys",
        &WorkQueue::new("bench"),
        few,
    );
    let metrics = Metrics::new();
    let counted = WorkQueue::builder("bench").metrics(&metrics).build();
    one_key_at_a_time(
        "add + get + forget, string keys, with metrics",
        &counted,
        few,
    );

    let runtime = one_thread();
    let queue = WorkQueue::<u64>::new("bench");
    best("add + get + forget, numbers", 1000, || {
        runtime.block_on(timed_async(async {
            for key in 0..1000 {
                queue.add(key);
                queue.get().await.expect("queue is open").forget();
            }
        }))
    });
    for count in [1_000, 10_000, 100_000] {
        let keys = &keys[..count];
        let queue = WorkQueue::new("bench");
        best(
            &format!("{count} adds, then get + forget for all"),
            count,
            || {
                runtime.block_on(timed_async(async {
                    add_all(&queue, keys);
                    for _ in keys {
                        queue.get().await.expect("queue is open").forget();
                    }
                }))
            },
        );
    }
    let queue = WorkQueue::new("bench");
    best("100000 adds, then forget_and_next for all", 100_000, || {
        runtime.block_on(timed_async(async {
            add_all(&queue, &keys);
            let mut item = queue.get().await;
            while let Some(current) = item {
                item = current.forget_and_next();
            }
        }))
    });
}

fn duplicates() {
    let queue = WorkQueue::<Arc<str>>::new("bench");
    let keys = keys(1000);
    add_all(&queue, &keys);
    best(
        "duplicate add, string keys (clone and drop included)",
        10_000,
        || {
            timed(|| {
                for _ in 0..10 {
                    add_all(&queue, &keys);
                }
            })
        },
    );
    let queue = WorkQueue::<u64>::new("bench");
    for key in 0..1000 {
        queue.add(key);
    }
    best("duplicate add, numbers", 10_000, || {
        timed(|| {
            for _ in 0..10 {
                for key in 0..1000 {
                    queue.add(black_box(key));
                }
            }
        })
    });
}

fn delays() {
    let runtime = one_thread();
    let keys = keys(100_000);
    let _inside = runtime.enter();
    best("add_after, 100000 keys waiting", keys.len(), || {
        let queue = WorkQueue::new("bench");
        let took = timed(|| {
            for (n, key) in keys.iter().enumerate() {
                queue.add_after(
                    Arc::clone(key),
                    Duration::from_secs(60 + n as u64 * 7919 % 1000),
                );
            }
        });
        drop(queue);
        took
    });
    best(
        "add_after + due + get + forget, 100000 keys",
        keys.len(),
        || {
            let queue = WorkQueue::new("bench");
            runtime.block_on(timed_async(async {
                for (n, key) in keys.iter().enumerate() {
                    queue.add_after(
                        Arc::clone(key),
                        Duration::from_nanos(1 + n as u64 * 7919 % 1000),
                    );
                }
                for _ in &keys {
                    queue.get().await.expect("queue is open").forget();
                }
            }))
        },
    );
    let queue = WorkQueue::new("bench");
    best(
        "cancel + add_after, 1000 keys, each 10 times",
        10_000,
        || {
            timed(|| {
                for n in 0..10 {
                    for key in &keys[..1000] {
                        queue.cancel(key);
                        queue.add_after(Arc::clone(key), Duration::from_secs(60 + n));
                    }
                }
            })
        },
    );
}

/// Returns the CPU time of all threads so far, from the kernel's accounting.
fn cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let nanos = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// A worker that finishes each key and then gets the next.
async fn get_and_forget(queue: WorkQueue<Arc<str>>) {
    while let Some(item) = queue.get().await {
        black_box(item.key());
        item.forget();
    }
}

/// A worker that finishes each key and gets the next under one lock, as a controller's workers do.
async fn forget_and_next(queue: WorkQueue<Arc<str>>) {
    while let Some(first) = queue.get().await {
        let mut next = Some(first);
        while let Some(item) = next {
            black_box(item.key());
            next = item.forget_and_next();
            tokio::task::coop::consume_budget().await;
        }
    }
}

/// Measures one producer and many workers that do nothing with their keys.
fn workers<W: Future<Output = ()> + Send + 'static>(
    what: &str,
    work: impl Fn(WorkQueue<Arc<str>>) -> W,
) {
    let keys: Arc<[Arc<str>]> = keys(100_000).into();
    for (workers, threads) in [(1, 1), (4, 2), (16, 2), (64, 2)] {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_time()
            .build()
            .expect("a runtime");
        let (mut wall, mut busy) = (Duration::MAX, Duration::MAX);
        for _ in 0..10 {
            let (took, worked) = runtime.block_on(async {
                let queue = WorkQueue::<Arc<str>>::new("bench");
                let workers: Vec<_> = (0..workers)
                    .map(|_| tokio::spawn(work(queue.clone())))
                    .collect();
                tokio::task::yield_now().await;
                let (begin, before) = (Instant::now(), cpu());
                let producer = tokio::spawn({
                    let (queue, keys) = (queue.clone(), Arc::clone(&keys));
                    async move {
                        for key in keys.iter() {
                            queue.add(Arc::clone(key));
                            tokio::task::coop::consume_budget().await;
                        }
                        queue.shut_down();
                    }
                });
                producer.await.expect("task does not panic");
                for worker in workers {
                    worker.await.expect("task does not panic");
                }
                (begin.elapsed(), cpu().saturating_sub(before))
            });
            wall = wall.min(took);
            busy = busy.min(worked);
        }
        let per_key = |time: Duration| time.as_nanos() as f64 / keys.len() as f64;
        println!(
            "{:<72} {:>8.1} ns, CPU {:.1} ns",
            format!("1 producer and {workers} workers on {threads} threads, {what}"),
            per_key(wall),
            per_key(busy)
        );
    }
}

fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096
}

/// Measures the memory of the queue, without the keys.
fn memory() {
    const COUNT: usize = 1_000_000;
    let keys = keys(COUNT);
    let per_key = |before: usize| (resident().saturating_sub(before)) as f64 / COUNT as f64;
    let before = resident();
    let queue = WorkQueue::new("bench");
    add_all(&queue, &keys);
    println!(
        "{:<72} {:>8.1} bytes",
        "memory per ready key",
        per_key(before)
    );
    let delayed = WorkQueue::new("bench");
    let before = resident();
    for key in &keys {
        delayed.add_after(Arc::clone(key), Duration::from_hours(1));
    }
    println!(
        "{:<72} {:>8.1} bytes",
        "memory per waiting key",
        per_key(before)
    );
}

fn main() {
    add_get_done();
    duplicates();
    delays();
    workers("get, forget", get_and_forget);
    workers("forget_and_next", forget_and_next);
    memory();
}
