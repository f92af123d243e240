use serde_json::{Value, json};

use super::*;

fn node(taints: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": "a", "labels": { "disk": "ssd", "cores": "8" } },
        "spec": { "taints": taints },
    }))
    .unwrap()
}

fn requires(terms: &Value) -> PodSpec {
    let required = json!({ "nodeSelectorTerms": terms });
    serde_json::from_value(json!({
        "containers": [],
        "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
        }},
    }))
    .unwrap()
}

/// Proves pods/scheduling.
#[test]
fn affinity_is_met_by_any_term() {
    let node = node(&json!([]));
    let fits = |terms: Value| selects(&requires(&terms), &node);
    let expression = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
    for (key, operator, values, expected) in [
        ("disk", "In", &["hdd", "ssd"][..], true),
        ("disk", "In", &["hdd"], false),
        ("gpu", "In", &["a"], false),
        ("disk", "NotIn", &["ssd"], false),
        ("gpu", "NotIn", &["a"], true),
        ("disk", "Exists", &[], true),
        ("gpu", "Exists", &[], false),
        ("gpu", "DoesNotExist", &[], true),
        ("disk", "DoesNotExist", &[], false),
        ("cores", "Gt", &["7"], true),
        ("cores", "Gt", &["8"], false),
        ("cores", "Lt", &["10"], true),
        ("disk", "Lt", &["10"], false),
        ("disk", "Like", &["ssd"], false),
    ] {
        let term = expression(key, operator, values);
        assert_eq!(fits(json!([term])), expected, "{key} {operator} {values:?}");
    }
    let no = expression("gpu", "Exists", &[]);
    let yes = expression("disk", "Exists", &[]);
    assert!(fits(json!([no, yes])), "terms are alternatives");
    let mut both = yes.clone();
    both["matchFields"] = json!([{ "key": "metadata.name", "operator": "In", "values": ["b"] }]);
    assert!(!fits(json!([both])), "all requirements of a term count");
    both["matchFields"][0]["values"] = json!(["a"]);
    assert!(fits(json!([both])));
    assert!(!fits(json!([{}])), "an empty term matches nothing");
    assert!(!fits(json!([])));
}

/// Proves pods/scheduling.
#[test]
fn tolerations_match_key_value_and_effect() {
    let tainted = node(&json!([{ "key": "team", "value": "red", "effect": "NoSchedule" }]));
    let tolerated = |toleration: Value| {
        let toleration = serde_json::from_value(toleration).unwrap();
        tolerates(&[toleration], &tainted, |effect| effect == "NoSchedule")
    };
    assert!(tolerated(json!({ "operator": "Exists" })));
    assert!(tolerated(json!({ "key": "team", "operator": "Exists" })));
    assert!(tolerated(json!({ "key": "team", "value": "red" })));
    assert!(!tolerated(json!({ "key": "team", "value": "blue" })));
    assert!(!tolerated(json!({ "key": "other", "operator": "Exists" })));
    assert!(!tolerated(
        json!({ "operator": "Exists", "effect": "NoExecute" })
    ));
    assert!(!tolerated(
        json!({ "key": "team", "operator": "Lt", "value": "red" })
    ));
    assert!(tolerates(&[], &tainted, |effect| effect == "NoExecute"));
}
