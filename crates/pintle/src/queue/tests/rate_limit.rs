//! The exact delays of the rate limiters.

use std::{sync::Arc, time::Duration};

use tokio::time::{advance, sleep};

use super::ms;
use crate::queue::{
    WorkQueue,
    rate_limit::{
        ExponentialBackoff, FastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxWait,
        with_shared_bucket,
    },
};

fn delays<T>(limiter: &impl RateLimiter<T>, key: &T, tries: usize) -> Vec<Duration> {
    (0..tries).map(|_| limiter.when(key)).collect()
}

/// Proves queue/retries, queue/limiters.
#[test]
fn exponential_backoff_doubles_and_resets_per_key() {
    let limiter = ExponentialBackoff::new(ms(1), Duration::from_secs(1));
    assert_eq!(delays(&limiter, &"one", 5), [1, 2, 4, 8, 16].map(ms));
    assert_eq!(limiter.retries(&"one"), 5);
    assert_eq!(delays(&limiter, &"two", 2), [1, 2].map(ms));
    assert_eq!(limiter.retries(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.retries(&"one"), 0);
    assert_eq!(limiter.retries(&"two"), 2);
    assert_eq!(limiter.when(&"one"), ms(1));
}

/// Proves queue/limiters.
#[test]
fn default_backoff_reaches_1000_s_in_19_failures() {
    let limiter = ExponentialBackoff::default();
    let delays = delays(&limiter, &"a", 20);
    assert_eq!(delays[..4], [5, 10, 20, 40].map(ms));
    assert_eq!(delays[17], ms(5 << 17));
    assert_eq!(delays[18..], [Duration::from_secs(1000); 2]);
}

/// Proves queue/limiters.
#[test]
fn backoff_never_overflows_and_never_shrinks() {
    for (base, max) in [
        (ms(1), Duration::from_hours(1000)),
        (Duration::from_nanos(1), Duration::MAX),
        (Duration::MAX, Duration::MAX),
        (Duration::from_secs(2), Duration::from_secs(1)),
    ] {
        let limiter = ExponentialBackoff::new(base, max);
        let delays = delays(&limiter, &"a", 300);
        assert!(delays.is_sorted(), "{base:?} {max:?}");
        assert_eq!(delays[299], max);
    }
    let none = ExponentialBackoff::new(Duration::ZERO, Duration::from_secs(1));
    assert!(delays(&none, &"a", 300).iter().all(Duration::is_zero));
}

/// Proves queue/limiters, queue/get-blocks.
#[test]
fn forgetting_a_key_frees_its_memory() {
    let key = Arc::<str>::from("a");
    let limiter = ExponentialBackoff::default();
    limiter.when(&key);
    limiter.when(&key);
    assert_eq!(Arc::strong_count(&key), 2);
    limiter.forget(&key);
    assert_eq!(Arc::strong_count(&key), 1);
}

/// Proves queue/limiters.
#[tokio::test(start_paused = true)]
async fn token_bucket_is_shared_by_all_keys() {
    let limiter = TokenBucket::new(10, 3);
    let when = |key| RateLimiter::<&str>::when(&limiter, &key);
    assert_eq!([when("a"), when("b"), when("c")], [Duration::ZERO; 3]);
    assert_eq!([when("a"), when("a"), when("b")], [100, 200, 300].map(ms));
    sleep(ms(150)).await;
    assert_eq!(when("a"), ms(250), "a reservation counts, used or not");
    limiter.forget(&"a");
    assert_eq!(limiter.retries(&"a"), 0);
    advance(Duration::from_hours(1)).await;
    assert_eq!(
        [when("a"), when("a"), when("a"), when("a")],
        [0, 0, 0, 100].map(ms),
        "an idle hour refills one burst"
    );
}

/// Proves queue/limiters.
#[tokio::test(start_paused = true)]
async fn default_bucket_has_100_tokens_and_10_per_second() {
    let limiter = TokenBucket::default();
    assert!(delays(&limiter, &"a", 100).iter().all(Duration::is_zero));
    assert_eq!(delays(&limiter, &"a", 2), [100, 200].map(ms));
    let least = TokenBucket::new(0, 0);
    assert_eq!(
        delays(&least, &"a", 3),
        [0, 1000, 2000].map(ms),
        "at least one of each"
    );
}

/// Proves queue/retries.
#[tokio::test(start_paused = true)]
async fn longest_delay_of_several_limiters_counts() {
    let limiter = MaxOf::new([
        Box::new(FastSlow::new(ms(5), Duration::from_secs(3), 3)) as Box<dyn RateLimiter<_>>,
        Box::new(ExponentialBackoff::new(ms(1), Duration::from_secs(1))),
    ]);
    assert_eq!(delays(&limiter, &"one", 5), [5, 5, 5, 3000, 3000].map(ms));
    assert_eq!(limiter.retries(&"one"), 5);
    assert_eq!(delays(&limiter, &"two", 1), [ms(5)]);
    limiter.forget(&"one");
    assert_eq!(limiter.retries(&"one"), 0);
    assert_eq!(limiter.when(&"one"), ms(5));

    let none = MaxOf::new([]);
    assert_eq!((none.when(&"a"), none.retries(&"a")), (Duration::ZERO, 0));

    let shared = with_shared_bucket();
    assert_eq!(delays(&shared, &0, 2), [5, 10].map(ms));
    let others = (1..=98).map(|other| shared.when(&other)).max();
    assert_eq!(others, Some(ms(5)));
    assert_eq!(shared.when(&99), ms(100), "the 101st retry overall");
    assert_eq!(shared.retries(&0), 2);
}

/// Proves queue/limiters.
#[test]
fn fast_slow_is_fast_for_the_first_failures_of_a_key() {
    let limiter = FastSlow::new(ms(5), Duration::from_secs(10), 3);
    assert_eq!(
        delays(&limiter, &"one", 5),
        [5, 5, 5, 10_000, 10_000].map(ms)
    );
    assert_eq!(limiter.retries(&"one"), 5);
    assert_eq!(delays(&limiter, &"two", 2), [5, 5].map(ms));
    limiter.forget(&"one");
    assert_eq!(limiter.retries(&"one"), 0);
    assert_eq!(limiter.when(&"one"), ms(5));
}

/// Proves queue/limiters.
#[test]
fn maximum_wait_caps_the_delay_and_keeps_counting() {
    let limiter = WithMaxWait::new(
        ExponentialBackoff::new(ms(1), Duration::from_secs(1)),
        ms(3),
    );
    assert_eq!(delays(&limiter, &"a", 4), [1, 2, 3, 3].map(ms));
    assert_eq!(limiter.retries(&"a"), 4);
    limiter.forget(&"a");
    assert_eq!(limiter.when(&"a"), ms(1));
}

/// Proves queue/retries.
#[test]
fn boxed_limiter_works_like_any_other() {
    let chosen: Box<dyn RateLimiter<&str>> =
        Box::new(ExponentialBackoff::new(ms(1), Duration::from_secs(1)));
    let limiter = WithMaxWait::new(chosen, ms(3));
    assert_eq!(delays(&limiter, &"a", 4), [1, 2, 3, 3].map(ms));
    assert_eq!(limiter.retries(&"a"), 4);
    limiter.forget(&"a");
    assert_eq!(limiter.retries(&"a"), 0);
}

/// Proves queue/get-blocks.
#[test]
fn memory_of_many_failures_is_released() {
    let limiter = ExponentialBackoff::default();
    let fail = |keys| (0..keys).for_each(|key| assert!(!limiter.when(&key).is_zero()));
    let forget = |keys: std::ops::Range<u32>| keys.for_each(|key| limiter.forget(&key));
    fail(500);
    let usual = limiter.memory();
    forget(0..500);
    assert_eq!(limiter.memory(), usual, "capacity for usual failures stays");
    fail(5000);
    let worst = limiter.memory();
    forget(2500..5000);
    assert_eq!(limiter.memory(), worst, "half of it is in use");
    forget(100..2500);
    assert!(limiter.memory() < worst / 3, "{worst} before");
    assert_eq!(limiter.retries(&99), 1);
}

/// Proves queue/retries.
#[tokio::test(start_paused = true)]
async fn failures_of_other_keys_do_not_delay_a_retry() {
    let queue = WorkQueue::<u32>::new("foos");
    for key in 0..10_000 {
        queue.add(key);
        queue.get().await.unwrap().retry();
    }
    queue.add(10_000);
    loop {
        let item = queue.get().await.unwrap();
        if *item.key() == 10_000 {
            assert_eq!(item.retry(), ms(5));
            return;
        }
        item.forget();
    }
}

/// Proves queue/limiters.
#[tokio::test(start_paused = true)]
async fn shared_bucket_never_delays_beyond_1000_seconds() {
    let limiter = TokenBucket::default();
    let cap = Duration::from_secs(1000);
    let longest = (0..100_000).map(|key| limiter.when(&key)).max();
    assert_eq!(longest, Some(cap));
    // The debt is bounded too: half an hour later the bucket is full again.
    advance(Duration::from_secs(1800)).await;
    assert!(delays(&limiter, &0, 100).iter().all(Duration::is_zero));
}
