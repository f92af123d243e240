//! Preparation of new objects of built-in kinds: fields that only the server sets, and what the
//! default admission plugins add.

use serde_json::{Map, Value, json};

use super::builtin::{TypeRef, resource};
use super::{defaults, typed};

type Fields = Map<String, Value>;

/// Prepares a new object for storage: resets its status and sets server-owned fields. The object
/// has been decoded, defaulted and given a name and UID; `now` is its creation timestamp.
pub(crate) fn create(object: &mut Value, ty: TypeRef, now: &str) {
    let Some((group, version, kind)) = ty.get().kind else {
        return;
    };
    let Value::Object(map) = object else { return };
    reset_status(map, ty, group, version, kind);
    match (group, kind) {
        ("", "Pod") => pod(map, now),
        ("", "Namespace") => {
            if let Some(spec) = ensure_map(map, "spec") {
                add(spec, "finalizers", "kubernetes");
            }
        }
        ("", "Node") => {
            if let Some(spec) = ensure_map(map, "spec") {
                not_ready(spec);
            }
        }
        ("", "PersistentVolume") => {
            if let Some(status) = ensure_map(map, "status") {
                status.insert("lastPhaseTransitionTime".into(), now.into());
            }
            protect(map, "kubernetes.io/pv-protection");
        }
        ("", "PersistentVolumeClaim") => protect(map, "kubernetes.io/pvc-protection"),
        ("apps", "DaemonSet") => count_template(map),
        ("batch", "Job") => job(map),
        _ => {}
    }
}

/// Sets the template generation annotation of a new DaemonSet. Its creator owns the annotation.
pub(crate) fn count_template(map: &mut Fields) {
    let metadata = ensure_map(map, "metadata");
    if let Some(annotations) = metadata.and_then(|metadata| ensure_map(metadata, "annotations")) {
        annotations.insert(
            "deprecated.daemonset.template.generation".into(),
            "1".into(),
        );
    }
}

/// Resets the status of a new object if its kind has a status subresource. Nodes keep theirs.
fn reset_status(map: &mut Fields, ty: TypeRef, group: &str, version: &str, kind: &str) {
    let Some(status) = ty.field("status").and_then(|field| field.ty.named()) else {
        return;
    };
    let all = super::builtin::group_versions().iter();
    let mut served = all.filter(|gv| gv.group == group && gv.version == version);
    let served = served.next().into_iter().flat_map(|gv| &gv.resources);
    let has_status = served.filter(|r| r.kind == kind).any(|r| {
        resource(group, version, r.plural).is_some_and(|r| r.subresource("status").is_some())
    });
    if has_status && kind != "Node" {
        let mut fresh = typed::zero(status);
        defaults::apply(&mut fresh, status);
        map.insert("status".into(), fresh);
        if kind == "CustomResourceDefinition" {
            // `storedVersions` is a default that depends on the spec.
            let mut whole = Value::Object(std::mem::take(map));
            defaults::apply(&mut whole, ty);
            if let Value::Object(whole) = whole {
                *map = whole;
            }
        }
    }
}

fn child<'a>(map: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    map.get_mut(name).and_then(Value::as_object_mut)
}

fn ensure_map<'a>(map: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    let value = map.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Adds a string to a list unless it is already there.
fn add(map: &mut Fields, name: &str, text: &str) {
    let value = map.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    if let Value::Array(items) = value
        && !items.iter().any(|item| item == text)
    {
        items.push(text.into());
    }
}

fn protect(map: &mut Fields, finalizer: &str) {
    if let Some(metadata) = ensure_map(map, "metadata") {
        add(metadata, "finalizers", finalizer);
    }
}

fn pod(map: &mut Fields, now: &str) {
    let Some(spec) = child(map, "spec") else {
        return;
    };
    let class = qos_class(spec);
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
pub(crate) fn update_pod(object: &mut Fields, old: &Fields) {
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

fn add_default_tolerations(spec: &mut Fields) {
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        add_toleration(spec, key);
    }
}

/// Adds the default toleration: a Pod stays on an unavailable node for five minutes.
fn add_toleration(spec: &mut Fields, key: &str) {
    let value = spec.entry("tolerations").or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    let Value::Array(tolerations) = value else {
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

fn not_ready(spec: &mut Fields) {
    let value = spec.entry("taints").or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
    if let Value::Array(taints) = value
        && !taints
            .iter()
            .any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"])
    {
        taints.push(taint);
    }
}

/// Returns the quality of service class: `Guaranteed` if the CPU and memory requests of all
/// containers equal their limits, `BestEffort` if there are none, and `Burstable` otherwise.
fn qos_class(spec: &Fields) -> &'static str {
    let lists = ["containers", "initContainers"].into_iter();
    let containers: Vec<&Value> = lists
        .filter_map(|name| spec.get(name)?.as_array())
        .flatten()
        .collect();
    let amount = |container: &Value, which: &str, name: &str| -> Option<String> {
        let amounts = container.get("resources")?.get(which)?;
        Some(amounts.get(name)?.as_str()?.to_owned()).filter(|amount| amount != "0")
    };
    let names = ["cpu", "memory"];
    let none = containers.iter().all(|container| {
        names.iter().all(|name| {
            amount(container, "requests", name).is_none()
                && amount(container, "limits", name).is_none()
        })
    });
    if none {
        return "BestEffort";
    }
    let all = containers.iter().all(|container| {
        names.iter().all(|name| {
            let limit = amount(container, "limits", name);
            let request = amount(container, "requests", name);
            limit.is_some() && (request.is_none() || request == limit)
        })
    });
    if all { "Guaranteed" } else { "Burstable" }
}

/// Generates the selector and Pod labels of a Job, unless it has a manual selector.
fn job(map: &mut Fields) {
    let metadata = map.get("metadata").and_then(Value::as_object);
    let text = |name: &str| {
        let value = metadata
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let (name, uid) = (text("name"), text("uid"));
    let labels = metadata
        .and_then(|metadata| metadata.get("labels"))
        .cloned();
    let Some(spec) = child(map, "spec") else {
        return;
    };
    if spec.get("manualSelector") == Some(&json!(true)) {
        return;
    }
    let template =
        ensure_map(spec, "template").and_then(|template| ensure_map(template, "metadata"));
    let Some(pod_labels) = template.and_then(|metadata| ensure_map(metadata, "labels")) else {
        return;
    };
    let shared = labels.as_ref().and_then(Value::as_object) == Some(pod_labels);
    for (label, value) in [
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
    ] {
        pod_labels
            .entry(label)
            .or_insert_with(|| value.as_str().into());
    }
    let pod_labels = pod_labels.clone();
    let selector =
        ensure_map(spec, "selector").and_then(|selector| ensure_map(selector, "matchLabels"));
    if let Some(selector) = selector {
        let uid = || uid.as_str().into();
        selector
            .entry("batch.kubernetes.io/controller-uid")
            .or_insert_with(uid);
    }
    // A Job whose labels were defaulted from its template keeps the same labels.
    if shared && let Some(metadata) = child(map, "metadata") {
        metadata.insert("labels".into(), Value::Object(pod_labels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin::kind;

    const NOW: &str = "2026-11-15T21:00:00Z";

    fn created(group: &str, name: &str, mut object: Value) -> Value {
        let ty = kind(group, "v1", name).unwrap();
        typed::canonicalize(&mut object, ty).unwrap();
        defaults::apply(&mut object, ty);
        create(&mut object, ty, NOW);
        let before = object.clone();
        typed::canonicalize(&mut object, ty).unwrap();
        assert_eq!(before, object, "prepared object is not canonical");
        object
    }

    /// Proves objects/defaults.
    #[test]
    fn new_pod_is_pending_and_has_default_tolerations() {
        let pod = created(
            "",
            "Pod",
            json!({
                "spec": {"containers": [{"name": "c", "image": "x",
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
                "status": {"phase": "Running", "podIP": "10.0.0.1"},
            }),
        );
        assert_eq!(
            pod["status"],
            json!({"phase": "Pending", "qosClass": "Guaranteed"})
        );
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]),
            (&json!(0), &json!("PreemptLowerPriority"))
        );
    }

    /// Proves objects/defaults.
    #[test]
    fn new_job_selects_pods_by_its_uid() {
        let job = created(
            "batch",
            "Job",
            json!({"metadata": {"name": "j", "uid": "u"},
            "spec": {"template": {"spec": {"containers": []}}}}),
        );
        assert_eq!(
            job["spec"]["selector"]["matchLabels"],
            json!({"batch.kubernetes.io/controller-uid": "u"})
        );
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({
            "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
            "controller-uid": "u", "job-name": "j"})
        );
    }

    /// Proves subresources/status, namespaces/bootstrap.
    #[test]
    fn status_of_a_new_object_is_reset() {
        let deployment = created("apps", "Deployment", json!({"status": {"replicas": 3}}));
        assert_eq!(deployment["status"], json!({}));
        let namespace = created(
            "",
            "Namespace",
            json!({"metadata": {"name": "n"}, "status": {"phase": "Terminating"}}),
        );
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
        assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(
            namespace["metadata"]["labels"],
            json!({"kubernetes.io/metadata.name": "n"})
        );
        let node = created("", "Node", json!({"status": {"capacity": {"cpu": "4"}}}));
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
        let claim = created("", "PersistentVolumeClaim", json!({}));
        assert_eq!(
            claim["metadata"]["finalizers"],
            json!(["kubernetes.io/pvc-protection"])
        );
    }
}
