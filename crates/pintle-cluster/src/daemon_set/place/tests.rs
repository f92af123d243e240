use serde_json::{Value, json};

use super::*;

fn set(pod: &Value) -> DaemonSet {
    let mut pod = pod.clone();
    pod["containers"] = json!([{ "name": "main", "image": "agent:1" }]);
    serde_json::from_value(json!({
        "metadata": {
            "name": "agent", "namespace": "default", "uid": "set",
            "annotations": { "deprecated.daemonset.template.generation": "3" },
        },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": { "metadata": { "labels": { "app": "agent" } }, "spec": pod },
        },
    }))
    .unwrap()
}

fn node(spec: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": "a", "labels": { "disk": "ssd" } }, "spec": spec,
    }))
    .unwrap()
}

fn tainted(key: &str, effect: &str) -> Node {
    node(&json!({ "taints": [{ "key": key, "effect": effect }] }))
}

fn fit(pod: &Value, node: &Node) -> (bool, bool) {
    let Fit { runs, stays } = Placement::of(&set(pod)).on(node);
    (runs, stays)
}

/// Proves daemonset/nodes.
#[test]
fn placement_follows_selectors_affinity_and_taints() {
    let plain = node(&json!({}));
    assert_eq!(fit(&json!({}), &plain), (true, true));
    let of = |disk: &str| json!({ "nodeSelector": { "disk": disk } });
    assert_eq!(fit(&of("ssd"), &plain), (true, true));
    assert_eq!(fit(&of("hdd"), &plain), (false, false));
    assert_eq!(fit(&json!({ "nodeName": "b" }), &plain), (false, false));
    assert_eq!(fit(&json!({ "nodeName": "a" }), &plain), (true, true));
    let term = json!({ "matchExpressions": [{ "key": "disk", "operator": "DoesNotExist" }] });
    let affinity = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] },
    }});
    assert_eq!(
        fit(&json!({ "affinity": affinity }), &plain),
        (false, false)
    );

    let none = json!({});
    assert_eq!(fit(&none, &tainted("gpu", "NoSchedule")), (false, true));
    assert_eq!(fit(&none, &tainted("gpu", "NoExecute")), (false, false));
    assert_eq!(
        fit(&none, &tainted("gpu", "PreferNoSchedule")),
        (true, true)
    );
    let tolerant = json!({ "tolerations": [{ "key": "gpu", "operator": "Exists" }] });
    assert_eq!(fit(&tolerant, &tainted("gpu", "NoExecute")), (true, true));
}

/// Proves daemonset/nodes.
#[test]
fn failing_nodes_are_tolerated() {
    let none = json!({});
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        let node = tainted(&format!("node.kubernetes.io/{key}"), effect);
        assert_eq!(fit(&none, &node), (true, true), "{key}");
    }
    let offline = tainted("node.kubernetes.io/network-unavailable", "NoSchedule");
    assert_eq!(fit(&none, &offline), (false, true));
    assert_eq!(fit(&json!({ "hostNetwork": true }), &offline), (true, true));

    let brief = json!({
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 5,
    });
    let pod = pod(&set(&json!({ "tolerations": [brief] })), "a", "hash");
    let tolerations = pod.spec.unwrap().tolerations.unwrap();
    assert_eq!(tolerations.len(), 6);
    assert!(tolerations.iter().all(|it| it.toleration_seconds.is_none()));
}

/// Proves daemonset/nodes.
#[test]
fn pod_names_its_node_by_affinity() {
    let terms = json!([{ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }]);
    let preferred = json!([{ "weight": 1, "preference": {} }]);
    let set = set(&json!({ "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "podAntiAffinity": {},
    }}));
    let mut pod = pod(&set, "a", "hash");
    assert_eq!(target(&pod), Some("a"));
    let affinity = json!(pod.spec.as_ref().unwrap().affinity);
    let terms = json!([{
        "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }],
    }]);
    assert_eq!(
        affinity,
        json!({
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            },
            "podAntiAffinity": {},
        })
    );
    let labels = meta::labels(&pod.metadata);
    assert_eq!(
        json!(labels),
        json!({
            "app": "agent", "controller-revision-hash": "hash", "pod-template-generation": "3",
        })
    );
    assert!(is_updated(&set, &pod, "hash"));
    assert!(is_updated(&set, &pod, "other"), "the generation matches");
    let labels = pod.metadata.labels.as_mut().unwrap();
    labels.remove("pod-template-generation");
    assert!(!is_updated(&set, &pod, "other"));
    pod.spec.as_mut().unwrap().node_name = Some("b".into());
    assert_eq!(target(&pod), Some("b"), "the binding takes precedence");
}
