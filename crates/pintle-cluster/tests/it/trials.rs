//! Checks that some of the loops converge under faults: each runs as the controller of a trial,
//! whose cluster simulates the others.
//!
//! Every check tries a sample of the single faults. `PINTLE_TRIALS_BUDGET=10m` tries all of them,
//! then pairs and combinations.

use std::time::Duration;

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    apps::v1::ReplicaSet,
    core::v1::{ConfigMap, Pod, ResourceQuota},
    policy::v1::PodDisruptionBudget,
};
use pintle_cluster::{Cluster, Loops};
use pintle_trials::{Check, Cx, Report, Story, check};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Starts a check of some loops.
fn trial(loops: Loops, story: Story) -> Check {
    let controller = move |cx: Cx| async move {
        let loops = Cluster::builder().loops(loops).clock(cx.clock()).seed(3);
        loops.run_on(cx.client(), cx.shutdown()).await;
    };
    check(controller)
        .story(story)
        .sample(30)
        .budget(Duration::MAX)
}

/// Asserts that faults were tried, and that no scenario was left out for lack of time.
fn assert_tried(report: &Report) {
    if std::env::var_os("PINTLE_TRIALS_BUDGET").is_none() {
        assert_eq!(report.left_out, 0, "{report}");
        assert!(report.families.len() > 8, "{report}");
    }
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    })
}

fn replica_set(replicas: i32) -> ReplicaSet {
    object(
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("web:1"),
        }}),
    )
}

/// Scales a set, deletes it and creates it again.
///
/// Proves trials/own-controllers.
#[test]
fn replica_sets_converge() {
    let story = Story::new()
        .apply(&replica_set(2))
        .apply(&replica_set(3))
        .apply(&replica_set(1))
        .delete(&replica_set(1))
        .apply(&replica_set(2));
    let trial = trial(Loops::REPLICA_SET, story).implements::<ReplicaSet>();
    assert_tried(&trial.run());
}

fn pod(name: &str) -> Pod {
    object(
        json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "web", "image": "web:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        }}),
    )
}

/// Proves trials/own-controllers.
#[test]
fn disruption_budgets_converge() {
    let budget = |least: i32| -> PodDisruptionBudget {
        object(
            json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
                "minAvailable": least, "selector": {"matchLabels": {"app": "web"}},
            }}),
        )
    };
    let story = Story::new()
        .apply(&budget(1))
        .apply(&pod("a"))
        .apply(&pod("b"))
        .apply(&budget(2))
        .delete(&pod("a"))
        .delete(&budget(2));
    assert_tried(&trial(Loops::DISRUPTION, story).run());
}

/// Proves trials/own-controllers.
#[test]
fn quotas_converge() {
    let quota = |most: &str| -> ResourceQuota {
        object(
            json!({"metadata": {"name": "limits", "namespace": "default"},
            "spec": {"hard": {"count/configmaps": most}}}),
        )
    };
    let map = |name: &str| -> ConfigMap {
        object(json!({"metadata": {"name": name, "namespace": "default"}}))
    };
    let story = Story::new()
        .apply(&map("a"))
        .apply(&quota("5"))
        .apply(&map("b"))
        .apply(&quota("7"))
        .delete(&map("a"))
        .delete(&quota("7"));
    assert_tried(&trial(Loops::QUOTA, story).run());
}

/// Proves trials/own-controllers.
#[test]
fn policy_status_converges() {
    let policy = |expression: &str| -> ValidatingAdmissionPolicy {
        object(json!({"metadata": {"name": "names"}, "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"],
            }]},
            "validations": [{"expression": expression}],
        }}))
    };
    let story = Story::new()
        .apply(&policy("object.metadata.name != 'a'"))
        .apply(&policy("object.data.missing.field == 1"))
        .delete(&policy("true"));
    assert_tried(&trial(Loops::POLICY_STATUS, story).run());
}
