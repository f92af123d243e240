//! Common objects, where they live, and how tests create them.

use serde_json::{Map, Value, json};

use super::Http;

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Creates an object and returns it as stored.
pub async fn created(http: &Http, path: &str, object: &Value) -> Value {
    let (code, created) = http.post(path, object).await;
    assert_eq!(code, 201, "{path}: {created}");
    created
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub fn labelled(name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {key: value}}})
}

/// Returns a CRD of namespaced Foos with a status subresource.
pub fn foo_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "deploymentName": {"type": "string"},
                        "replicas": {"type": "integer", "minimum": 1, "maximum": 10}}},
                    "status": {"type": "object", "properties": {
                        "availableReplicas": {"type": "integer"}}}}}}
            }]
        }
    })
}

pub fn foo(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name},
        "spec": {"deploymentName": name, "replicas": 1}})
}

pub fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

/// Returns a Pod whose container has these requests and limits.
pub fn pod_with(name: &str, resources: &Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources.clone();
    pod
}

/// Returns a Deployment that selects the label `app`, which is its name.
pub fn deployment(name: &str) -> Value {
    let mut template = pod(name);
    template["metadata"] = json!({"labels": {"app": name}});
    json!({"metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}})
}

/// Creates a quota as if a controller had counted that nothing is used.
pub async fn quota(http: &Http, name: &str, spec: &Value) {
    let quota = json!({"metadata": {"name": name}, "spec": spec});
    created(http, QUOTAS, &quota).await;
    let hard = spec["hard"].as_object().unwrap();
    let none: Map<String, Value> = hard.keys().map(|name| (name.clone(), "0".into())).collect();
    let status = json!({"status": {"hard": hard, "used": none}});
    let path = format!("{QUOTAS}/{name}/status");
    let (code, status) = http.merge(&path, &status).await;
    assert_eq!(code, 200, "{status}");
}

pub fn role(name: &str, rules: &Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

/// Returns a binding of a role (`Role/name` or `ClusterRole/name`) to subjects.
pub fn binding(name: &str, role: &str, subjects: &[Value]) -> Value {
    let (kind, role) = role.split_once('/').unwrap();
    json!({"metadata": {"name": name}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
}

/// Returns a user or group as the subject of a binding.
pub fn subject(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

/// Grants a user permissions in the whole cluster.
pub async fn grant_cluster(admin: &Http, user: &str, rules: &Value) {
    created(admin, &format!("{RBAC}/clusterroles"), &role(user, rules)).await;
    let subjects = [subject("User", user)];
    let bound = binding(user, &format!("ClusterRole/{user}"), &subjects);
    created(admin, &format!("{RBAC}/clusterrolebindings"), &bound).await;
}
