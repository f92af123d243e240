//! The metrics of queues.

use tokio::time::sleep;

use super::{ms, take};
use crate::{
    metrics::Metrics,
    queue::{WorkQueue, metrics::QueueMetrics},
};

fn line(metrics: &Metrics, begins: &str) -> Option<String> {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.starts_with(begins))?;
    line.rsplit(' ').next().map(str::to_owned)
}

/// Proves queue/metrics.
#[tokio::test(start_paused = true)]
async fn scrape_has_client_go_metrics() {
    let metrics = Metrics::new();
    let queue = WorkQueue::builder("foos").metrics(&metrics).build();
    let value = |name: &str| {
        line(
            &metrics,
            &format!("workqueue_{name}{{name=\"foos\",controller=\"foos\"}}"),
        )
    };
    queue.add("a");
    queue.add("a");
    queue.add("b");
    queue.add_after("c", ms(5000));
    assert_eq!(value("depth").as_deref(), Some("2.0"));
    assert_eq!(value("delayed").as_deref(), Some("1.0"));
    assert_eq!(value("adds_total").as_deref(), Some("2"));
    assert_eq!(value("retries_total").as_deref(), Some("1"));
    sleep(ms(250)).await;
    let a = take(&queue).unwrap();
    sleep(ms(500)).await;
    let b = take(&queue).unwrap();
    queue.add("a");
    assert_eq!(
        value("depth").as_deref(),
        Some("1.0"),
        "a dirty key counts immediately"
    );
    assert_eq!(value("queue_duration_seconds_count").as_deref(), Some("2"));
    assert_eq!(value("queue_duration_seconds_sum").as_deref(), Some("1.0"));
    sleep(ms(1000)).await;
    assert_eq!(value("unfinished_work_seconds").as_deref(), Some("2.5"));
    assert_eq!(
        value("longest_running_processor_seconds").as_deref(),
        Some("1.5")
    );
    a.forget();
    drop(b);
    assert_eq!(value("work_duration_seconds_sum").as_deref(), Some("2.5"));
    assert_eq!(value("undecided_total").as_deref(), Some("1"));
    assert_eq!(value("retries_total").as_deref(), Some("2"));
    assert_eq!(value("unfinished_work_seconds").as_deref(), Some("0.0"));
    let bucket =
        r#"workqueue_work_duration_seconds_bucket{le="1.0",name="foos",controller="foos"}"#;
    assert_eq!(line(&metrics, bucket).as_deref(), Some("1"));
    let smallest =
        r#"workqueue_work_duration_seconds_bucket{le="1e-8",name="foos",controller="foos"}"#;
    assert_eq!(line(&metrics, smallest).as_deref(), Some("0"));
    sleep(ms(5000)).await;
    assert_eq!(
        value("depth").as_deref(),
        Some("3.0"),
        "a due key counts without any call"
    );
    drop(queue);
    assert_eq!(
        value("adds_total").as_deref(),
        Some("5"),
        "a counter outlives its queue"
    );
    assert_eq!(value("depth").as_deref(), Some("0.0"));
}

/// Proves queue/metrics.
#[tokio::test(start_paused = true)]
async fn queues_with_one_name_are_added_up() {
    let metrics = Metrics::new();
    let one = WorkQueue::builder("foos").metrics(&metrics).build();
    let two = WorkQueue::builder("foos").metrics(&metrics).build();
    let other = WorkQueue::builder("bars").metrics(&metrics).build();
    one.add("a");
    two.add("a");
    other.add("a");
    assert_eq!(
        line(
            &metrics,
            r#"workqueue_depth{name="foos",controller="foos"}"#
        )
        .as_deref(),
        Some("2.0")
    );
    assert_eq!(
        line(
            &metrics,
            r#"workqueue_depth{name="bars",controller="bars"}"#
        )
        .as_deref(),
        Some("1.0")
    );
    assert_eq!(
        metrics.encode().matches("# TYPE workqueue_depth").count(),
        1
    );
}

/// Proves queue/metrics.
#[tokio::test(start_paused = true)]
async fn counters_include_queues_that_have_ended() {
    let metrics = Metrics::new();
    let value = |name: &str| {
        line(
            &metrics,
            &format!("workqueue_{name}{{name=\"foos\",controller=\"foos\"}}"),
        )
    };
    let ended = WorkQueue::builder("foos").metrics(&metrics).build();
    let one = WorkQueue::builder("foos").metrics(&metrics).build();
    let two = WorkQueue::builder("foos").metrics(&metrics).build();
    for queue in [&ended, &one, &two] {
        queue.add("a");
        queue.add("b");
        queue.add_after("c", ms(60_000));
        sleep(ms(1000)).await;
        drop(take(queue).unwrap());
        let b = take(queue).unwrap();
        sleep(ms(2000)).await;
        b.forget();
        queue.cancel(&"a");
        queue.add("d");
    }
    drop(ended);
    let _running = [take(&one).unwrap(), take(&two).unwrap()];
    sleep(ms(500)).await;
    one.add("e");
    two.add("e");
    for (name, expected) in [
        ("adds_total", "11"),
        ("retries_total", "6"),
        ("undecided_total", "3"),
        ("queue_duration_seconds_count", "8"),
        // Two keys waited one second in each queue, and `d` in `one` waited three more.
        ("queue_duration_seconds_sum", "9.0"),
        ("work_duration_seconds_count", "6"),
        ("work_duration_seconds_sum", "6.0"),
        ("depth", "2.0"),
        ("delayed", "2.0"),
        ("unfinished_work_seconds", "1.0"),
        ("longest_running_processor_seconds", "0.5"),
    ] {
        assert_eq!(value(name).as_deref(), Some(expected), "{name}");
    }
}

/// Proves queue/metrics.
#[tokio::test(start_paused = true)]
async fn durations_fall_into_their_buckets() {
    let metrics = Metrics::new();
    let queue = WorkQueue::builder("foos").metrics(&metrics).build();
    for millis in [0, 1, 2, 10_000, 10_001, 1_000_000] {
        queue.add("a");
        let item = take(&queue).unwrap();
        sleep(ms(millis)).await;
        item.forget();
    }
    for (bound, expected) in [
        ("1e-8", "1"),
        ("0.0001", "1"),
        ("0.001", "2"),
        ("0.01", "3"),
        ("1.0", "3"),
        ("10.0", "4"),
        ("+Inf", "6"),
    ] {
        let bucket = format!(
            "workqueue_work_duration_seconds_bucket{{le=\"{bound}\",name=\"foos\",controller=\"foos\"}}"
        );
        assert_eq!(
            line(&metrics, &bucket).as_deref(),
            Some(expected),
            "{bound}"
        );
    }
}

/// Proves queue/get-blocks.
#[test]
fn only_counters_of_an_ended_queue_are_retained() {
    let metrics = Metrics::new();
    let build = || WorkQueue::builder("foos").metrics(&metrics).build();
    for key in 0..100 {
        build().add(key);
    }
    let _live = [build(), build()];
    assert_eq!(metrics.set::<QueueMetrics>().live(), 2);
    let adds = line(
        &metrics,
        r#"workqueue_adds_total{name="foos",controller="foos"}"#,
    );
    assert_eq!(adds.as_deref(), Some("100"));
}

#[test]
fn no_queue_exports_no_metrics() {
    let metrics = Metrics::new();
    metrics.set::<QueueMetrics>();
    assert!(!metrics.encode().contains("workqueue"));
}
