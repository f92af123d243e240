//! The loops converge under faults: each runs as the controller of a trial, whose cluster simulates
//! the others.
//!
//! Every check tries a sample of the single faults. `PINTLE_TRIALS_BUDGET=10m` tries all of them,
//! then pairs and combinations.

use std::time::Duration;

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota},
    policy::v1::PodDisruptionBudget,
    rbac::v1::ClusterRole,
};
use pintle_cluster::{Cluster, Loops};
use pintle_trials::{Check, Cx, Oracle, Report, Story, check};
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

/// A Deployment without a history, which would depend on the path.
fn deployment(replicas: i32, image: &str) -> Deployment {
    object(
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
            "revisionHistoryLimit": 0,
        "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(image),
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

/// Rolls a Deployment out, back, and deletes it.
///
/// Proves trials/own-controllers.
#[test]
fn deployments_converge() {
    let story = Story::new()
        .apply(&deployment(2, "web:1"))
        .apply(&deployment(2, "web:2"))
        .apply(&deployment(3, "web:1"))
        .delete(&deployment(3, "web:1"));
    let trial = trial(Loops::DEPLOYMENT, story).implements::<Deployment>();
    assert_tried(&trial.run());
}

/// The loops behind a Deployment crash together, with the garbage collector.
///
/// Proves trials/own-controllers.
#[test]
fn deployments_and_their_garbage_converge() {
    let story = Story::new()
        .apply(&deployment(2, "web:1"))
        .delete(&deployment(2, "web:1"));
    let loops = Loops::DEPLOYMENT | Loops::REPLICA_SET | Loops::GARBAGE_COLLECTOR;
    let trial = trial(loops, story)
        .implements::<Deployment>()
        .implements::<ReplicaSet>()
        .without_garbage_collector()
        .sample(20);
    assert_tried(&trial.run());
}

/// Proves trials/own-controllers.
#[test]
fn stateful_sets_converge() {
    let set = |replicas: i32, image: &str| -> StatefulSet {
        object(
            json!({"metadata": {"name": "db", "namespace": "default"}, "spec": {
                "replicas": replicas,
                "serviceName": "db",
                "selector": {"matchLabels": {"app": "web"}},
                "template": template(image),
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }}],
            }}),
        )
    };
    let story = Story::new()
        .apply(&set(2, "db:1"))
        .apply(&set(2, "db:2"))
        .apply(&set(1, "db:2"))
        .delete(&set(1, "db:2"));
    let trial = trial(Loops::STATEFUL_SET, story)
        .implements::<StatefulSet>()
        .relax(
            Oracle::PathFree,
            "revisions are numbered in order of the changes",
        );
    assert_tried(&trial.run());
}

/// A Job with a selector of its own: a generated one would be part of its immutable template.
fn job(parallelism: i32, ttl: Option<i32>) -> Job {
    object(
        json!({"metadata": {"name": "task", "namespace": "default"}, "spec": {
            "completions": 2,
            "parallelism": parallelism,
            "ttlSecondsAfterFinished": ttl,
            "manualSelector": true,
            "selector": {"matchLabels": {"app": "task"}},
            "template": {
                "metadata": {"labels": {"app": "task"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "task", "image": "task:1"}],
                },
            },
        }}),
    )
}

/// Proves trials/own-controllers.
#[test]
fn jobs_converge() {
    let story = Story::new()
        .apply(&job(1, None))
        .apply(&job(2, None))
        .delete(&job(2, None));
    let trial = trial(Loops::JOB, story).implements::<Job>();
    assert_tried(&trial.run());
}

/// Proves trials/own-controllers.
#[test]
fn finished_jobs_are_deleted() {
    let story = Story::new().apply(&job(1, None)).apply(&job(1, Some(60)));
    assert_tried(&trial(Loops::TTL_AFTER_FINISHED, story).run());
}

/// Starts a Job five minutes after the virtual midnight at which every scenario begins.
///
/// Proves trials/own-controllers.
#[test]
fn cron_jobs_converge() {
    let cron = |image: &str| -> CronJob {
        object(
            json!({"metadata": {"name": "nightly", "namespace": "default"}, "spec": {
                "schedule": "5 0 1 1 *",
                "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "task", "image": image}],
                }}}},
            }}),
        )
    };
    let story = Story::new()
        .apply(&cron("task:1"))
        .apply(&cron("task:2"))
        .delete(&cron("task:2"));
    let when = "whether the Job of midnight is due depends on when the object was created";
    let trial = trial(Loops::CRON_JOB, story)
        .implements::<CronJob>()
        .relax(Oracle::PathFree, "a Job that was started is not changed")
        .without("user-recreate", when)
        .without("user-next", when);
    assert_tried(&trial.run());
}

/// Proves trials/own-controllers.
#[test]
fn daemon_sets_converge() {
    let set = |image: &str| -> DaemonSet {
        let mut template = template(image);
        template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        object(
            json!({"metadata": {"name": "agent", "namespace": "default"}, "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": template,
            }}),
        )
    };
    let node = |name: &str| -> Node { object(json!({"metadata": {"name": name}})) };
    let story = Story::new()
        .apply(&set("agent:1"))
        .apply(&set("agent:2"))
        .delete(&set("agent:2"));
    let trial = trial(Loops::DAEMON_SET, story)
        .given(&node("node-1"))
        .implements::<DaemonSet>();
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

/// A kubelet that crashes does not lose a Pod.
///
/// Proves trials/own-controllers.
#[test]
fn pods_and_nodes_converge() {
    let story = Story::new().apply(&pod("a")).delete(&pod("a"));
    let trial = trial(Loops::NODES | Loops::PODS, story)
        .implements::<Pod>()
        .may_write::<Pod>();
    assert_tried(&trial.run());
}

/// Proves trials/own-controllers.
#[test]
fn volume_protection_converges() {
    let claim: PersistentVolumeClaim = object(json!({
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }));
    let story = Story::new()
        .apply(&claim)
        .apply(&pod("a"))
        .delete(&claim)
        .delete(&pod("a"));
    let trial = trial(Loops::VOLUME_PROTECTION, story).relax(
        Oracle::NoStuck,
        "a claim in use is not deleted before its Pod",
    );
    assert_tried(&trial.run());
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
fn namespaces_converge() {
    let shop: Namespace = object(json!({"metadata": {"name": "shop"}}));
    let map: ConfigMap = object(json!({"metadata": {"name": "a", "namespace": "shop"}}));
    let story = Story::new()
        .apply(&shop)
        .apply(&map)
        .delete(&shop)
        .apply(&shop);
    let loops = Loops::NAMESPACE | Loops::SERVICE_ACCOUNT;
    let trial = trial(loops, story)
        .implements::<Namespace>()
        .may_write::<Namespace>()
        .relax(Oracle::PathFree, "a namespace takes its objects along");
    assert_tried(&trial.run());
}

/// Proves trials/own-controllers.
#[test]
fn aggregated_roles_converge() {
    let part = |verb: &str| -> ClusterRole {
        object(
            json!({"metadata": {"name": "part", "labels": {"to": "all"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]}),
        )
    };
    let all: ClusterRole = object(json!({"metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}}));
    let story = Story::new()
        .apply(&all)
        .apply(&part("get"))
        .apply(&part("list"))
        .delete(&part("list"))
        .delete(&all);
    let trial = trial(Loops::ROLE_AGGREGATION, story).relax(
        Oracle::PathFree,
        "an empty list of rules stays where there was none",
    );
    assert_tried(&trial.run());
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
