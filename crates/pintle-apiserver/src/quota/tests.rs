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
        "nonsense": "1"}}));
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
            "foos.example.com"
        ]
    );
}

#[test]
fn init_containers_count_by_the_largest_and_sidecars_always() {
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
fn nothing_of_a_kind_is_zero() {
    let spec = json!({"hard": {"count/foos.example.com": "9", "pods": "1"}});
    let used = used(&spec, "example.com", "foos", &[]);
    assert_eq!(
        used,
        BTreeMap::from([("count/foos.example.com".to_owned(), "0".to_owned())])
    );
}
