//! Pods: scheduling gates, bindings, admission, graceful deletion.

use std::time::Duration;

use crate::support::*;
use pintle_apiserver::{ApiServer, Clock, PodDeletion};
use serde_json::{Value, json};

fn gated(name: &str, gates: &[&str]) -> Value {
    let mut pod = pod(name);
    let gates: Vec<_> = gates.iter().map(|gate| json!({"name": gate})).collect();
    pod["spec"]["schedulingGates"] = gates.into();
    pod
}

fn binding(name: &str, metadata: &Value) -> Value {
    let mut binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    for (key, value) in metadata.as_object().unwrap() {
        binding["metadata"][key] = value.clone();
    }
    binding
}

/// Proves subresources/binding-eviction.
#[tokio::test]
async fn gated_pod_is_not_bound_until_gates_are_gone() {
    let server = server();
    let http = http(&server);
    let (code, made) = http.post(PODS, &gated("p", &["a.io/x", "a.io/y"])).await;
    assert_eq!(code, 201, "{made}");
    let condition = &made["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(condition["reason"], "SchedulingGated");
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
    let path = format!("{PODS}/p/binding");
    let (code, status) = http.post(&path, &binding("p", &json!({}))).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates"
    );
    // Gates can be removed one by one, but not added.
    let gates = |names: &[&str]| {
        let gates: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"spec": {"schedulingGates": gates}})
    };
    let (code, status) = http
        .merge(&format!("{PODS}/p"), &gates(&["a.io/x", "a.io/z"]))
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        [
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a.io/z'"
        ]
    );
    for left in [&["a.io/y"][..], &[]] {
        let (code, changed) = http.merge(&format!("{PODS}/p"), &gates(left)).await;
        assert_eq!(code, 200, "{changed}");
    }
    assert_eq!(http.post(&path, &binding("p", &json!({}))).await.0, 201);
}

#[tokio::test]
async fn gates_are_checked_when_a_pod_is_created() {
    let server = server();
    let http = http(&server);
    let mut bad = gated("p", &["a", "a", "not a name"]);
    bad["spec"]["nodeName"] = "n1".into();
    let (code, status) = http.post(PODS, &bad).await;
    assert_eq!(code, 422);
    let causes = causes(&status);
    assert_eq!(causes[0], "spec.schedulingGates[1]: Duplicate value: \"a\"");
    assert!(causes[1].starts_with("spec.schedulingGates[2]: Invalid value: \"not a name\""));
    assert_eq!(
        causes[2..],
        ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]
    );
}

#[tokio::test]
async fn gated_pod_may_only_narrow_where_it_runs() {
    let server = server();
    let http = http(&server);
    let mut held = gated("held", &["a.io/x"]);
    held["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    http.post(PODS, &held).await;
    let mut free = pod("free");
    free["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    http.post(PODS, &free).await;
    let narrow = json!({"spec": {"nodeSelector": {"zone": "a"}}});
    let widen = json!({"spec": {"nodeSelector": {"disk": null}}});
    assert_eq!(http.merge(&format!("{PODS}/held"), &narrow).await.0, 200);
    assert_eq!(http.merge(&format!("{PODS}/free"), &narrow).await.0, 422);
    let (code, status) = http.merge(&format!("{PODS}/held"), &widen).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        [
            "spec.nodeSelector: Invalid value: {\"zone\":\"a\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        ]
    );
    let affinity = |keys: &[&str]| {
        let expressions: Vec<_> = keys
            .iter()
            .map(|key| json!({"key": key, "operator": "Exists"}))
            .collect();
        json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}]}}}}})
    };
    for (keys, wanted) in [(&["a"][..], 200), (&["a", "b"], 200), (&["b"], 422)] {
        let (code, answer) = http.merge(&format!("{PODS}/held"), &affinity(keys)).await;
        assert_eq!(code, wanted, "{keys:?}: {answer}");
    }
}

/// Proves subresources/binding-eviction.
#[tokio::test]
async fn binding_checks_preconditions_and_copies_annotations() {
    let server = server();
    let http = http(&server);
    let (_, made) = http.post(PODS, &pod("p")).await;
    let (uid, version) = (
        &made["metadata"]["uid"],
        &made["metadata"]["resourceVersion"],
    );
    let path = format!("{PODS}/p/binding");
    let (code, status) = http
        .post(&path, &binding("p", &json!({"uid": "other"})))
        .await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        format!(
            "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: {}",
            uid.as_str().unwrap()
        )
    );
    let stale = json!({"uid": uid, "resourceVersion": "1"});
    let (code, status) = http.post(&path, &binding("p", &stale)).await;
    assert_eq!(code, 409, "{status}");
    let (code, status) = http.post(&path, &binding("q", &json!({}))).await;
    assert_eq!(
        (code, status["message"].as_str()),
        (
            400,
            Some("name in URL does not match name in Binding object")
        )
    );
    let good = json!({"uid": uid, "resourceVersion": version,
        "annotations": {"scheduler/why": "room"}, "labels": {"zone": "a"}});
    let (code, status) = http.post(&path, &binding("p", &good)).await;
    assert_eq!(code, 201, "{status}");
    let (_, bound) = http.get(&format!("{PODS}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(
        bound["metadata"]["annotations"],
        json!({"scheduler/why": "room"})
    );
    assert_eq!(bound["metadata"]["labels"], json!({"zone": "a"}));
}

/// Proves delete/pod-grace, delete/answer.
#[tokio::test(start_paused = true)]
async fn second_delete_never_extends_the_grace_period() {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder()
        .clock(Clock::starting_at(start))
        .pod_deletion(PodDeletion::AfterGrace)
        .build();
    let http = http(&server);
    let mut long = pod("p");
    long["spec"]["nodeName"] = "n1".into();
    http.post(PODS, &long).await;
    let path = format!("{PODS}/p");
    let end = |pod: &Value| {
        let metadata = &pod["metadata"];
        (
            metadata["deletionTimestamp"].as_str().unwrap().to_owned(),
            metadata["deletionGracePeriodSeconds"].as_i64().unwrap(),
        )
    };
    let after = |time: &str, grace: i64| (format!("2026-01-01T00:{time}Z"), grace);
    let (_, marked) = http.delete(&format!("{path}?gracePeriodSeconds=60")).await;
    assert_eq!(end(&marked), after("01:00", 60));

    tokio::time::sleep(Duration::from_secs(10)).await;
    // Neither the default grace period nor a longer one extends it.
    let (_, again) = http.delete(&path).await;
    assert_eq!(end(&again), after("01:00", 60));
    assert_eq!(
        again["metadata"]["resourceVersion"],
        marked["metadata"]["resourceVersion"]
    );
    let over = json!({"status": {"phase": "Succeeded"}});
    http.merge(&format!("{path}/status"), &over).await;
    let (_, again) = http.delete(&path).await;
    assert_eq!(end(&again), after("01:00", 60));
    let (_, longer) = http.delete(&format!("{path}?gracePeriodSeconds=90")).await;
    assert_eq!(end(&longer), after("01:00", 60));

    // A shorter period counts from the first delete.
    let (_, shorter) = http.delete(&format!("{path}?gracePeriodSeconds=20")).await;
    assert_eq!(end(&shorter), after("00:20", 20));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(http.get(&path).await.0, 200);
    // A period that has already passed leaves the minimum of one second.
    let (_, passed) = http.delete(&format!("{path}?gracePeriodSeconds=5")).await;
    assert_eq!(end(&passed), after("00:19", 1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(http.get(&path).await.0, 404);
}

#[tokio::test]
async fn priority_comes_from_an_existing_class() {
    let server = server();
    let http = http(&server);
    let with = |fields: Value| {
        let mut pod = json!({"metadata": {"generateName": "p-"},
            "spec": {"containers": [{"name": "c", "image": "x"}]}});
        for (key, value) in fields.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        pod
    };
    let (code, status) = http
        .post(PODS, &with(json!({"priorityClassName": "nope"})))
        .await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods \"p-\" is forbidden: no PriorityClass with name nope was found"
    );
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"});
    assert_eq!(http.post(classes, &class).await.0, 201);
    let (code, made) = http
        .post(PODS, &with(json!({"priorityClassName": "high"})))
        .await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["priority"], 7);
    assert_eq!(made["spec"]["preemptionPolicy"], "Never");
    let wrong = with(json!({"priorityClassName": "high", "priority": 5}));
    let (code, status) = http.post(PODS, &wrong).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods \"p-\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 7 from the given PriorityClass name"
    );
    // Without a class, the default class applies if there is one.
    let (_, made) = http.post(PODS, &with(json!({}))).await;
    assert_eq!(made["spec"]["priority"], 0);
    let class = json!({"metadata": {"name": "usual"}, "value": 3, "globalDefault": true});
    assert_eq!(http.post(classes, &class).await.0, 201);
    let (_, made) = http.post(PODS, &with(json!({}))).await;
    assert_eq!(made["spec"]["priorityClassName"], "usual");
    assert_eq!(made["spec"]["priority"], 3);
}

#[tokio::test]
async fn unknown_service_account_is_rejected() {
    let server = server();
    let http = http(&server);
    let mut robot = pod("p");
    robot["spec"]["serviceAccountName"] = "robot".into();
    let (code, status) = http.post(PODS, &robot).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods \"p\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    http.post(accounts, &json!({"metadata": {"name": "robot"}}))
        .await;
    assert_eq!(http.post(PODS, &robot).await.0, 201);
    // A bare server does not create the default account, so it is not looked up.
    let mut usual = pod("q");
    usual["spec"]["serviceAccountName"] = "default".into();
    assert_eq!(http.post(PODS, &usual).await.0, 201);
}
