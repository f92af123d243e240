use serde_json::json;

use super::*;

fn equal(config: &Value, before: &Value, after: &Value) -> bool {
    let (before, after) = (Stored::of(config, before), Stored::of(config, after));
    after.is_complete && before == after
}

/// Proves controller/apply-owned-compares.
#[test]
fn only_fields_of_the_configuration_count() {
    let config = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"replicas": 2, "template": {"containers": [{"name": "web"}]}},
    });
    let stored = json!({
        "metadata": {"labels": {"app": "web", "team": "shop"}, "resourceVersion": "7"},
        "spec": {
            "replicas": 2, "paused": false,
            "template": {"containers": [{"name": "web", "pullPolicy": "Always"}]},
        },
        "status": {"ready": 0},
    });
    let with = |pointer: &str, value: Value| {
        let mut changed = stored.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    for (pointer, value) in [
        ("/metadata/resourceVersion", json!("8")),
        ("/metadata/labels/team", json!("bank")),
        ("/spec/paused", json!(true)),
        ("/status", json!({"ready": 2})),
    ] {
        let changed = with(pointer, value);
        assert!(equal(&config, &stored, &changed), "{pointer}");
    }
    for (pointer, value) in [
        ("/metadata/labels/app", json!("db")),
        ("/spec/replicas", json!(3)),
        ("/spec/template/containers/0/pullPolicy", json!("Never")),
        ("/spec/template/containers", json!([])),
        ("/spec", json!({})),
    ] {
        let changed = with(pointer, value);
        assert!(!equal(&config, &stored, &changed), "{pointer}");
    }
}

/// Proves controller/apply-owned-compares.
#[test]
fn keys_added_to_a_selector_and_removed_variants_are_seen() {
    let differs = |config: &Value, before: Value, after: Value| {
        Stored::of(config, &before) != Stored::of(config, &after)
    };
    let config = json!({"spec": {"selector": {"app": "web"}, "ports": []}});
    let added = json!({"spec": {"selector": {"app": "web", "version": "v2"}}});
    assert!(differs(&config, config.clone(), added));
    let config = json!({"spec": {"issuer": {"selfSigned": {}}}});
    let other = json!({"spec": {"issuer": {"ca": {"secretName": "x"}}}});
    assert!(differs(&config, config.clone(), other));
    // Labels are merged by key.
    let config = json!({"metadata": {"labels": {"app": "web"}}});
    let added = json!({"metadata": {"labels": {"app": "web", "team": "shop"}}});
    assert!(!differs(&config, config.clone(), added));
}

/// Proves controller/apply-owned-compares.
#[test]
fn write_only_fields_cannot_be_compared() {
    let config = json!({"metadata": {"annotations": {}}, "stringData": {"password": "x"}});
    let stored = json!({"metadata": {}, "data": {"password": "eA=="}});
    assert!(!Stored::of(&config, &stored).is_complete);
    let config = json!({"metadata": {"annotations": {}}, "rules": [], "empty": null});
    assert!(
        Stored::of(&config, &stored).is_complete,
        "servers drop empty values"
    );
}
