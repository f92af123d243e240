//! Writes: rules for individual kinds.

use crate::support::*;
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const APPLY: &str = "application/apply-patch+yaml";

fn event(metadata: &Value) -> Value {
    json!({"metadata": metadata, "involvedObject": {"namespace": "default"},
        "reason": "Tested", "message": "m", "type": "Normal"})
}

/// Proves objects/identity.
#[tokio::test]
async fn namespace_of_cluster_scoped_object_is_cleared() {
    let server = server();
    let http = http(&server);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "reader", "namespace": "shop"}, "rules": []});
    let path = format!("{ROLES}/reader");
    let (code, made) = http.post(ROLES, &role).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"].get("namespace"), None);
    for (method, media) in [
        ("PUT", "application/json"),
        ("PATCH", "application/merge-patch+json"),
        ("PATCH", "application/strategic-merge-patch+json"),
    ] {
        let (code, changed) = http.raw(method, &path, media, role.to_string()).await;
        assert_eq!(code, 200, "{method} {media}: {changed}");
        assert_eq!(changed["metadata"].get("namespace"), None);
    }
    for name in ["reader", "writer"] {
        let mut role = role.clone();
        role["metadata"]["name"] = name.into();
        let path = format!("{ROLES}/{name}?fieldManager=me&force=true");
        let (code, applied) = http.raw("PATCH", &path, APPLY, role.to_string()).await;
        assert!(matches!(code, 200 | 201), "{applied}");
        assert_eq!(applied["metadata"].get("namespace"), None);
    }
    let space = json!({"metadata": {"name": "shop", "namespace": "other"}});
    let (code, made) = http.post("/api/v1/namespaces", &space).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"].get("namespace"), None);
}

/// Proves objects/generation.
#[tokio::test]
async fn annotating_a_deployment_bumps_its_generation() {
    let server = server();
    let http = http(&server);
    let annotate = json!({"metadata": {"annotations": {"team": "red"}}});
    let label = json!({"metadata": {"labels": {"team": "red"}}});
    let generation = |object: &Value| object["metadata"]["generation"].as_i64();

    http.post(DEPLOYMENTS, &deployment("web")).await;
    let path = format!("{DEPLOYMENTS}/web");
    let (_, labelled) = http.merge(&path, &label).await;
    assert_eq!(generation(&labelled), Some(1));
    let (_, annotated) = http.merge(&path, &annotate).await;
    assert_eq!(generation(&annotated), Some(2));
    let (_, again) = http.merge(&path, &annotate).await;
    assert_eq!(generation(&again), Some(2));
    let status = json!({"metadata": {"annotations": {"team": "blue"}}});
    let (_, through_status) = http.merge(&format!("{path}/status"), &status).await;
    assert_eq!(generation(&through_status), Some(2));

    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    http.post(sets, &deployment("web")).await;
    let (_, annotated) = http.merge(&format!("{sets}/web"), &annotate).await;
    assert_eq!(generation(&annotated), Some(1));

    // The labels of an EndpointSlice name its Service.
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []});
    http.post(slices, &slice).await;
    let (_, annotated) = http.merge(&format!("{slices}/s"), &annotate).await;
    assert_eq!(generation(&annotated), Some(1));
    let (_, labelled) = http.merge(&format!("{slices}/s"), &label).await;
    assert_eq!(generation(&labelled), Some(2));

    // The generation of a PriorityClass stays at 1; a CSIDriver starts without one.
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    http.post(classes, &json!({"metadata": {"name": "p"}, "value": 1}))
        .await;
    let (_, described) = http
        .merge(&format!("{classes}/p"), &json!({"description": "d"}))
        .await;
    assert_eq!(generation(&described), Some(1), "{described}");
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let (_, driver) = http
        .post(drivers, &json!({"metadata": {"name": "d"}, "spec": {}}))
        .await;
    assert_eq!(generation(&driver), None);
}

/// Proves objects/identity.
#[tokio::test]
async fn create_with_version_is_rejected_after_validation() {
    let server = server();
    let http = http(&server);
    let mut map = config_map("a");
    map["metadata"]["resourceVersion"] = "5".into();
    let (code, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!((code, status.get("reason")), (500, None));
    assert_eq!(
        status["message"],
        "resourceVersion should not be set on objects to be created"
    );
    // Validation comes before the check, the uniqueness of the name after it.
    let mut bad = map.clone();
    bad["data"] = json!({"no spaces": ""});
    assert_eq!(http.post(CONFIG_MAPS, &bad).await.0, 422);
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
    assert_eq!(http.post(CONFIG_MAPS, &map).await.0, 500);
    // A dry run never reaches the store, which does the check.
    map["metadata"]["name"] = "b".into();
    let (code, tried) = http.post(&format!("{CONFIG_MAPS}?dryRun=All"), &map).await;
    assert_eq!(
        (code, &tried["metadata"]["resourceVersion"]),
        (201, &json!("5"))
    );
    // An apply that creates ignores it.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "resourceVersion": "5"}});
    let path = format!("{CONFIG_MAPS}/c?fieldManager=me");
    let (code, made) = http.raw("PATCH", &path, APPLY, config.to_string()).await;
    assert_eq!(code, 201, "{made}");
    // "0" counts as unset.
    map["metadata"]["resourceVersion"] = "0".into();
    assert_eq!(http.post(CONFIG_MAPS, &map).await.0, 201);
}

/// Proves objects/validation.
#[tokio::test]
async fn core_event_names_are_path_segments() {
    let server = server();
    let http = http(&server);
    for metadata in [
        json!({"name": "Bad_Name"}),
        json!({"generateName": "p."}),
        json!({"generateName": "Big:"}),
    ] {
        let (code, made) = http.post(EVENTS, &event(&metadata)).await;
        assert_eq!(code, 201, "{made}");
    }
    let (code, _) = http.post(EVENTS, &event(&json!({"name": "a%b"}))).await;
    assert_eq!(code, 422);
    // events.k8s.io validates the names of new events and accepts existing ones.
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let strict = json!({"metadata": {"name": "Bad_Name2"}, "regarding": {"namespace": "default"},
        "reason": "Tested", "note": "m", "type": "Normal", "action": "a",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i"});
    assert_eq!(http.post(newer, &strict).await.0, 422);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, changed) = http.merge(&format!("{newer}/Bad_Name"), &label).await;
    assert_eq!(code, 200, "{changed}");
}

/// Proves lists/selectors.
#[tokio::test]
async fn event_source_selector_falls_back_to_the_reporter() {
    let server = server();
    let http = http(&server);
    let mut old = event(&json!({"name": "old"}));
    old["source"] = json!({"component": "kubelet"});
    let mut new = event(&json!({"name": "new"}));
    new["reportingComponent"] = "scheduler".into();
    for event in [&old, &new] {
        assert_eq!(http.post(EVENTS, event).await.0, 201);
    }
    for (source, name) in [("kubelet", "old"), ("scheduler", "new")] {
        let path = format!("{EVENTS}?fieldSelector=source%3D{source}");
        let (_, list) = http.get(&path).await;
        let items = list["items"].as_array().unwrap();
        let names: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(names, [name]);
    }
}

/// Proves objects/validation.
#[tokio::test]
async fn ip_address_names_are_canonical_addresses() {
    let server = server();
    let http = http(&server);
    let path = "/apis/networking.k8s.io/v1/ipaddresses";
    let address = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"parentRef": {
            "resource": "services", "namespace": "default", "name": "s"}}})
    };
    for name in ["192.168.1.5", "2001:db8::ffff"] {
        let (code, made) = http.post(path, &address(name)).await;
        assert_eq!(code, 201, "{made}");
    }
    for (name, why) in [
        (
            "web",
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        ("10.01.1.1", "must not have leading 0s"),
        (
            "2001:DB8:0::1",
            "must be in canonical form (\"2001:db8::1\")",
        ),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
    ] {
        let (code, status) = http.post(path, &address(name)).await;
        assert_eq!(code, 422, "{name}");
        assert!(causes(&status)[0].ends_with(why), "{status}");
    }
}

/// Proves objects/validation.
#[tokio::test]
async fn proc_mount_is_validated() {
    let server = server();
    let http = http(&server);
    let pod = |mounts: [&str; 2], host_users: Value| {
        let container = |name: &str, mount: &str| json!({"name": name, "image": "x", "securityContext": {"procMount": mount}});
        json!({"metadata": {"name": "p"}, "spec": {"hostUsers": host_users,
            "containers": [container("a", mounts[0])],
            "initContainers": [container("b", mounts[1])]}})
    };
    let (code, status) = http
        .post(PODS, &pod(["Unmasked", "masked"], Value::Null))
        .await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(
        causes(&status),
        [
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": \
             `hostUsers` must be false to use `Unmasked`",
            "spec.initContainers[0].securityContext.procMount: Unsupported value: \"masked\": \
             supported values: \"Default\", \"Unmasked\"",
        ]
    );
    let (code, status) = http
        .post(PODS, &pod(["Unmasked", "Default"], false.into()))
        .await;
    assert_eq!(code, 201, "{status}");
}

/// Proves objects/validation.
#[tokio::test]
async fn ephemeral_containers_are_validated_and_only_added() {
    let server = server();
    let http = http(&server);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    assert_eq!(http.post(PODS, &pod).await.0, 201);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let patch = |list: Value| json!({"spec": {"ephemeralContainers": list}});
    let bad = patch(json!([
        {"name": "c", "image": "x", "targetContainerName": "other"},
        {"name": "d", "ports": [{"containerPort": 80}],
            "securityContext": {"procMount": "Unmasked"}},
        {"name": "e", "image": "x", "resources": {"limits": {"cpu": "1"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}]},
    ]));
    let (code, status) = http.merge(&path, &bad).await;
    assert_eq!(code, 422, "{status}");
    let only = "Forbidden: cannot be set for an Ephemeral Container";
    assert_eq!(
        causes(&status),
        [
            "spec.ephemeralContainers[0].name: Duplicate value: \"c\"".to_owned(),
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"other\"".to_owned(),
            "spec.ephemeralContainers[1].image: Required value".to_owned(),
            "spec.ephemeralContainers[1].securityContext.procMount: Invalid value: \"Unmasked\": \
             `hostUsers` must be false to use `Unmasked`"
                .to_owned(),
            format!("spec.ephemeralContainers[1].ports: {only}"),
            "spec.ephemeralContainers[2].volumeMounts[0].name: Not found: \"v\"".to_owned(),
            format!("spec.ephemeralContainers[2].resources: {only}"),
            format!("spec.ephemeralContainers[2].volumeMounts[0].subPath: {only}"),
        ]
    );
    let good = |image: &str| patch(json!([{"name": "e", "image": image}]));
    let (code, status) = http.merge(&path, &good("x")).await;
    assert_eq!(code, 200, "{status}");
    for (change, what) in [(good("y"), "changed"), (patch(json!([])), "removed")] {
        let (code, status) = http.merge(&path, &change).await;
        assert_eq!(code, 422, "{status}");
        assert_eq!(
            causes(&status),
            [format!(
                "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not \
                 be {what}\n"
            )]
        );
    }
}

#[tokio::test]
async fn sysctl_names_are_validated() {
    let server = server();
    let http = http(&server);
    let pod = |names: &[&str]| {
        let sysctls: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "value": "1"}))
            .collect();
        json!({"metadata": {"name": "p"}, "spec": {
            "securityContext": {"sysctls": sysctls},
            "containers": [{"name": "c", "image": "x"}]}})
    };
    let pods = "/api/v1/namespaces/default/pods";
    let (code, status) = http
        .post(pods, &pod(&["", "Kernel.x", "a..b", "a.b", "a.b"]))
        .await;
    assert_eq!(code, 422);
    let why = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    assert_eq!(
        causes(&status),
        [
            "spec.securityContext.sysctls[0].name: Required value".to_owned(),
            format!("spec.securityContext.sysctls[1].name: Invalid value: \"Kernel.x\": {why}"),
            format!("spec.securityContext.sysctls[2].name: Invalid value: \"a..b\": {why}"),
            "spec.securityContext.sysctls[4].name: Duplicate value: \"a.b\"".to_owned(),
        ]
    );
    let (code, made) = http
        .post(pods, &pod(&["net/ipv4/tcp_syncookies", "kernel.shm_rmid"]))
        .await;
    assert_eq!(code, 201, "{made}");
}

/// Proves objects/defaults.
#[tokio::test]
async fn stateful_set_mounts_may_name_claim_templates() {
    let server = server();
    let http = http(&server);
    let set = |mount: &str| {
        json!({"metadata": {"name": "db"}, "spec": {
            "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
                // Both are overwritten for each Pod, so they are not validated.
                "hostname": "a.b", "subdomain": "c.d",
                "containers": [{"name": "c", "image": "x",
                    "volumeMounts": [{"name": mount, "mountPath": "/data"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}})
    };
    let (code, made) = http.post(STATEFUL_SETS, &set("data")).await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{STATEFUL_SETS}/db");
    let (code, scaled) = http.merge(&path, &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(code, 200, "{scaled}");
    let mut other = set("logs");
    other["metadata"]["name"] = "other".into();
    let (code, status) = http.post(STATEFUL_SETS, &other).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        ["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"logs\""]
    );
}

/// Proves objects/defaults.
#[tokio::test]
async fn max_unavailable_of_a_stateful_set_is_dropped() {
    let server = server();
    let http = http(&server);
    // The feature gate of this field is off by default.
    let strategy = json!({"rollingUpdate": {"partition": 1, "maxUnavailable": 2}});
    let mut set = deployment("db");
    set["spec"]["updateStrategy"] = strategy.clone();
    let (code, created) = http.post(STATEFUL_SETS, &set).await;
    assert_eq!(code, 201, "{created}");
    let path = format!("{STATEFUL_SETS}/db");
    let update = json!({"spec": {"updateStrategy": strategy}});
    let (code, updated) = http.merge(&path, &update).await;
    assert_eq!(code, 200, "{updated}");
    for set in [created, updated] {
        let stored = &set["spec"]["updateStrategy"]["rollingUpdate"];
        assert_eq!(*stored, json!({"partition": 1}));
    }
}

/// Proves objects/types.
#[tokio::test]
async fn mistyped_strategic_patch_gets_upstream_message() {
    let server = server();
    let http = http(&server);
    http.post(DEPLOYMENTS, &deployment("web")).await;
    let container = |field: &str, value: Value| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", field: value}]}}}});
    for (patch, shown, why) in [
        (
            json!({"metadata": {"labels": "x"}}),
            "map[metadata:map[labels:x]]",
            "cannot restore map from string",
        ),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "map[metadata:map[labels:map[a:1]]]",
            "cannot convert int64 to string",
        ),
        (
            json!({"metadata": {"finalizers": "x"}}),
            "map[metadata:map[finalizers:x]]",
            "cannot restore slice from string",
        ),
        (
            json!({"metadata": {"creationTimestamp": 5}}),
            "map[metadata:map[creationTimestamp:5]]",
            "json: cannot unmarshal number into Go value of type string",
        ),
        (
            json!({"spec": "x"}),
            "map[spec:x]",
            "cannot restore struct from: string",
        ),
        (
            json!({"spec": {"replicas": "x"}}),
            "map[spec:map[replicas:x]]",
            "unrecognized type: int32",
        ),
        (
            json!({"spec": {"replicas": 1.5}}),
            "map[spec:map[replicas:1.5]]",
            "cannot convert float64 to int32",
        ),
        (
            json!({"spec": {"paused": "x"}}),
            "map[spec:map[paused:x]]",
            "unrecognized type: bool",
        ),
        (
            container("image", json!({"a": "b"})),
            "map[spec:map[template:map[spec:map[containers:[map[image:map[a:b] name:c]]]]]]",
            "unrecognized type: string",
        ),
    ] {
        let path = format!("{DEPLOYMENTS}/web");
        let media = "application/strategic-merge-patch+json";
        let (code, status) = http.raw("PATCH", &path, media, patch.to_string()).await;
        assert_eq!(code, 422, "{patch}");
        assert_eq!(
            status["message"],
            format!(" \"\" is invalid: patch: Invalid value: {shown:?}: {why}")
        );
    }
}

/// Proves objects/field-validation.
#[tokio::test]
async fn strict_errors_are_in_document_order() {
    let server = server();
    let http = http(&server);
    let body = r#"{"zz":1,"kind":"ConfigMap","metadata":{"name":"a","b":{"c":1,"c":2},
        "labels":{"x":"1","x":"2"},"a":1},"zz":2,"data":{"k":"v","k":"w"},"apiVersion":"v1",
        "data":{},"aa":1}"#;
    let path = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let (code, status) = http.raw("POST", &path, "application/json", body).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         unknown field \"zz\", unknown field \"metadata.b\", duplicate field \
         \"metadata.labels.x\", unknown field \"metadata.a\", duplicate field \"data.k\", \
         duplicate field \"data\", unknown field \"aa\""
    );
}
