//! The fields that the server sets on a Pod: tolerations, priority, and the initial status with its
//! quality of service class.

use serde_json::{Value, json};

use super::qos;
use crate::{
    api::kinds::fields::{child, ensure_list},
    meta::Tree,
};

/// Prepares a new Pod. `now` is its creation timestamp.
pub(super) fn create(map: &mut Tree, now: &str) {
    let class = qos::class(map.get("spec").unwrap_or(&Value::Null));
    let Some(spec) = child(map, "spec") else {
        return;
    };
    add_default_tolerations(spec);
    if !spec.contains_key("priorityClassName") {
        spec.entry("priority").or_insert_with(|| 0.into());
    }
    spec.entry("preemptionPolicy")
        .or_insert_with(|| "PreemptLowerPriority".into());
    let gated = spec
        .get("schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|g| !g.is_empty());
    let mut status = json!({ "phase": "Pending", "qosClass": class });
    if gated {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": now,
        }]);
    }
    map.insert("status".into(), status);
}

/// Prepares a Pod update: fields that were added on create are kept if the update omits them.
pub(super) fn update(object: &mut Tree, old: &Tree) {
    let Some(spec) = child(object, "spec") else {
        return;
    };
    add_default_tolerations(spec);
    let old = old.get("spec").and_then(Value::as_object);
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.and_then(|old| old.get(field)) {
            spec.entry(field).or_insert_with(|| value.clone());
        }
    }
}

fn add_default_tolerations(spec: &mut Tree) {
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        add_toleration(spec, key);
    }
}

/// Adds the default toleration: a Pod stays on an unavailable node for five minutes.
fn add_toleration(spec: &mut Tree, key: &str) {
    let Some(tolerations) = ensure_list(spec, "tolerations") else {
        return;
    };
    let tolerated = tolerations.iter().any(|toleration| {
        let text = |name: &str| {
            toleration
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        matches!(text("key"), "")
            && text("operator") == "Exists"
            && matches!(text("effect"), "" | "NoExecute")
            || text("key") == key && matches!(text("effect"), "" | "NoExecute")
    });
    if !tolerated {
        tolerations.push(json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
        }));
    }
}
