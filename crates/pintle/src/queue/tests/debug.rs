//! Debug output, and the order of keys in a drain's report.

use super::{ms, take};
use crate::queue::{
    WorkQueue,
    metrics::QueueMetrics,
    rate_limit::{ExponentialBackoff, FastSlow, MaxOf, RateLimiter},
};

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn drain_reports_keys_in_the_order_of_dequeueing() {
    let queue = super::queue();
    queue.add("a");
    queue.add("b");
    let a = take(&queue).unwrap();
    let _b = take(&queue).unwrap();
    a.forget();
    queue.add("c");
    let _c = take(&queue).unwrap();
    assert_eq!(queue.drain(ms(1)).await.processing, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn debug_output_of_a_queue_has_name_and_counts() {
    let builder = WorkQueue::builder("foos").rate_limiter(ExponentialBackoff::default());
    assert_eq!(format!("{builder:?}"), r#"Builder { name: "foos", .. }"#);
    let queue = builder.build();
    assert_eq!(queue.name(), "foos");
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    queue.add_after("d", ms(1));
    let item = take(&queue).unwrap();
    assert_eq!(
        format!("{queue:?}"),
        r#"WorkQueue { name: "foos", ready: 2, delayed: 1, processing: 1, shut_down: false, .. }"#
    );
    assert_eq!(format!("{item:?}"), r#"Item { key: "a", priority: 0, .. }"#);
    assert_eq!(format!("{:?}", QueueMetrics::default()), "QueueMetrics");
}

#[test]
fn debug_output_of_a_limiter_has_its_numbers() {
    let backoff = ExponentialBackoff::<u8>::new(ms(1), ms(8));
    assert_eq!(
        format!("{backoff:?}"),
        "ExponentialBackoff { base: 1ms, max: 8ms, .. }"
    );
    let fast_slow = FastSlow::<u8>::new(ms(1), ms(8), 3);
    assert_eq!(
        format!("{fast_slow:?}"),
        "FastSlow { fast: 1ms, slow: 8ms, fast_tries: 3, .. }"
    );
    let both = MaxOf::new([
        Box::new(backoff) as Box<dyn RateLimiter<u8>>,
        Box::new(fast_slow),
    ]);
    assert_eq!(format!("{both:?}"), "MaxOf { limiters: 2 }");
}
