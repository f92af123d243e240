use serde_json::json;

use super::*;

fn content(value: Value) -> Content {
    let Value::Object(map) = value else {
        panic!("not an object")
    };
    Content::encode(map, Vec::new())
}

#[test]
fn encoded_object_round_trips() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "resourceVersion": "7", "labels": {"x": "y"}},
            "spec": {"n": 1}});
    let content = content(pod.clone());
    let mut out = Vec::new();
    content.write(&mut out, &type_prefix("v1", "Pod"), Some(7));
    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), pod);
    assert_eq!(content.header.labels["x"], "y");
}

#[test]
fn resource_version_does_not_affect_equality() {
    let at = |rv: &str| content(json!({"metadata": {"name": "a", "resourceVersion": rv}}));
    assert!(at("1").same_as(&at("2")));
}
