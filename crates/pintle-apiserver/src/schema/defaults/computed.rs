//! Defaults that depend on other fields.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::{Rule, unset};

type Fields = Map<String, Value>;

/// Types and the functions that set their defaults.
pub(super) const ALL: &[(&str, Rule)] = &[
    ("io.k8s.api.core.v1.Pod", pod),
    ("io.k8s.api.core.v1.PodSpec", pod_spec),
    ("io.k8s.api.core.v1.Container", container),
    ("io.k8s.api.core.v1.EphemeralContainer", container),
    ("io.k8s.api.core.v1.Volume", volume),
    ("io.k8s.api.core.v1.Service", service),
    ("io.k8s.api.core.v1.Secret", secret),
    ("io.k8s.api.core.v1.Namespace", namespace),
    ("io.k8s.api.core.v1.NodeStatus", node_status),
    ("io.k8s.api.core.v1.LimitRangeItem", limit_range_item),
    (
        "io.k8s.api.core.v1.ReplicationController",
        replication_controller,
    ),
    ("io.k8s.api.apps.v1.DeploymentSpec", deployment_spec),
    ("io.k8s.api.apps.v1.DaemonSetSpec", daemon_set_spec),
    ("io.k8s.api.apps.v1.StatefulSetSpec", stateful_set_spec),
    ("io.k8s.api.batch.v1.Job", job),
    (
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior",
        scaling_behavior,
    ),
    (
        "io.k8s.api.networking.v1.NetworkPolicySpec",
        network_policy_spec,
    ),
    ("io.k8s.api.rbac.v1.Subject", subject),
    ("io.k8s.api.resource.v1.ExactDeviceRequest", device_count),
    ("io.k8s.api.resource.v1.DeviceSubRequest", device_count),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        definition,
    ),
];

fn text<'a>(map: &'a Fields, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn child<'a>(map: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    map.get_mut(name).and_then(Value::as_object_mut)
}

/// Returns the map at `name`, creating it if it is unset.
fn ensure_map<'a>(map: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    if unset(map.get(name), false) {
        map.insert(name.to_owned(), json!({}));
    }
    child(map, name)
}

fn items<'a>(map: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    let list = map
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    list.filter_map(Value::as_object_mut)
}

/// Sets a field unless it is present.
fn set_absent(map: &mut Fields, name: &str, value: impl Into<Value>) {
    if unset(map.get(name), true) {
        map.insert(name.to_owned(), value.into());
    }
}

/// Sets a field unless it is present and not zero.
fn set_empty(map: &mut Fields, name: &str, value: impl Into<Value>) {
    if unset(map.get(name), false) {
        map.insert(name.to_owned(), value.into());
    }
}

fn pod(pod: &mut Fields) {
    let Some(spec) = child(pod, "spec") else {
        return;
    };
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            if let Some(resources) = child(container, "resources") {
                requests_from_limits(resources);
            }
        }
    }
    if let Some(resources) = child(spec, "resources") {
        requests_from_limits(resources);
    }
    set_absent(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&json!(true)) {
        for list in ["containers", "initContainers"] {
            for container in items(spec, list) {
                for port in items(container, "ports") {
                    if let Some(number) = port.get("containerPort").cloned() {
                        set_empty(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

/// Defaults the request of a resource to its limit.
fn requests_from_limits(resources: &mut Fields) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let Some(requests) = ensure_map(resources, "requests") else {
        return;
    };
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// Keeps `serviceAccount` and `serviceAccountName` in sync.
fn pod_spec(spec: &mut Fields) {
    let older = text(spec, "serviceAccount").to_owned();
    if !older.is_empty() {
        set_empty(spec, "serviceAccountName", older);
    }
    let name = text(spec, "serviceAccountName").to_owned();
    if !name.is_empty() {
        spec.insert("serviceAccount".into(), name.into());
    }
}

fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    match tag {
        Some("latest") => "Always",
        None if !digest && !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn container(container: &mut Fields) {
    let policy = pull_policy(text(container, "image"));
    set_empty(container, "imagePullPolicy", policy);
}

fn volume(volume: &mut Fields) {
    if volume.keys().all(|name| name == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    if let Some(image) = child(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        set_empty(image, "pullPolicy", policy);
    }
}

fn service(service: &mut Fields) {
    let Some(spec) = child(service, "spec") else {
        return;
    };
    set_empty(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let set = spec
                .get("sessionAffinityConfig")
                .and_then(|c| c.pointer("/clientIP/timeoutSeconds"));
            if set.is_none_or(Value::is_null) {
                let config = json!({ "clientIP": { "timeoutSeconds": 10_800 } });
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    set_empty(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        set_empty(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
        set_empty(port, "targetPort", number);
    }
    let kind = text(spec, "type").to_owned();
    let external = spec
        .get("externalIPs")
        .and_then(Value::as_array)
        .is_some_and(|ips| !ips.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external) {
        set_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_absent(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = child(service, "status").and_then(|s| child(s, "loadBalancer")) {
            for ingress in items(balancer, "ingress").filter(|i| !text(i, "ip").is_empty()) {
                set_absent(ingress, "ipMode", "VIP");
            }
        }
    }
}

/// Moves `stringData` to `data`.
fn secret(secret: &mut Fields) {
    if let Some(Value::Object(texts)) = secret.remove("stringData")
        && let Some(data) = ensure_map(secret, "data")
    {
        for (name, text) in texts {
            let bytes = text.as_str().unwrap_or_default();
            data.insert(
                name,
                base64::engine::general_purpose::STANDARD
                    .encode(bytes)
                    .into(),
            );
        }
    }
}

fn namespace(namespace: &mut Fields) {
    let Some(metadata) = child(namespace, "metadata") else {
        return;
    };
    let name = text(metadata, "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = ensure_map(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

fn node_status(status: &mut Fields) {
    if let Some(capacity) = status.get("capacity").cloned() {
        set_empty(status, "allocatable", capacity);
    }
}

fn limit_range_item(item: &mut Fields) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        if let Some(Value::Object(amounts)) = item.get(from).cloned()
            && let Some(target) = ensure_map(item, to)
        {
            for (name, amount) in amounts {
                target.entry(name).or_insert(amount);
            }
        }
    }
}

fn template_labels(object: &Fields) -> Option<Value> {
    let labels = object.get("spec")?.pointer("/template/metadata/labels")?;
    labels
        .as_object()
        .filter(|labels| !labels.is_empty())
        .cloned()
        .map(Value::Object)
}

fn replication_controller(controller: &mut Fields) {
    let Some(labels) = template_labels(controller) else {
        return;
    };
    if let Some(spec) = child(controller, "spec") {
        set_empty(spec, "selector", labels.clone());
    }
    if let Some(metadata) = child(controller, "metadata") {
        set_empty(metadata, "labels", labels);
    }
}

fn deployment_spec(spec: &mut Fields) {
    let Some(strategy) = ensure_map(spec, "strategy") else {
        return;
    };
    set_empty(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = ensure_map(strategy, "rollingUpdate")
    {
        set_absent(rolling, "maxUnavailable", "25%");
        set_absent(rolling, "maxSurge", "25%");
    }
}

fn daemon_set_spec(spec: &mut Fields) {
    let Some(strategy) = ensure_map(spec, "updateStrategy") else {
        return;
    };
    set_empty(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = ensure_map(strategy, "rollingUpdate")
    {
        set_absent(rolling, "maxUnavailable", 1);
        set_absent(rolling, "maxSurge", 0);
    }
}

fn stateful_set_spec(spec: &mut Fields) {
    for claim in items(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
    }
    let Some(strategy) = ensure_map(spec, "updateStrategy") else {
        return;
    };
    if text(strategy, "type").is_empty() {
        strategy.insert("type".into(), "RollingUpdate".into());
        set_empty(strategy, "rollingUpdate", json!({}));
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        set_absent(rolling, "partition", 0);
    }
}

fn job(job: &mut Fields) {
    let labels = template_labels(job);
    if let Some(spec) = child(job, "spec") {
        if unset(spec.get("completions"), true) && unset(spec.get("parallelism"), true) {
            spec.insert("completions".into(), 1.into());
        }
        set_absent(spec, "parallelism", 1);
        let per_index = !unset(spec.get("backoffLimitPerIndex"), true);
        set_absent(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
        set_absent(spec, "completionMode", "NonIndexed");
        set_absent(spec, "suspend", false);
        let failed = !unset(spec.get("podFailurePolicy"), true);
        let policy = if failed {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        set_absent(spec, "podReplacementPolicy", policy);
        set_absent(spec, "manualSelector", false);
    }
    if let (Some(labels), Some(metadata)) = (labels, child(job, "metadata")) {
        set_empty(metadata, "labels", labels);
    }
}

fn scaling_behavior(behavior: &mut Fields) {
    if let Some(up) = ensure_map(behavior, "scaleUp") {
        set_absent(up, "stabilizationWindowSeconds", 0);
        set_absent(up, "selectPolicy", "Max");
        set_absent(
            up,
            "policies",
            json!([
                { "type": "Pods", "value": 4, "periodSeconds": 15 },
                { "type": "Percent", "value": 100, "periodSeconds": 15 },
            ]),
        );
    }
    if let Some(down) = ensure_map(behavior, "scaleDown") {
        set_absent(down, "selectPolicy", "Max");
        set_absent(
            down,
            "policies",
            json!([
                { "type": "Percent", "value": 100, "periodSeconds": 15 },
            ]),
        );
    }
}

fn network_policy_spec(spec: &mut Fields) {
    let egress = !unset(spec.get("egress"), false);
    let types = if egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    set_empty(spec, "policyTypes", types);
}

fn subject(subject: &mut Fields) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        set_empty(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
}

fn device_count(request: &mut Fields) {
    if matches!(text(request, "allocationMode"), "" | "ExactCount") {
        set_empty(request, "count", 1);
    }
}

fn definition(definition: &mut Fields) {
    let Some(spec) = child(definition, "spec") else {
        return;
    };
    let versions = spec.get("versions").and_then(Value::as_array);
    let mut stored = versions
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true);
    let stored = stored.next().and_then(|v| v.get("name").cloned());
    if let Some(names) = child(spec, "names") {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            set_empty(names, "singular", kind.to_lowercase());
            set_empty(names, "listKind", format!("{kind}List"));
        }
    }
    if let (Some(stored), Some(status)) = (stored, ensure_map(definition, "status")) {
        set_empty(status, "storedVersions", json!([stored]));
    }
}
