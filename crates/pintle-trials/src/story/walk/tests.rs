#![allow(clippy::needless_pass_by_value, reason = "shorter tests")]

use serde_json::json;

use super::*;
use crate::{gateway::request::ResourceName, story::KindRef};

fn web(spec: Value) -> Desired {
    Desired {
        kind: KindRef {
            resource: ResourceName {
                group: "e.com".to_owned(),
                plural: "webs".to_owned(),
            },
            version: "v1".to_owned(),
            kind: "Web".to_owned(),
            namespaced: true,
        },
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        value: json!({"metadata": {"name": "a"}, "spec": spec}),
    }
}

fn crd(properties: Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    json!({"spec": {"versions": [{"name": "v1", "schema": {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}},
    }}]}})
}

fn described(spec: Value, properties: Value) -> Vec<String> {
    let crd = crd(properties);
    let changes = changes(&web(spec), Some(&crd));
    changes.iter().map(Change::describe).collect()
}

#[test]
fn integers_go_up_and_down_within_bounds() {
    assert_eq!(
        described(
            json!({"replicas": 2}),
            json!({"replicas": {"type": "integer", "minimum": 1, "maximum": 3}})
        ),
        [
            "set spec.replicas to 3",
            "set spec.replicas to 1",
            "set metadata.labels to {\"trials\":\"b\"}",
        ]
    );
}

#[test]
fn optional_properties_appear() {
    let properties = json!({
        "on": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "when": {"type": "string", "format": "date-time"},
    });
    assert_eq!(
        described(json!({"mode": "A"}), properties),
        [
            "set spec.mode to \"B\"",
            "set metadata.labels to {\"trials\":\"b\"}",
            "set spec.env to {\"trials\":\"b\"}",
            "set spec.on to true",
        ]
    );
}

#[test]
fn changed_strings_keep_their_format() {
    assert_eq!(other_text("1Gi").as_deref(), Some("2Gi"));
    assert_eq!(other_text("nginx:1.0").as_deref(), Some("nginx:1.0-b"));
    assert_eq!(other_text("hello world").as_deref(), Some("hello world b"));
    assert_eq!(other_text(""), None);
}

#[test]
fn story_resets_deletes_and_recreates() {
    let base = web(json!({"replicas": 2}));
    let changes = changes(&base, None);
    let steps = story(&base, changes, |value| value["spec"]["replicas"] != 4);
    let steps: Vec<String> = steps.iter().map(Step::describe).collect();
    assert_eq!(
        steps,
        [
            "create Web default/a",
            "set spec.replicas to 1",
            "set metadata.labels to {\"trials\":\"b\"}",
            "set Web default/a back",
            "delete Web default/a",
            "recreate Web default/a",
        ]
    );
}
