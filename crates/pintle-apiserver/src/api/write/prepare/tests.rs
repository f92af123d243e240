use serde_json::json;

use super::*;
use crate::schema::builtin::{group_versions, kind};

const NOW: &str = "2026-11-15T21:00:00Z";

/// Prepares a new object of a built-in kind, as a create does.
pub(crate) fn prepare(object: &mut Value, ty: TypeRef) {
    let (group, version, kind) = ty.get().kind.unwrap();
    let mut served = group_versions()
        .iter()
        .filter(|gv| (gv.group, gv.version) == (group, version))
        .flat_map(|gv| &gv.resources);
    let served = served.find(|resource| resource.kind == kind).unwrap();
    let resource = Resource::builtin(served, None);
    let Value::Object(tree) = object else {
        panic!("{kind} is not an object");
    };
    prepare_builtin(&resource, tree, ty, NOW);
}

fn created(group: &str, name: &str, mut object: Value) -> Value {
    let ty = kind(group, "v1", name).unwrap();
    typed::canonicalize(&mut object, ty).unwrap();
    defaults::apply(&mut object, ty);
    prepare(&mut object, ty);
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

/// Proves subresources/status, bootstrap/objects.
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
}
