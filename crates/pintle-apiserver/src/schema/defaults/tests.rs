use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::builtin::kind;
use crate::schema::structural::any_json;
use crate::schema::typed::canonicalize;

fn defaulted(group: &str, version: &str, name: &str, mut object: Value) -> Value {
    let ty = kind(group, version, name).unwrap();
    canonicalize(&mut object, ty).unwrap();
    apply(&mut object, ty);
    let once = object.clone();
    apply(&mut object, ty);
    assert_eq!(once, object, "defaulting is not idempotent");
    object
}

/// Proves objects/defaults.
#[test]
fn defaults_refer_to_existing_fields() {
    for (name, fields) in literals::ALL {
        let ty = named(name).unwrap_or_else(|| panic!("no type {name}"));
        for (field, literal) in *fields {
            assert!(ty.field(field).is_some(), "{name} has no field {field}");
            serde_json::from_str::<Value>(literal).unwrap();
        }
    }
    for (name, _) in computed::ALL {
        assert!(named(name).is_some(), "no type {name}");
    }
}

/// Proves objects/defaults.
#[test]
fn pod_gets_its_defaults() {
    let pod = defaulted(
        "",
        "v1",
        "Pod",
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "robot", "hostNetwork": true,
                "containers": [{
                    "name": "c", "image": "nginx:1.2",
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
                    "livenessProbe": {"httpGet": {"port": 80}},
                }],
                "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}],
            },
        }),
    );
    assert_eq!(
        pod,
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{
                    "name": "c", "image": "nginx:1.2", "imagePullPolicy": "IfNotPresent",
                    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                    "resources": {
                        "limits": {"cpu": "1", "memory": "1Gi"},
                        "requests": {"cpu": "500m", "memory": "1Gi"},
                    },
                    "livenessProbe": {
                        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                    },
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "hostNetwork": true,
                "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
                "serviceAccount": "robot", "serviceAccountName": "robot",
                "terminationGracePeriodSeconds": 30,
                "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}],
            },
            "status": {},
        })
    );
}

/// Proves objects/defaults.
#[test]
fn workloads_get_default_strategies() {
    let spec = |object: Value| object["spec"].clone();
    let deployment = spec(defaulted(
        "apps",
        "v1",
        "Deployment",
        json!({"spec": {"replicas": 0}}),
    ));
    assert_eq!(deployment["replicas"], 0, "zero is a number of replicas");
    assert_eq!(
        deployment["strategy"],
        json!({"type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    let recreate = json!({"spec": {"strategy": {"type": "Recreate"}}});
    let recreate = spec(defaulted("apps", "v1", "Deployment", recreate));
    assert_eq!(recreate["strategy"], json!({"type": "Recreate"}));
    let stateful = spec(defaulted("apps", "v1", "StatefulSet", json!({"spec": {}})));
    assert_eq!(
        stateful["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(
        stateful["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
    );
    let job = defaulted(
        "batch",
        "v1",
        "Job",
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
    );
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(
        (&job["spec"]["completions"], &job["spec"]["backoffLimit"]),
        (&json!(1), &json!(6))
    );
}

/// Proves objects/defaults.
#[test]
fn service_gets_default_ports_and_policies() {
    let service = defaulted(
        "",
        "v1",
        "Service",
        json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
    );
    assert_eq!(
        service["spec"],
        json!({
            "type": "NodePort", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        })
    );
}

/// Proves objects/defaults.
#[test]
fn string_data_is_moved_to_data() {
    let secret = defaulted(
        "",
        "v1",
        "Secret",
        json!({"data": {"a": "YQ=="}, "stringData": {"b": "b"}}),
    );
    assert_eq!(
        secret,
        json!({"metadata": {}, "type": "Opaque", "data": {"a": "YQ==", "b": "Yg=="}})
    );
}

/// Proves objects/defaults.
#[test]
fn pull_policy_depends_on_the_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ] {
        let pod = defaulted(
            "",
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "c", "image": image}]}}),
        );
        assert_eq!(
            pod["spec"]["containers"][0]["imagePullPolicy"], policy,
            "{image}"
        );
    }
}

/// Proves crd/names.
#[test]
fn crd_gets_default_names_and_stored_version() {
    let crd = defaulted(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        json!({"spec": {
            "group": "example.com", "names": {"kind": "Foo", "plural": "foos"}, "scope": "Namespaced",
            "versions": [{"name": "v1beta1", "served": true, "storage": false}, {"name": "v1", "served": true, "storage": true}],
        }}),
    );
    assert_eq!(
        crd["spec"]["names"],
        json!({"kind": "Foo", "plural": "foos", "singular": "foo", "listKind": "FooList"})
    );
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
}

proptest! {
    // Proves objects/defaults.
    #[test]
    fn defaulted_objects_are_canonical(spec in any_json()) {
        for (group, name) in [("", "Pod"), ("apps", "Deployment"), ("", "Service"), ("batch", "Job")] {
            let ty = kind(group, "v1", name).unwrap();
            let mut object = json!({"metadata": {"name": "x"}, "spec": spec});
            if canonicalize(&mut object, ty).is_ok() {
                apply(&mut object, ty);
                let before = object.clone();
                canonicalize(&mut object, ty).unwrap();
                prop_assert_eq!(&before, &object);
                apply(&mut object, ty);
                prop_assert_eq!(&before, &object);
            }
        }
    }
}
