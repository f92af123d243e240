use serde_json::json;

use super::*;

fn used(spec: &Value, group: &str, plural: &str, objects: &[Value]) -> BTreeMap<String, String> {
    let objects: Vec<&Value> = objects.iter().collect();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    Quota::new(spec).used(&[(group, plural, &objects)], now)
}

fn pod(resources: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
}

#[test]
fn limits_name_the_kinds_they_count() {
    let quota = Quota::new(&json!({"hard": {
        "requests.cpu": "1", "requests.example.com/gpu": "1", "hugepages-2Mi": "1",
        "requests.storage": "1", "gold.storageclass.storage.k8s.io/requests.storage": "1",
        "services.nodeports": "1", "secrets": "1", "count/pods": "1", "count/foos.example.com": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "1", "nonsense": "1"}}));
    let kinds: Vec<String> = quota
        .kinds()
        .into_iter()
        .map(|(group, plural)| format!("{plural}.{group}"))
        .collect();
    assert_eq!(
        kinds,
        [
            "persistentvolumeclaims.",
            "pods.",
            "secrets.",
            "services.",
            "foos.example.com",
            "resourceclaims.resource.k8s.io"
        ]
    );
}

#[test]
fn largest_init_container_and_all_sidecars_count() {
    let spec = json!({"hard": {"requests.cpu": "9"}});
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let mut pod = pod(&cpu("1"));
    pod["spec"]["initContainers"] = json!([{"name": "i", "resources": cpu("3")}]);
    assert_eq!(used(&spec, "", "pods", &[pod.clone()])["requests.cpu"], "3");
    pod["spec"]["initContainers"] = json!([
        {"name": "s", "restartPolicy": "Always", "resources": cpu("500m")},
        {"name": "i", "resources": cpu("1")}]);
    assert_eq!(
        used(&spec, "", "pods", &[pod.clone()])["requests.cpu"],
        "1500m"
    );
    pod["spec"]["overhead"] = json!({"cpu": "100m"});
    assert_eq!(used(&spec, "", "pods", &[pod])["requests.cpu"], "1600m");
}

#[test]
fn finished_pods_count_as_objects_only() {
    let spec = json!({"hard": {"pods": "9", "count/pods": "9"}});
    let mut done = pod(&json!({}));
    done["status"] = json!({"phase": "Succeeded"});
    let mut stuck = pod(&json!({}));
    stuck["metadata"] = json!({"deletionTimestamp": "2025-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 30});
    let running = pod(&json!({}));
    let used = used(&spec, "", "pods", &[done, stuck, running]);
    assert_eq!(
        (used["pods"].as_str(), used["count/pods"].as_str()),
        ("1", "3")
    );
}

#[test]
fn scopes_filter_objects() {
    let spec = json!({"hard": {"pods": "9"}, "scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["low"]}]}});
    let mut low = pod(&json!({}));
    low["spec"]["priorityClassName"] = "low".into();
    assert_eq!(
        used(&spec, "", "pods", &[low, pod(&json!({}))])["pods"],
        "1"
    );
    let spec = json!({"hard": {"pods": "9"}, "scopes": ["CrossNamespacePodAffinity"]});
    let mut crossing = pod(&json!({}));
    crossing["spec"]["affinity"] = json!({"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["other"]}]}});
    assert_eq!(
        used(&spec, "", "pods", &[crossing, pod(&json!({}))])["pods"],
        "1"
    );
}

#[test]
fn claims_count_for_their_class() {
    let spec = json!({"hard": {"requests.storage": "9",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "9"}});
    let claim = |class: &str, size: &str| {
        json!({"spec": {"storageClassName": class,
            "resources": {"requests": {"storage": size}}}})
    };
    let claims = [claim("gold", "1Gi"), claim("slow", "512Mi")];
    let used = used(&spec, "", "persistentvolumeclaims", &claims);
    assert_eq!(used["requests.storage"], "1536Mi");
    assert_eq!(
        used["gold.storageclass.storage.k8s.io/persistentvolumeclaims"],
        "1"
    );
}

#[test]
fn unused_kind_counts_zero() {
    let spec = json!({"hard": {"count/foos.example.com": "9", "pods": "1"}});
    let used = used(&spec, "example.com", "foos", &[]);
    assert_eq!(
        used,
        BTreeMap::from([("count/foos.example.com".to_owned(), "0".to_owned())])
    );
}

/// Returns the usage of a Pod.
fn pod_used(names: &[&str], spec: Value) -> BTreeMap<String, String> {
    let hard: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!("9")))
        .collect();
    let mut pod = json!({});
    pod["spec"] = spec;
    used(&json!({"hard": hard}), "", "pods", &[pod])
}

#[test]
fn sidecars_run_alongside_later_init_containers() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let spec = json!({"containers": [{"name": "c", "resources": cpu("1")}], "initContainers": [
        {"name": "s", "restartPolicy": "Always", "resources": cpu("2")},
        {"name": "i", "resources": cpu("3")}]});
    // The init container needs 3 in addition to the sidecar's 2, more than the 1 and 2 needed
    // later.
    assert_eq!(pod_used(&["requests.cpu"], spec)["requests.cpu"], "5");
}

#[test]
fn overhead_raises_only_nonzero_limits() {
    let spec = |limits: Value| {
        json!({"overhead": {"cpu": "100m", "memory": "1Mi"}, "containers": [
            {"name": "c", "resources": {"limits": limits}}]})
    };
    let names = ["limits.cpu", "limits.memory"];
    let used = pod_used(&names, spec(json!({"cpu": "1", "memory": "0"})));
    assert_eq!(
        (&*used["limits.cpu"], &*used["limits.memory"]),
        ("1100m", "0")
    );
}

#[test]
fn resources_of_the_whole_pod_replace_the_sum() {
    let spec = json!({"resources": {"requests": {"cpu": "3", "ephemeral-storage": "9Gi"}},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1",
            "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}}}]});
    let names = [
        "requests.cpu",
        "requests.ephemeral-storage",
        "hugepages-2Mi",
        "requests.hugepages-2Mi",
    ];
    let used = pod_used(&names, spec);
    assert_eq!(used["requests.cpu"], "3");
    assert_eq!(used["requests.ephemeral-storage"], "1Gi");
    assert_eq!(
        (&*used["hugepages-2Mi"], &*used["requests.hugepages-2Mi"]),
        ("4Mi", "4Mi")
    );
}

#[test]
fn every_container_must_set_required_resources() {
    let names = BTreeSet::from(["limits.cpu", "memory"]);
    let full = json!({"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}});
    let mut pod = json!({"spec": {"containers": [{"name": "a", "resources": full}, {"name": "b"}],
        "initContainers": [{"name": "i"}]}});
    assert_eq!(
        unmet_by_pod(&pod, &names).unwrap(),
        "must specify limits.cpu for: b,i; memory for: b,i"
    );
    pod["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    assert_eq!(unmet_by_pod(&pod, &names), None, "set for the whole Pod");
}

/// Returns which of the Pods are in a scope.
fn in_scope(scope: Value, pods: &[Value]) -> Vec<bool> {
    let mut spec = json!({"hard": {"pods": "9"}});
    let field = if scope.is_string() {
        "scopes"
    } else {
        "scopeSelector"
    };
    spec[field] = match scope {
        Value::String(_) => json!([scope]),
        other => json!({"matchExpressions": [other]}),
    };
    let counts = |pod: &Value| used(&spec, "", "pods", std::slice::from_ref(pod))["pods"] == "1";
    pods.iter().map(counts).collect()
}

#[test]
fn pods_match_scopes_and_their_opposites() {
    let with = |spec: Value| {
        let mut pod = pod(&json!({}));
        for (name, value) in spec.as_object().unwrap() {
            pod["spec"][name] = value.clone();
        }
        pod
    };
    let short = with(json!({"activeDeadlineSeconds": 5}));
    let plain = with(json!({}));
    let pods = [short, plain];
    assert_eq!(in_scope(json!("Terminating"), &pods), [true, false]);
    assert_eq!(in_scope(json!("NotTerminating"), &pods), [false, true]);
    let zero = pod(&json!({"requests": {"cpu": "0"}}));
    let some = pod(&json!({"limits": {"memory": "1"}}));
    let gpu = pod(&json!({"limits": {"example.com/gpu": "1"}}));
    let pods = [zero, some, gpu];
    assert_eq!(in_scope(json!("BestEffort"), &pods), [true, false, true]);
    assert_eq!(
        in_scope(json!("NotBestEffort"), &pods),
        [false, true, false]
    );
    let class = |name: &str| with(json!({"priorityClassName": name}));
    let pods = [class("high"), class("low"), with(json!({}))];
    let selected = |operator: &str| {
        let values = if operator.ends_with("In") {
            json!(["high"])
        } else {
            json!([])
        };
        let scope = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        in_scope(scope, &pods)
    };
    assert_eq!(selected("In"), [true, false, false]);
    assert_eq!(selected("NotIn"), [false, true, true]);
    assert_eq!(selected("Exists"), [true, true, false]);
    assert_eq!(selected("DoesNotExist"), [false, false, true]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity =
        |which: &str, list: &str, terms: Value| with(json!({"affinity": {which: {list: terms}}}));
    let pods = [
        affinity(
            "podAntiAffinity",
            required,
            json!([{"namespaces": ["other"]}]),
        ),
        affinity("podAffinity", required, json!([{"namespaceSelector": {}}])),
        affinity(
            "podAffinity",
            preferred,
            json!([{"podAffinityTerm": {"namespaces": ["other"]}}]),
        ),
        affinity("podAffinity", required, json!([{"namespaces": []}])),
    ];
    assert_eq!(
        in_scope(json!("CrossNamespacePodAffinity"), &pods),
        [true, true, true, false]
    );
}

#[test]
fn services_count_their_ports() {
    let spec = json!({"hard": {"services.nodeports": "9", "services.loadbalancers": "9"}});
    let counted = |service: Value| {
        let used = used(&spec, "", "services", &[json!({"spec": service})]);
        (
            used["services.loadbalancers"].clone(),
            used["services.nodeports"].clone(),
        )
    };
    let ports = json!([{"port": 1, "nodePort": 30000}, {"port": 2}]);
    let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let kind = |kind: &str| json!({"type": kind, "ports": ports});
    assert_eq!(counted(kind("ClusterIP")), both("0", "0"));
    assert_eq!(counted(kind("NodePort")), both("0", "2"));
    assert_eq!(counted(kind("LoadBalancer")), both("1", "2"));
    let mut fixed = kind("LoadBalancer");
    fixed["allocateLoadBalancerNodePorts"] = false.into();
    assert_eq!(counted(fixed), both("1", "1"));
}

#[test]
fn claims_count_their_allocations() {
    let spec = json!({"hard": {"requests.storage": "9",
        "old.storageclass.storage.k8s.io/persistentvolumeclaims": "9"}});
    let claim = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class":
        "old"}}, "spec": {"storageClassName": "new", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"allocatedResources": {"storage": "3Gi"}}});
    let used = used(&spec, "", "persistentvolumeclaims", &[claim]);
    assert_eq!(used["requests.storage"], "3Gi");
    assert_eq!(
        used["old.storageclass.storage.k8s.io/persistentvolumeclaims"],
        "1"
    );
}

#[test]
fn claims_can_be_selected_by_their_attributes_class() {
    let scope = json!({"scopeName": "VolumeAttributesClass", "operator": "In",
        "values": ["fast"]});
    let spec = json!({"hard": {"persistentvolumeclaims": "9"},
        "scopeSelector": {"matchExpressions": [scope]}});
    let claims = [
        json!({"spec": {"volumeAttributesClassName": "fast"}}),
        json!({"spec": {}, "status": {"currentVolumeAttributesClassName": "fast"}}),
        json!({"spec": {"volumeAttributesClassName": "slow"}}),
    ];
    let used = used(&spec, "", "persistentvolumeclaims", &claims);
    assert_eq!(used["persistentvolumeclaims"], "2");
}

#[test]
fn limits_count_kinds_of_their_group() {
    let spec = json!({"hard": {"count/secrets.example.com": "9", "secrets": "9"}});
    let secret = json!({"metadata": {"name": "s"}});
    assert_eq!(
        used(
            &spec,
            "example.com",
            "secrets",
            std::slice::from_ref(&secret)
        ),
        BTreeMap::from([("count/secrets.example.com".to_owned(), "1".to_owned())])
    );
    assert_eq!(
        used(&spec, "", "secrets", &[secret]),
        BTreeMap::from([("secrets".to_owned(), "1".to_owned())])
    );
}

#[test]
fn device_claims_count_the_largest_alternative_per_class() {
    let claim = |requests: &Value| json!({"spec": {"devices": {"requests": requests}}});
    let gpus = |count: usize| json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
    let all = json!({"deviceClassName": "nic", "allocationMode": "All"});
    let used_by = |claims: &[Value]| {
        let spec = json!({"hard": {"gpu.deviceclass.resource.k8s.io/devices": "9",
            "nic.deviceclass.resource.k8s.io/devices": "9",
            "other.deviceclass.resource.k8s.io/devices": "9",
            "count/resourceclaims.resource.k8s.io": "9"}});
        let used = used(&spec, "resource.k8s.io", "resourceclaims", claims);
        let class =
            |name: &str| used[&format!("{name}.deviceclass.resource.k8s.io/devices")].clone();
        let count = used["count/resourceclaims.resource.k8s.io"].clone();
        [class("gpu"), class("nic"), class("other"), count]
    };
    let exact = claim(&json!([{"name": "a", "exactly": gpus(2)}, {"name": "b", "exactly": all}]));
    assert_eq!(used_by(std::slice::from_ref(&exact)), ["2", "32", "0", "1"]);
    // Only one alternative is allocated, so the largest counts, for each class.
    let first = claim(&json!([{"name": "a", "firstAvailable": [gpus(1), gpus(3), all, gpus(2)]}]));
    assert_eq!(used_by(std::slice::from_ref(&first)), ["3", "32", "0", "1"]);
    assert_eq!(used_by(&[exact, first]), ["5", "64", "0", "2"]);
    let unknown = json!({"deviceClassName": "gpu", "allocationMode": "Later", "count": 4});
    let unknown = claim(&json!([{"name": "a", "exactly": unknown}, {"name": "b", "later": {}}]));
    assert_eq!(used_by(&[unknown]), ["0", "0", "0", "1"]);
    assert_eq!(used_by(&[claim(&json!([]))]), ["0", "0", "0", "1"]);
}

#[test]
fn requested_devices_count_by_resource() {
    let class = "deviceclass.resource.kubernetes.io/gpu";
    let spec = json!({"hard": {format!("requests.{class}"): "9", "requests.example.com/nic": "9",
        "requests.other.kubernetes.io/nic": "9"}});
    let requests = json!({class: "2", "example.com/nic": "1", "other.kubernetes.io/nic": "1"});
    let used = used(&spec, "", "pods", &[pod(&json!({"requests": requests}))]);
    let expected = [
        ("requests.deviceclass.resource.kubernetes.io/gpu", "2"),
        ("requests.example.com/nic", "1"),
    ];
    let expected = expected.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
    assert_eq!(used, expected.into());
}
