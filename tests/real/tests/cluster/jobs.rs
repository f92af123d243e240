//! Jobs: the same Pods, counters and conditions as kube-controller-manager.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use real_tests::eventually;
use serde_json::{Value, json};

use super::mask::masked;
use super::pair::{Pair, Side};

fn job(spec: &Value) -> Value {
    let mut job = json!({
        "metadata": { "name": "pi", "labels": { "team": "red" } },
        "spec": {
            "template": {
                "metadata": { "labels": { "app": "pi" } },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "main", "image": "pi:1" }],
                },
            },
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    job
}

/// Ends the active Pods for which `code` returns an exit code, as a kubelet would.
async fn end_pods(side: &Side, code: impl Fn(&Pod) -> Option<i32>) {
    for pod in side.list::<Pod>().await {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        let is_active = !matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
        let Some(code) = code(&pod).filter(|_| is_active) else {
            continue;
        };
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let state = json!({ "terminated": {
            "exitCode": code,
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z",
        }});
        let container = json!({
            "name": "main", "image": "pi:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        });
        let status = json!({ "phase": phase, "containerStatuses": [container] });
        side.set_status(&pod, status).await;
    }
}

async fn until_active(side: &Side, active: i32) {
    eventually("the Pods to be active", async || {
        let status = side.api::<Job>().get("pi").await.unwrap().status?;
        (status.active.unwrap_or_default() == active).then_some(())
    })
    .await;
}

async fn until_finished(side: &Side) {
    eventually("the Job to finish", async || {
        let status = side.api::<Job>().get("pi").await.unwrap().status?;
        let mut conditions = status.conditions?.into_iter();
        conditions
            .any(|it| it.type_ == "Complete" || it.type_ == "Failed")
            .then_some(())
    })
    .await;
}

/// Returns the Job and its Pods, without times and identities.
async fn snapshot(side: &Side) -> Value {
    let uids: Vec<String> = side
        .list::<Job>()
        .await
        .iter()
        .filter_map(kube::ResourceExt::uid)
        .collect();
    let mut jobs = masked(json!(side.list::<Job>().await), &uids);
    for job in jobs.as_array_mut().into_iter().flatten() {
        for time in ["startTime", "completionTime"] {
            let status = job["status"].as_object_mut();
            if let Some(time) = status.and_then(|status| status.get_mut(time)) {
                *time = json!("TIME");
            }
        }
        for condition in job["status"]["conditions"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            condition["lastProbeTime"] = Value::Null;
            // The message may name a Pod.
            if let Some(message) = condition["message"].as_str() {
                let words: Vec<_> = message.split(' ').filter(|it| !it.contains('/')).collect();
                condition["message"] = json!(words.join(" "));
            }
        }
    }
    let pods = side.list::<Pod>().await;
    let mut pods: Vec<Value> = pods.iter().map(|pod| masked(json!(pod), &uids)).collect();
    pods.sort_by_key(Value::to_string);
    json!({ "jobs": jobs, "pods": pods })
}

async fn compare(pair: &Pair, when: &str) {
    pair.agree(when, async |side| snapshot(side).await).await;
}

/// Proves job/completions, cluster/end-states.
#[tokio::test]
async fn job_completes() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let spec = json!({ "completions": 3, "parallelism": 2 });
        side.create::<Job>(job(&spec)).await;
        until_active(side, 2).await;
    })
    .await;
    compare(&pair, "two active").await;
    pair.both(async |side| {
        end_pods(side, |_| Some(0)).await;
        until_active(side, 1).await;
    })
    .await;
    compare(&pair, "two Pods have succeeded").await;
    pair.both(async |side| {
        end_pods(side, |_| Some(0)).await;
        until_finished(side).await;
    })
    .await;
    compare(&pair, "complete").await;
    pair.stop().await;
}

/// Proves job/indexed, cluster/end-states.
#[tokio::test]
async fn indexed_job_counts_failed_indexes() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let spec = json!({
            "completions": 4, "parallelism": 4, "completionMode": "Indexed",
            "backoffLimitPerIndex": 0,
        });
        side.create::<Job>(job(&spec)).await;
        until_active(side, 4).await;
    })
    .await;
    compare(&pair, "all active").await;
    let index = |pod: &Pod| pod.labels()["batch.kubernetes.io/job-completion-index"].clone();
    pair.both(async |side| {
        end_pods(side, |pod| (index(pod) != "1").then_some(0)).await;
        until_active(side, 1).await;
    })
    .await;
    compare(&pair, "three Pods have succeeded").await;
    pair.both(async |side| {
        end_pods(side, |_| Some(3)).await;
        until_finished(side).await;
    })
    .await;
    compare(&pair, "one has failed").await;
    pair.stop().await;
}

/// Proves job/policies, job/backoff, cluster/end-states.
#[tokio::test]
async fn failed_pods_fail_the_job() {
    let rule = json!({ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } });
    for (spec, code) in [
        (json!({ "backoffLimit": 0 }), 1),
        (json!({ "podFailurePolicy": { "rules": [rule] } }), 42),
    ] {
        let pair = Pair::start().await;
        pair.both(async |side| {
            side.create::<Job>(job(&spec)).await;
            until_active(side, 1).await;
            end_pods(side, |_| Some(code)).await;
            until_finished(side).await;
        })
        .await;
        compare(&pair, &spec.to_string()).await;
        pair.stop().await;
    }
}

/// Proves job/policies, cluster/end-states.
#[tokio::test]
async fn success_policy_completes_the_job_early() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let spec = json!({
            "completions": 3, "parallelism": 3, "completionMode": "Indexed",
            "successPolicy": { "rules": [{ "succeededCount": 1 }] },
        });
        side.create::<Job>(job(&spec)).await;
        until_active(side, 3).await;
        let index = |pod: &Pod| pod.labels()["batch.kubernetes.io/job-completion-index"].clone();
        end_pods(side, |pod| (index(pod) == "2").then_some(0)).await;
        until_finished(side).await;
    })
    .await;
    compare(&pair, "one is enough").await;
    pair.stop().await;
}

/// Proves job/suspend, job/deadline, cluster/end-states.
#[tokio::test]
async fn job_suspends_resumes_and_exceeds_its_deadline() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let spec = json!({ "parallelism": 2, "completions": 2 });
        side.create::<Job>(job(&spec)).await;
        until_active(side, 2).await;
        side.patch::<Job>("pi", json!({ "spec": { "suspend": true } }))
            .await;
        until_active(side, 0).await;
        side.until_none_left::<Pod>().await;
    })
    .await;
    compare(&pair, "suspended").await;
    pair.both(async |side| {
        let spec = json!({ "suspend": false, "activeDeadlineSeconds": 2 });
        side.patch::<Job>("pi", json!({ "spec": spec })).await;
        until_finished(side).await;
    })
    .await;
    compare(&pair, "resumed and overdue").await;
    pair.stop().await;
}
