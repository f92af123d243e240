use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn node(zone: &str, ready: &str, taints: &[(&str, &str)]) -> Node {
    let taints = taints.iter();
    let taints: Vec<Value> = taints
        .map(|(key, effect)| json!({ "key": key, "effect": effect }))
        .collect();
    serde_json::from_value(json!({
        "metadata": { "name": "a", "labels": { "topology.kubernetes.io/zone": zone } },
        "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    }))
    .unwrap()
}

fn tainted(node: &Node, evictions: Evictions) -> Option<Vec<(String, String)>> {
    let taints = taints(node, evictions, now())?.into_iter();
    Some(taints.map(|taint| (taint.key, taint.effect)).collect())
}

/// Proves nodes/lifecycle.
#[test]
fn silent_node_becomes_unknown_once() {
    let mut node = node("a", "True", &[]);
    let status = unreachable(&node, now()).unwrap();
    let conditions = status.conditions.as_ref().unwrap();
    assert!(conditions.iter().all(|it| it.status == "Unknown"));
    let reasons: Vec<&str> = conditions
        .iter()
        .filter_map(|it| it.reason.as_deref())
        .collect();
    assert_eq!(reasons[0], "NodeStatusUnknown");
    assert_eq!(reasons[1..], ["NodeStatusNeverUpdated"; 3]);
    node.status = Some(status);
    assert_eq!(unreachable(&node, now()), None);
}

/// Proves nodes/lifecycle.
#[test]
fn taints_follow_the_conditions() {
    let (schedule, execute) = ("NoSchedule", "NoExecute");
    let all = |node: &Node| tainted(node, Evictions::Normal);
    let of = |taints: &[(&str, &str)]| -> Option<Vec<(String, String)>> {
        let taints = taints.iter();
        Some(
            taints
                .map(|(key, effect)| ((*key).into(), (*effect).into()))
                .collect(),
        )
    };
    assert_eq!(all(&node("a", "True", &[("gpu", schedule)])), None);
    assert_eq!(
        all(&node("a", "Unknown", &[("gpu", execute)])),
        of(&[
            ("gpu", execute),
            (UNREACHABLE, schedule),
            (UNREACHABLE, execute)
        ])
    );
    let unreachable = [(UNREACHABLE, schedule), (UNREACHABLE, execute)];
    assert_eq!(all(&node("a", "Unknown", &unreachable)), None);
    assert_eq!(
        all(&node("a", "False", &unreachable)),
        of(&[(NOT_READY, schedule), (NOT_READY, execute)])
    );
    assert_eq!(all(&node("a", "True", &unreachable)), of(&[]));
    let off = tainted(&node("a", "Unknown", &unreachable), Evictions::Off);
    assert_eq!(off, of(&[(UNREACHABLE, schedule)]));
    let paused = tainted(&node("a", "Unknown", &[]), Evictions::Paused);
    assert_eq!(paused, of(&[(UNREACHABLE, schedule)]));

    let mut cordoned = node("a", "True", &[]);
    cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
    assert_eq!(all(&cordoned), of(&[(fit::UNSCHEDULABLE, schedule)]));
    let uncordoned = node("a", "True", &[(fit::UNSCHEDULABLE, schedule)]);
    assert_eq!(all(&uncordoned), of(&[]));
    let mut fresh = node("a", "True", &[(NOT_READY, schedule)]);
    fresh.status = None;
    assert_eq!(all(&fresh), None, "its kubelet has not reported yet");
}

/// Proves nodes/lifecycle.
#[test]
fn evictions_stop_when_too_many_nodes_fail() {
    let nodes = |statuses: &[(&str, &str)]| -> Vec<Arc<Node>> {
        let nodes = statuses
            .iter()
            .map(|(zone, ready)| Arc::new(node(zone, ready, &[])));
        nodes.collect()
    };
    let down = node("a", "Unknown", &[]);
    for (statuses, expected) in [
        (vec![("a", "Unknown"), ("a", "True")], Evictions::Normal),
        (vec![("a", "Unknown"), ("b", "True")], Evictions::Normal),
        (vec![("a", "Unknown"), ("b", "False")], Evictions::Off),
        (
            vec![
                ("a", "Unknown"),
                ("a", "Unknown"),
                ("a", "False"),
                ("a", "True"),
            ],
            Evictions::Paused,
        ),
        (
            vec![
                ("a", "Unknown"),
                ("a", "Unknown"),
                ("a", "True"),
                ("a", "True"),
            ],
            Evictions::Normal,
        ),
    ] {
        assert_eq!(
            evictions(&down, &nodes(&statuses)),
            expected,
            "{statuses:?}"
        );
    }
}
