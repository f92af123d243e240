use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn service(created: i64) -> Service {
    let created = at(created).to_string();
    serde_json::from_value(json!({ "metadata": { "name": "web", "creationTimestamp": created } }))
        .unwrap()
}

fn pod(name: &str, changed: i64) -> Arc<Pod> {
    let ready = json!({
        "type": "Ready", "status": "False", "lastTransitionTime": at(changed).to_string(),
    });
    let pod = json!({ "metadata": { "name": name }, "status": { "conditions": [ready] } });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Proves endpoints/slices.
#[test]
fn earliest_change_since_last_call_counts() {
    let (triggers, key) = (Triggers::default(), ObjectKey::namespaced("default", "web"));
    let observe = |created, pods: &[(&str, i64)]| {
        let pods: Vec<_> = pods.iter().map(|(name, at)| pod(name, *at)).collect();
        triggers.observe(&key, &service(created), &pods)
    };
    let created = Some(at(5));
    assert_eq!(observe(5, &[("a", 1)]), created, "the Service is new");
    assert_eq!(observe(5, &[("a", 1)]), None);
    assert_eq!(observe(5, &[("a", 9), ("b", 8)]), Some(at(8)));
    assert_eq!(observe(5, &[("b", 8)]), None, "a Pod left");
    assert_eq!(
        observe(5, &[("a", 9), ("b", 8)]),
        Some(at(9)),
        "and came back"
    );
    assert_eq!(observe(7, &[("a", 9), ("b", 8)]), Some(at(7)), "recreated");
    triggers.forget(&key);
    assert_eq!(observe(5, &[("a", 9)]), created);
}

/// Proves endpoints/slices.
#[test]
fn annotation_is_set_or_removed() {
    let mut metadata = ObjectMeta::default();
    annotate(&mut metadata, Some(at(0)));
    let written = meta::annotation(&metadata, TRIGGER_TIME);
    assert_eq!(written, Some("2023-11-14T22:13:20Z"));
    annotate(&mut metadata, None);
    assert_eq!(metadata, ObjectMeta::default());
}
