use serde_json::json;

use super::{super::testing::pod, *};

fn of(name: &str, priority: i32) -> Arc<PodInfo> {
    pod(name, &json!({ "spec": { "priority": priority } }))
}

/// Proves scheduler/preemption.
#[test]
fn pods_are_taken_by_priority_then_age() {
    let now = Instant::now();
    let mut queue = Queue::default();
    let older = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" } });
    let newer = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:01Z" } });
    queue.upsert(pod("a", &newer));
    queue.upsert(pod("b", &older));
    queue.upsert(of("c", 7));
    let order: Vec<String> = std::iter::from_fn(|| queue.take(now))
        .map(|pod| pod.uid.clone())
        .collect();
    assert_eq!(order, ["c", "b", "a"]);
}

/// Proves pods/scheduling.
#[test]
fn unschedulable_pod_waits_for_a_change_that_may_help() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.upsert(of("a", 0));
    assert!(queue.take(now).is_some());
    assert!(queue.finish("a", Outcome::Refused, now));
    queue.apply(Change::Neighbours);
    queue.upsert(of("a", 0));
    assert_eq!(queue.take(now), None, "neither change concerns it");
    queue.apply(Change::Room);
    assert!(queue.take(now).is_some());
    queue.apply(Change::Room);
    assert_eq!(queue.take(now), None, "in flight");
    queue.finish("a", Outcome::Refused, now);
    assert!(
        queue.take(now).is_some(),
        "the change arrived in the meantime"
    );
    queue.finish("a", Outcome::Refused, now);
    let bigger = pod("a", &json!({ "spec": { "containers": [] } }));
    queue.upsert(bigger);
    assert!(queue.take(now).is_some(), "its requirements changed");
    queue.remove("a");
    assert!(!queue.finish("a", Outcome::Bound, now));
}

/// Proves cluster/crash-safe.
#[test]
fn failed_write_is_retried_with_back_off() {
    let mut now = Instant::now();
    let mut queue = Queue::default();
    queue.upsert(of("a", 0));
    for wait in [1, 2, 4, 8, 10, 10] {
        assert!(queue.take(now).is_some());
        queue.finish("a", Outcome::Failed, now);
        assert_eq!(queue.take(now), None);
        let due = queue.next_due().unwrap();
        assert_eq!(due - now, Duration::from_secs(wait));
        now = due;
    }
}
