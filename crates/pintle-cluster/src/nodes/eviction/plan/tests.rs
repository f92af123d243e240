use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn pod(tolerations: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "p", "uid": "p" },
        "spec": { "nodeName": "a", "containers": [], "tolerations": tolerations },
        "status": { "conditions": [{ "type": "Ready", "status": "False" }] },
    }))
    .unwrap()
}

fn node(ready: &str, taints: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": "a" },
        "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    }))
    .unwrap()
}

/// Proves nodes/eviction.
#[test]
fn pod_is_evicted_once_it_no_longer_tolerates_a_taint() {
    let seconds = |seconds| Verdict::Wait(Duration::from_secs(seconds));
    let tainted = node(
        "True",
        &json!([
            { "key": "x", "effect": "NoExecute" }, { "key": "y", "effect": "NoExecute" },
            { "key": "z", "effect": "NoSchedule" },
        ]),
    );
    let mut deadlines = Deadlines::default();
    let mut decide = |tolerations: Value, node: &Node, now| {
        deadlines.decide(&pod(&tolerations), Some(node), at(now))
    };
    let all = json!([{ "operator": "Exists" }]);
    assert_eq!(decide(all, &tainted, 0), Verdict::Stay);
    let one = json!([{ "key": "x", "operator": "Exists" }]);
    assert_eq!(decide(one, &tainted, 0), Verdict::Evict);
    let limited = json!([
        { "key": "x", "operator": "Exists", "tolerationSeconds": 30 },
        { "key": "y", "operator": "Exists", "tolerationSeconds": 20 },
    ]);
    assert_eq!(decide(limited.clone(), &tainted, 0), seconds(20));
    assert_eq!(decide(limited.clone(), &tainted, 15), seconds(5));
    assert_eq!(decide(limited.clone(), &tainted, 20), Verdict::Evict);
    let now = json!([{ "operator": "Exists", "tolerationSeconds": 0 }]);
    assert_eq!(decide(now, &tainted, 0), Verdict::Evict);
    assert_eq!(
        decide(limited.clone(), &node("True", &json!([])), 30),
        Verdict::Stay
    );
    assert!(deadlines.cancel("p"), "the eviction was pending");
    let again = deadlines.decide(&pod(&limited), Some(&tainted), at(40));
    assert_eq!(again, seconds(20), "counted from the beginning");
}

/// Proves nodes/eviction.
#[test]
fn pod_of_a_missing_node_is_collected_after_a_while() {
    let mut deadlines = Deadlines::default();
    let pod = pod(&json!([]));
    let wait = Verdict::Wait(Duration::from_secs(40));
    assert_eq!(deadlines.decide(&pod, None, at(0)), wait);
    assert_eq!(
        deadlines.decide(&pod, None, at(40)),
        Verdict::Collect { gone: true }
    );
}

/// Proves nodes/eviction.
#[test]
fn pod_on_an_unready_node_is_unready() {
    let mut deadlines = Deadlines::default();
    let mut pod = pod(&json!([]));
    let down = node("Unknown", &json!([]));
    assert_eq!(deadlines.decide(&pod, Some(&down), at(0)), Verdict::Stay);
    let status = pod.status.as_mut().unwrap();
    status.conditions.as_mut().unwrap()[0].status = "True".into();
    assert_eq!(
        deadlines.decide(&pod, Some(&down), at(0)),
        Verdict::NotReady
    );
    let out = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    pod.metadata.deletion_timestamp = Some(meta::time(at(0)));
    let verdict = deadlines.decide(&pod, Some(&node("Unknown", &out)), at(0));
    assert_eq!(verdict, Verdict::Collect { gone: false });
}
