//! The contract of the queue, under virtual time.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use super::{Tracked, ends, ms, queue, run_all, take};
use crate::queue::{Priority, WorkQueue, rate_limit::RateLimiter};

/// Proves queue/dedup, queue/get-blocks.
#[tokio::test(start_paused = true)]
async fn duplicate_adds_run_once() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add("a");
    assert_eq!(queue.len(), 2);
    assert_eq!(run_all(&queue), ["a", "b"]);
    assert!(queue.is_empty());
}

/// Proves queue/get-blocks.
#[tokio::test(start_paused = true)]
async fn waiting_worker_gets_a_key_added_later() {
    let queue = queue();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { ends(queue.get()).await.map(|item| *item.key()) }
    });
    sleep(ms(10)).await;
    assert!(!worker.is_finished());
    queue.add("a");
    assert_eq!(ends(worker).await.unwrap(), Some("a"));
}

/// Proves queue/dedup.
#[tokio::test(start_paused = true)]
async fn key_added_while_processing_runs_exactly_once_more() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    queue.add("a");
    queue.add("a");
    assert!(take(&queue).is_none(), "it is being processed");
    item.forget();
    let again = take(&queue).expect("one more run");
    again.forget();
    assert!(take(&queue).is_none(), "and only one");
}

/// Proves queue/dedup.
#[tokio::test(start_paused = true)]
async fn keys_run_in_order_and_a_readded_key_goes_last() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let item = take(&queue).unwrap();
    assert_eq!(*item.key(), "a");
    queue.add("a");
    item.forget();
    assert_eq!(run_all(&queue), ["b", "c", "a"]);
}

/// Proves queue/metrics.
#[tokio::test(start_paused = true)]
async fn len_counts_ready_keys_only() {
    let queue = queue();
    queue.add("processing");
    let item = take(&queue).unwrap();
    queue.add_after("later", ms(50));
    queue.add("now");
    queue.add("processing");
    assert_eq!(queue.len(), 1);
    sleep(ms(50)).await;
    assert_eq!(queue.len(), 2, "a due key counts without any call");
    item.forget();
    assert_eq!(queue.len(), 3);
}

/// Proves queue/shutdown.
#[tokio::test(start_paused = true)]
async fn shut_down_queue_returns_ready_keys_and_accepts_none() {
    let queue = queue();
    assert_eq!(queue.name(), "test");
    queue.add("a");
    queue.add("b");
    let a = take(&queue).unwrap();
    queue.add("a");
    assert!(!queue.is_shut_down() && !queue.is_empty());
    queue.shut_down();
    queue.shut_down();
    assert!(queue.is_shut_down());
    queue.add("c");
    queue.add_after("d", ms(0));
    let b = ends(queue.get()).await.unwrap();
    assert_eq!(*b.key(), "b");
    b.forget();
    a.forget();
    let a = ends(queue.get()).await.expect("added before the shutdown");
    assert_eq!(*a.key(), "a");
    a.forget();
    assert!(ends(queue.get()).await.is_none());
    assert!(ends(queue.get()).await.is_none());
}

/// Proves queue/shutdown.
#[tokio::test(start_paused = true)]
async fn shutdown_releases_workers_after_the_last_dirty_key() {
    let queue = queue();
    queue.add("a");
    let a = take(&queue).unwrap();
    queue.add("a");
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut ran = 0;
                while let Some(item) = ends(queue.get()).await {
                    ran += 1;
                    item.forget();
                }
                ran
            })
        })
        .collect();
    sleep(ms(1)).await;
    queue.shut_down();
    sleep(ms(1)).await;
    assert!(
        workers.iter().all(|worker| !worker.is_finished()),
        "one more run is pending"
    );
    a.forget();
    let mut ran = 0;
    for worker in workers {
        ran += timeout(ms(1), worker).await.expect("released").unwrap();
    }
    assert_eq!(ran, 1);
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn drain_waits_for_ready_dirty_and_processing_keys() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let a = take(&queue).unwrap();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let mut ran = Vec::new();
            sleep(ms(100)).await;
            a.forget();
            while let Some(item) = ends(queue.get()).await {
                sleep(ms(100)).await;
                ran.push(*item.key());
                item.forget();
            }
            ran
        }
    });
    let begin = Instant::now();
    let left = ends(queue.drain(Duration::from_secs(10))).await;
    assert!(left.is_drained());
    assert_eq!(begin.elapsed(), ms(400));
    assert_eq!(ends(worker).await.unwrap(), ["b", "c", "a"]);
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn drain_returns_remaining_keys_at_its_deadline() {
    let queue = queue();
    queue.add_after("in an hour", Duration::from_hours(1));
    queue.add_after("in a minute", Duration::from_mins(1));
    for key in ["held", "first", "second"] {
        queue.add(key);
    }
    let held = take(&queue).unwrap();
    let begin = Instant::now();
    let left = ends(queue.drain(Duration::from_secs(5))).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    assert!(!left.is_drained());
    assert_eq!(left.ready, ["first", "second"]);
    assert_eq!(left.processing, ["held"]);
    assert_eq!(left.delayed, ["in a minute", "in an hour"]);
    drop(held);
    assert_eq!(run_all(&queue), ["first", "second"]);
    let left = ends(queue.drain(Duration::ZERO)).await;
    assert!(left.is_drained());
    assert_eq!(left.delayed, ["held", "in a minute", "in an hour"]);
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn ready_or_processing_key_is_not_drained() {
    let queue = queue();
    queue.add("a");
    assert!(!ends(queue.drain(ms(1))).await.is_drained());
    let item = take(&queue).unwrap();
    assert!(!ends(queue.drain(ms(1))).await.is_drained());
    item.forget();
    assert!(ends(queue.drain(ms(1))).await.is_drained());
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn failure_while_draining_is_not_retried() {
    let queue = WorkQueue::builder("test").rate_limiter(NoDelay).build();
    queue.add("fails for ever");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(item) = ends(queue.get()).await {
                item.retry();
            }
        }
    });
    let left = ends(queue.drain(Duration::from_secs(10))).await;
    assert!(left.is_drained());
    assert_eq!(left.delayed, ["fails for ever"]);
    ends(worker).await.unwrap();
}

/// Proves queue/get-blocks.
#[tokio::test(start_paused = true)]
async fn finished_key_is_not_retained() {
    let queue = WorkQueue::new("test");
    let name = Arc::<str>::from("a");
    queue.add(Tracked(Arc::clone(&name)));
    queue.add_after(Tracked(Arc::clone(&name)), ms(10));
    take(&queue).unwrap().forget();
    assert_eq!(Arc::strong_count(&name), 1);
    queue.add_after(Tracked(Arc::clone(&name)), ms(10));
    assert!(queue.cancel(&Tracked(Arc::clone(&name))));
    assert_eq!(Arc::strong_count(&name), 1);
    queue.add(Tracked(Arc::clone(&name)));
    take(&queue).unwrap().retry();
    assert_eq!(
        Arc::strong_count(&name),
        3,
        "the queue and the back-off have it"
    );
    sleep(ms(5)).await;
    take(&queue).unwrap().forget();
    assert_eq!(Arc::strong_count(&name), 1);
}

/// Proves queue/no-lost-wakeup.
#[tokio::test(start_paused = true)]
async fn cancelled_get_passes_its_wake_up_on() {
    let queue = queue();
    let mut first = Box::pin(queue.get());
    assert!((&mut first).now_or_never().is_none());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { *ends(queue.get()).await.unwrap().key() }
    });
    sleep(ms(1)).await;
    queue.add("a");
    queue.add("b");
    drop(first);
    assert_eq!(timeout(ms(1), second).await.expect("woken").unwrap(), "a");
}

/// Proves queue/no-lost-wakeup.
#[tokio::test(start_paused = true)]
async fn unpolled_worker_strands_no_other_key() {
    let queue = queue();
    let idle = tokio::spawn({
        let queue = queue.clone();
        async move { *ends(queue.get()).await.unwrap().key() }
    });
    sleep(ms(1)).await;
    let mut unpolled = Box::pin(queue.get());
    assert!((&mut unpolled).now_or_never().is_none());
    queue.add("a");
    queue.add("b");
    assert_eq!(timeout(ms(1), idle).await.expect("woken").unwrap(), "a");
    assert_eq!(unpolled.await.unwrap().key(), &"b");
}

/// Proves queue/priority.
#[tokio::test(start_paused = true)]
async fn retried_item_keeps_its_priority_until_an_add_raises_it() {
    let queue = queue();
    queue.add_with_priority("low", Priority::LOW);
    take(&queue).unwrap().retry();
    sleep(ms(5)).await;
    let item = take(&queue).unwrap();
    assert_eq!(item.priority(), Priority::LOW);
    item.requeue_after(ms(10));
    sleep(ms(10)).await;
    queue.add("normal");
    assert_eq!(queue.len(), 2);
    let first = take(&queue).unwrap();
    assert_eq!(
        (*first.key(), first.priority()),
        ("normal", Priority::NORMAL)
    );
    queue.add("low");
    let second = take(&queue).unwrap();
    assert_eq!(second.priority(), Priority::NORMAL, "raised");
    first.forget();
    second.forget();
}

/// Proves queue/dropped-item-retries.
#[tokio::test(start_paused = true)]
async fn item_put_back_runs_last_and_keeps_its_backoff() {
    let queue = queue();
    queue.add("a");
    take(&queue).unwrap().retry();
    sleep(ms(5)).await;
    let item = take(&queue).unwrap();
    queue.add("b");
    item.put_back();
    assert_eq!(queue.retries(&"a"), 1);
    assert_eq!(run_all(&queue), ["b", "a"]);
    queue.add("c");
    let item = take(&queue).unwrap();
    queue.shut_down();
    item.put_back();
    assert_eq!(ends(queue.drain(Duration::ZERO)).await.delayed, ["c"]);
}

/// Proves queue/priority.
#[tokio::test(start_paused = true)]
async fn item_can_be_retried_with_another_priority() {
    let queue = queue();
    queue.add_with_priority("a", Priority::LOW);
    take(&queue)
        .unwrap()
        .with_priority(Priority::new(9))
        .retry();
    sleep(ms(5)).await;
    assert_eq!(take(&queue).unwrap().priority(), Priority::new(9));
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn panicking_rate_limiter_only_delays_its_key() {
    struct Broken;
    impl RateLimiter<&'static str> for Broken {
        fn when(&self, _: &&'static str) -> Duration {
            panic!("a bug in `when`")
        }
        fn forget(&self, _: &&'static str) {
            panic!("a bug in `forget`")
        }
        fn retries(&self, _: &&'static str) -> u32 {
            0
        }
    }
    let queue = WorkQueue::builder("test").rate_limiter(Broken).build();
    queue.add("a");
    let panics = AssertUnwindSafe(async {
        let _item = ends(queue.get()).await;
        panic!("a bug in the reconcile");
    });
    panics.catch_unwind().await.unwrap_err();
    let begin = Instant::now();
    let item = ends(queue.get()).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(1));
    item.forget();
    assert!(ends(queue.drain(Duration::ZERO)).await.is_drained());
}

/// Proves queue/yields.
#[tokio::test(start_paused = true)]
async fn busy_worker_lets_other_tasks_run() {
    let queue = WorkQueue::builder("test").rate_limiter(NoDelay).build();
    queue.add("a");
    let other = tokio::spawn(async {});
    let busy = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(item) = ends(queue.get()).await {
                item.retry();
            }
        }
    });
    other.await.unwrap();
    tokio::task::yield_now().await;
    assert!(!busy.is_finished());
    busy.abort();
}

struct NoDelay;

impl RateLimiter<&'static str> for NoDelay {
    fn when(&self, _: &&'static str) -> Duration {
        Duration::ZERO
    }
    fn forget(&self, _: &&'static str) {}
    fn retries(&self, _: &&'static str) -> u32 {
        0
    }
}
