//! Delayed keys: explicit delays, back-off, and the worker that holds the timer.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use super::{ends, ms, queue, run_all, take};
use crate::queue::WorkQueue;

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

/// Proves queue/delay.
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

/// Proves queue/retries.
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

/// Proves queue/delay.
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
async fn key_that_becomes_due_while_processing_runs_once_more() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    queue.add_after("a", ms(10));
    sleep(ms(20)).await;
    assert!(take(&queue).is_none(), "it is being processed");
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

/// Proves queue/retries.
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

/// Proves queue/retries.
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

/// Proves queue/retries.
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

/// Proves queue/no-lost-wakeup.
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
