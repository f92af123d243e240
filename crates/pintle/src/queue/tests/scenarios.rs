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
async fn key_added_in_process_runs_exactly_once_more() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    queue.add("a");
    queue.add("a");
    assert!(take(&queue).is_none(), "it is in process");
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

/// Proves queue/length.
#[tokio::test(start_paused = true)]
async fn len_counts_ready_keys_only() {
    let queue = queue();
    queue.add("in process");
    let item = take(&queue).unwrap();
    queue.add_after("later", ms(50));
    queue.add("now");
    queue.add("in process");
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
async fn drain_waits_for_ready_dirty_and_in_process_keys() {
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
async fn drain_returns_what_is_left_at_its_deadline() {
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
    assert_eq!(left.in_process, ["held"]);
    assert_eq!(left.delayed, ["in a minute", "in an hour"]);
    drop(held);
    assert_eq!(run_all(&queue), ["first", "second"]);
    let left = ends(queue.drain(Duration::ZERO)).await;
    assert!(left.is_drained());
    assert_eq!(left.delayed, ["held", "in a minute", "in an hour"]);
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn ready_or_in_process_key_is_not_drained() {
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

/// Proves queue/no-retained-keys.
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

/// Proves queue/delay.
#[tokio::test(start_paused = true)]
async fn delayed_key_runs_when_due() {
    let queue = queue();
    queue.add_after("now", Duration::ZERO);
    assert_eq!(run_all(&queue), ["now"]);
    queue.add_after("later", ms(50));
    let begin = Instant::now();
    let item = ends(queue.get()).await.unwrap();
    assert_eq!((*item.key(), begin.elapsed()), ("later", ms(50)));
    item.forget();
    sleep(Duration::from_secs(1)).await;
    assert!(take(&queue).is_none());
}

/// Proves queue/delay, queue/cancel-delay.
#[tokio::test(start_paused = true)]
async fn earlier_due_time_counts_until_cancelled() {
    let queue = queue();
    queue.add_after("a", ms(70));
    queue.add_after("a", ms(30));
    queue.add_after("a", ms(50));
    sleep(ms(30)).await;
    assert_eq!(run_all(&queue), ["a"]);
    sleep(ms(100)).await;
    assert!(queue.is_empty(), "later due times are dropped");

    queue.add_after("b", ms(30));
    assert!(queue.cancel(&"b"));
    assert!(!queue.cancel(&"b"));
    queue.add_after("b", ms(50));
    sleep(ms(30)).await;
    assert!(queue.is_empty());
    sleep(ms(20)).await;
    assert_eq!(run_all(&queue), ["b"]);
}

/// Proves queue/rate-limited-add.
#[tokio::test(start_paused = true)]
async fn shorter_of_backoff_and_delay_counts() {
    let queue = queue();
    queue.add_rate_limited("a");
    queue.add_after("a", ms(50));
    queue.add_after("b", ms(2));
    queue.add_rate_limited("b");
    sleep(ms(2)).await;
    assert_eq!(run_all(&queue), ["b"]);
    sleep(ms(3)).await;
    assert_eq!(run_all(&queue), ["a"]);
    sleep(ms(100)).await;
    assert!(queue.is_empty(), "longer delays are dropped");
}

/// Proves queue/add-replaces-delay.
#[tokio::test(start_paused = true)]
async fn add_replaces_a_pending_delay() {
    let queue = queue();
    queue.add_after("a", ms(50));
    queue.add("a");
    assert_eq!(run_all(&queue), ["a"]);
    sleep(ms(100)).await;
    assert!(queue.is_empty());
}

/// Proves queue/delay.
#[tokio::test(start_paused = true)]
async fn due_keys_run_in_order_of_due_times() {
    let queue = queue();
    for (key, delay) in [("third", 9), ("first", 3), ("second", 6), ("also third", 9)] {
        queue.add_after(key, ms(delay));
    }
    sleep(ms(20)).await;
    assert_eq!(run_all(&queue), ["first", "second", "third", "also third"]);
}

/// Proves queue/delay.
#[tokio::test(start_paused = true)]
async fn sleeping_worker_notices_an_earlier_due_time() {
    let queue = queue();
    queue.add_after("late", Duration::from_hours(1));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { *ends(queue.get()).await.unwrap().key() }
    });
    sleep(ms(1)).await;
    queue.add_after("soon", ms(20));
    let begin = Instant::now();
    assert_eq!(ends(worker).await.unwrap(), "soon");
    assert_eq!(begin.elapsed(), ms(20));
}

/// Proves queue/delay.
#[tokio::test(start_paused = true)]
async fn delay_of_years_fires_on_time() {
    let queue = queue();
    queue.add_after("never", Duration::MAX);
    queue.add_after("in three years", Duration::from_hours(3 * 365 * 24));
    let begin = Instant::now();
    let item = ends(queue.get()).await.unwrap();
    assert_eq!(*item.key(), "in three years");
    assert_eq!(begin.elapsed(), Duration::from_hours(3 * 365 * 24));
}

/// Proves queue/delay, queue/dedup.
#[tokio::test(start_paused = true)]
async fn key_that_becomes_due_in_process_runs_once_more() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    queue.add_after("a", ms(10));
    sleep(ms(20)).await;
    assert!(take(&queue).is_none(), "it is in process");
    item.forget();
    assert_eq!(run_all(&queue), ["a"]);

    queue.add("b");
    let item = take(&queue).unwrap();
    queue.add_after("b", ms(10));
    item.forget();
    assert!(queue.is_empty(), "not yet due");
    sleep(ms(10)).await;
    assert_eq!(run_all(&queue), ["b"]);
}

/// Proves queue/rate-limited-add.
#[tokio::test(start_paused = true)]
async fn failing_key_backs_off_until_forgotten() {
    let queue = queue();
    queue.add("a");
    for (failures, delay) in [(0, 5), (1, 10), (2, 20), (3, 40)] {
        let item = ends(queue.get()).await.unwrap();
        assert_eq!(item.retries(), failures);
        assert_eq!(item.retry(), ms(delay));
        sleep(ms(delay - 1)).await;
        assert!(take(&queue).is_none());
        sleep(ms(1)).await;
    }
    ends(queue.get()).await.unwrap().forget();
    assert_eq!(queue.retries(&"a"), 0);
    queue.add_rate_limited("a");
    let begin = Instant::now();
    ends(queue.get()).await.unwrap().forget();
    assert_eq!(begin.elapsed(), ms(5));
    queue.add_rate_limited("b");
    queue.forget(&"b");
    assert_eq!(queue.retries(&"b"), 0);
    sleep(ms(5)).await;
    assert_eq!(
        run_all(&queue),
        ["b"],
        "forgetting resets the back-off, not the delay"
    );
}

/// Proves queue/retry-after.
#[tokio::test(start_paused = true)]
async fn retry_after_sets_the_delay_and_counts_the_failure() {
    let queue = queue();
    queue.add("a");
    take(&queue).unwrap().retry_after(Duration::from_secs(30));
    assert_eq!(queue.retries(&"a"), 1);
    sleep(Duration::from_secs(29)).await;
    assert!(queue.is_empty());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(take(&queue).unwrap().retry(), ms(10));
}

/// Proves queue/requeue-after-is-success.
#[tokio::test(start_paused = true)]
async fn requeue_after_counts_as_success() {
    let queue = queue();
    queue.add("a");
    take(&queue).unwrap().retry();
    sleep(ms(5)).await;
    take(&queue).unwrap().requeue_after(Duration::from_secs(30));
    assert_eq!(queue.retries(&"a"), 0);
    sleep(Duration::from_secs(29)).await;
    assert!(queue.is_empty());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(run_all(&queue), ["a"]);
}

/// Proves queue/dropped-item-retries.
#[tokio::test(start_paused = true)]
async fn dropped_item_is_retried_with_backoff() {
    async fn fails(queue: &WorkQueue<&'static str>) -> Result<(), &'static str> {
        let item = ends(queue.get()).await.ok_or("shut down")?;
        Err("the server said no")?;
        item.forget();
        Ok(())
    }
    let queue = queue();
    queue.add("a");
    fails(&queue).await.unwrap_err();
    assert_eq!((queue.retries(&"a"), queue.len()), (1, 0));
    sleep(ms(5)).await;

    let panics = AssertUnwindSafe(async {
        let _item = ends(queue.get()).await;
        panic!("a bug in the reconcile");
    });
    panics.catch_unwind().await.unwrap_err();
    assert_eq!((queue.retries(&"a"), queue.len()), (2, 0));
    sleep(ms(10)).await;

    let cancelled = timeout(ms(1), async {
        let _item = ends(queue.get()).await;
        std::future::pending::<()>().await;
    });
    cancelled.await.unwrap_err();
    assert_eq!((queue.retries(&"a"), queue.len()), (3, 0));
    sleep(ms(20)).await;
    assert_eq!(run_all(&queue), ["a"]);
}

/// Proves queue/cancelled-get.
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

/// Proves queue/wake-per-key.
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

/// Proves queue/cancelled-get.
#[tokio::test(start_paused = true)]
async fn another_worker_takes_over_the_timer() {
    let queue = queue();
    queue.add_after("a", ms(50));
    let mut first = Box::pin(queue.get());
    assert!((&mut first).now_or_never().is_none());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { *ends(queue.get()).await.unwrap().key() }
    });
    sleep(ms(10)).await;
    drop(first);
    let begin = Instant::now();
    assert_eq!(ends(second).await.unwrap(), "a");
    assert_eq!(begin.elapsed(), ms(40));
}

/// Proves queue/priority-merge.
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

/// Proves queue/put-back.
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

/// Proves queue/priority-merge.
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
