//! What a scrape shows.

use tokio::time::sleep;

use super::{ms, take};
use crate::{metrics::Metrics, queue::WorkQueue};

fn line(metrics: &Metrics, begins: &str) -> Option<String> {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.starts_with(begins))?;
    line.rsplit(' ').next().map(str::to_owned)
}

/// Proves Q-40, Q-41.
#[tokio::test(start_paused = true)]
async fn a_scrape_shows_what_operators_look_for() {
    let metrics = Metrics::new();
    let queue = WorkQueue::builder("foos").metrics(&metrics).build();
    let value = |name: &str| line(&metrics, &format!("workqueue_{name}{{name=\"foos\"}}"));
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
        "added in process counts at once"
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
    let bucket = r#"workqueue_work_duration_seconds_bucket{le="1.0",name="foos"}"#;
    assert_eq!(line(&metrics, bucket).as_deref(), Some("1"));
    let smallest = r#"workqueue_work_duration_seconds_bucket{le="1e-8",name="foos"}"#;
    assert_eq!(line(&metrics, smallest).as_deref(), Some("0"));
    sleep(ms(5000)).await;
    assert_eq!(
        value("depth").as_deref(),
        Some("3.0"),
        "what is due counts, although nobody asked"
    );
    drop(queue);
    assert_eq!(
        value("adds_total").as_deref(),
        Some("5"),
        "a counter outlives its queue"
    );
    assert_eq!(value("depth").as_deref(), Some("0.0"));
}

/// Proves Q-40.
#[tokio::test(start_paused = true)]
async fn queues_of_one_name_are_added_up() {
    let metrics = Metrics::new();
    let one = WorkQueue::builder("foos").metrics(&metrics).build();
    let two = WorkQueue::builder("foos").metrics(&metrics).build();
    let other = WorkQueue::builder("bars").metrics(&metrics).build();
    one.add("a");
    two.add("a");
    other.add("a");
    assert_eq!(
        line(&metrics, r#"workqueue_depth{name="foos"}"#).as_deref(),
        Some("2.0")
    );
    assert_eq!(
        line(&metrics, r#"workqueue_depth{name="bars"}"#).as_deref(),
        Some("1.0")
    );
    assert_eq!(
        metrics.encode().matches("# TYPE workqueue_depth").count(),
        1
    );
}
