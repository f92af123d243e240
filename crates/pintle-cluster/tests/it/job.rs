//! Jobs: completions, indexes, back-off, policies, suspension, and crashes at every write.

use std::{collections::BTreeMap, time::Duration};

use crate::support::{
    Kubectl,
    faulty::{FaultyLoops, run},
    gateway::Fault,
    start, until_gone, virtual_cluster, wait_for,
};
use k8s_openapi::api::{
    batch::v1::{Job, JobCondition, JobStatus},
    core::v1::{Event, Pod},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PropagationPolicy},
};
use pintle_cluster::{Behavior, Builder, Loops};
use serde_json::{Value, json};
use tokio::time::sleep;

fn job(behavior: Option<&str>, spec: &Value) -> Value {
    let annotations = behavior.map(|it| json!({ Behavior::ANNOTATION: it }));
    let mut job = json!({
        "metadata": { "name": "pi" },
        "spec": {
            "template": {
                "metadata": { "annotations": annotations },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "main", "image": "pi:1" }],
                },
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

fn finished(job: &Job) -> Option<JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let ended = |it: &&JobCondition| it.type_ == "Complete" || it.type_ == "Failed";
    conditions.iter().find(ended).cloned()
}

/// Waits until the Job is finished. Returns its final condition and status.
async fn end(kubectl: &Kubectl) -> (JobCondition, JobStatus) {
    wait_for("the Job to finish", async || {
        let job = kubectl.get::<Job>("pi").await;
        Some((finished(&job)?, job.status?))
    })
    .await
}

fn reason(condition: &JobCondition) -> (&str, &str) {
    (&condition.type_, condition.reason.as_deref().unwrap())
}

async fn tracked(kubectl: &Kubectl) -> usize {
    let pods = kubectl.list::<Pod>().await;
    pods.iter()
        .filter(|pod| !pod.finalizers().is_empty())
        .count()
}

async fn events(kubectl: &Kubectl) -> Vec<(String, String)> {
    let mut events: Vec<_> = kubectl
        .list::<Event>()
        .await
        .into_iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("Job"))
        .filter_map(|event| Some((event.reason?, event.message?)))
        .filter(|(reason, _)| !reason.starts_with("Successful"))
        .collect();
    events.sort();
    events
}

/// Proves job/completions.
#[tokio::test(start_paused = true)]
async fn job_runs_to_completion() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "completions": 5, "parallelism": 2 });
    kubectl.create::<Job>(job(None, &spec)).await;
    let mut most = 0;
    let (condition, status) = wait_for("the Job to finish", async || {
        let job = kubectl.get::<Job>("pi").await;
        let active = job.status.as_ref().and_then(|status| status.active);
        most = most.max(active.unwrap_or_default());
        Some((finished(&job)?, job.status?))
    })
    .await;
    assert_eq!(most, 2);
    assert_eq!(reason(&condition), ("Complete", "CompletionsReached"));
    assert_eq!(
        (status.succeeded, status.failed, status.active),
        (Some(5), None, None)
    );
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    assert!(status.completion_time > status.start_time);
    let pods = kubectl.list::<Pod>().await;
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|pod| pod.name_any().starts_with("pi-")));
    assert_eq!(tracked(&kubectl).await, 0);
    sleep(Duration::from_secs(5)).await;
    let completed = ("Completed".to_owned(), "Job completed".to_owned());
    assert_eq!(events(&kubectl).await, [completed]);
    cluster.stop().await;
}

/// Proves job/indexed.
#[tokio::test(start_paused = true)]
async fn indexed_job_runs_every_index() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "completions": 4, "parallelism": 3, "completionMode": "Indexed" });
    kubectl.create::<Job>(job(None, &spec)).await;
    let (condition, status) = end(&kubectl).await;
    assert_eq!(condition.type_, "Complete");
    assert_eq!(status.completed_indexes.as_deref(), Some("0-3"));
    let mut indexes = Vec::new();
    for pod in kubectl.list::<Pod>().await {
        let index = &pod.labels()["batch.kubernetes.io/job-completion-index"];
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.hostname, Some(format!("pi-{index}")));
        let variable = &spec.containers[0].env.as_ref().unwrap()[0];
        assert_eq!(variable.name, "JOB_COMPLETION_INDEX");
        indexes.push(index.clone());
    }
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2", "3"]);
    cluster.stop().await;
}

/// Proves job/backoff.
#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_until_the_limit() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "backoffLimit": 3 });
    kubectl.create::<Job>(job(Some("exit code=1"), &spec)).await;
    let (condition, status) = end(&kubectl).await;
    assert_eq!(reason(&condition), ("Failed", "BackoffLimitExceeded"));
    assert_eq!(status.failed, Some(4));
    assert_eq!(status.completion_time, None);
    let mut created: Vec<i64> = kubectl
        .list::<Pod>()
        .await
        .iter()
        .map(|pod| pod.creation_timestamp().unwrap().0.as_second())
        .collect();
    created.sort_unstable();
    let gaps: Vec<i64> = created.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Each Pod runs for about two seconds before the back-off starts.
    for (gap, backoff) in gaps.iter().zip([10, 20, 40]) {
        assert!((backoff + 1..=backoff + 4).contains(gap), "{gaps:?}");
    }
    cluster.stop().await;
}

/// Proves job/backoff.
#[tokio::test(start_paused = true)]
async fn restarts_in_place_exhaust_the_limit() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let mut manifest = job(Some("crash-loop"), &json!({ "backoffLimit": 2 }));
    manifest["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    kubectl.create::<Job>(manifest).await;
    let (condition, status) = end(&kubectl).await;
    assert_eq!(reason(&condition), ("Failed", "BackoffLimitExceeded"));
    assert_eq!(status.failed, Some(1));
    until_no_pods(&kubectl).await;
    cluster.stop().await;
}

async fn until_no_pods(kubectl: &Kubectl) {
    wait_for("the Pods to be gone", async || {
        kubectl.list::<Pod>().await.is_empty().then_some(())
    })
    .await;
}

/// Proves job/deadline.
#[tokio::test(start_paused = true)]
async fn deadline_stops_the_pods() {
    let builder = virtual_cluster().pod_stop_after(Duration::from_secs(10));
    let (cluster, kubectl) = start(builder).await;
    let spec = json!({ "activeDeadlineSeconds": 30, "parallelism": 2, "completions": 2 });
    kubectl.create::<Job>(job(Some("run"), &spec)).await;
    sleep(Duration::from_secs(35)).await;
    // The Pods take ten seconds to stop, and the Job waits for them.
    let status = kubectl.get::<Job>("pi").await.status.unwrap();
    let conditions = status.conditions.unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(
        reason(&conditions[0]),
        ("FailureTarget", "DeadlineExceeded")
    );
    assert_eq!((status.active, status.terminating), (None, Some(2)));
    let (condition, status) = end(&kubectl).await;
    assert_eq!(reason(&condition), ("Failed", "DeadlineExceeded"));
    assert_eq!((status.failed, status.terminating), (Some(2), Some(0)));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(kubectl.list::<Pod>().await.len(), 0);
    let expected = "Job was active longer than specified deadline".to_owned();
    assert_eq!(
        events(&kubectl).await,
        [("DeadlineExceeded".to_owned(), expected)]
    );
    cluster.stop().await;
}

/// Proves job/policies.
#[tokio::test(start_paused = true)]
async fn exit_code_fails_the_job_by_policy() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let rule = json!({ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } });
    let spec = json!({
        "podFailurePolicy": { "rules": [rule] }, "parallelism": 2, "completions": 2,
    });
    kubectl.create::<Job>(job(Some("run"), &spec)).await;
    sleep(Duration::from_secs(10)).await;
    let label = "batch.kubernetes.io/job-name=pi";
    cluster.pods().matching(label).exit(42).unwrap();
    let (condition, _) = end(&kubectl).await;
    assert_eq!(reason(&condition), ("Failed", "PodFailurePolicy"));
    let message = condition.message.unwrap();
    let end = "failed with exit code 42 matching FailJob rule at index 0";
    assert!(message.ends_with(end), "{message}");
    cluster.stop().await;
}

/// Proves job/policies.
#[tokio::test(start_paused = true)]
async fn pod_replacement_policy_can_delay_replacement() {
    for (policy, replaced) in [("TerminatingOrFailed", true), ("Failed", false)] {
        let builder = virtual_cluster().pod_stop_after(Duration::from_secs(20));
        let (cluster, kubectl) = start(builder).await;
        let spec = json!({ "podReplacementPolicy": policy });
        kubectl.create::<Job>(job(Some("run"), &spec)).await;
        sleep(Duration::from_secs(5)).await;
        let first = kubectl.pods().await.remove(0).name_any();
        kubectl
            .delete::<Pod>(&first, &DeleteParams::default())
            .await;
        sleep(Duration::from_secs(15)).await;
        assert_eq!(kubectl.pods().await.len() == 1, replaced, "{policy}");
        sleep(Duration::from_secs(60)).await;
        let pods = kubectl.list::<Pod>().await;
        assert_eq!(pods.len(), 1, "{policy}");
        assert_ne!(pods[0].name_any(), first);
        let status = kubectl.get::<Job>("pi").await.status.unwrap();
        assert_eq!(
            (status.active, status.failed),
            (Some(1), Some(1)),
            "{policy}"
        );
        cluster.stop().await;
    }
}

/// Proves job/policies.
#[tokio::test(start_paused = true)]
async fn success_policy_stops_the_other_indexes() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "successPolicy": { "rules": [{ "succeededIndexes": "1" }] },
    });
    kubectl.create::<Job>(job(Some("run"), &spec)).await;
    let leader = "batch.kubernetes.io/job-completion-index=1";
    cluster.pods().matching(leader).exit(0).unwrap();
    let (condition, status) = end(&kubectl).await;
    assert_eq!(reason(&condition), ("Complete", "SuccessPolicy"));
    assert_eq!(
        (status.completed_indexes.as_deref(), status.failed),
        (Some("1"), None)
    );
    cluster.stop().await;
}

/// Proves job/suspend.
#[tokio::test(start_paused = true)]
async fn suspended_job_stops_and_resumes() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "parallelism": 2, "completions": 2 });
    kubectl.create::<Job>(job(Some("run"), &spec)).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(kubectl.pods().await.len(), 2);
    kubectl
        .patch::<Job>("pi", json!({ "spec": { "suspend": true } }))
        .await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(kubectl.list::<Pod>().await.len(), 0);
    let status = kubectl.get::<Job>("pi").await.status.unwrap();
    assert_eq!(
        (status.active, status.failed, status.start_time),
        (None, None, None)
    );
    cluster.pods().exit(0).unwrap();
    kubectl
        .patch::<Job>("pi", json!({ "spec": { "suspend": false } }))
        .await;
    let (condition, status) = end(&kubectl).await;
    assert_eq!(condition.type_, "Complete");
    assert_eq!(status.succeeded, Some(2));
    sleep(Duration::from_secs(5)).await;
    let event = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    let expected = [
        event("Completed", "Job completed"),
        event("Resumed", "Job resumed"),
        event("Suspended", "Job suspended"),
    ];
    assert_eq!(events(&kubectl).await, expected);
    cluster.stop().await;
}

/// Proves job/exactly-once.
#[tokio::test(start_paused = true)]
async fn job_of_another_controller_is_left_alone() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "managedBy": "example.com/queue" });
    kubectl.create::<Job>(job(None, &spec)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(kubectl.list::<Pod>().await.len(), 0);
    let status = kubectl.get::<Job>("pi").await.status;
    assert_eq!(status.unwrap_or_default(), JobStatus::default());
    cluster.stop().await;
}

/// Proves job/exactly-once.
#[tokio::test(start_paused = true)]
async fn deleted_job_releases_its_pods() {
    for propagation in [
        PropagationPolicy::Background,
        PropagationPolicy::Foreground,
        PropagationPolicy::Orphan,
    ] {
        let (cluster, kubectl) = start(virtual_cluster()).await;
        let spec = json!({ "parallelism": 2, "completions": 2 });
        kubectl.create::<Job>(job(Some("run"), &spec)).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(tracked(&kubectl).await, 2);
        let orphans = matches!(propagation, PropagationPolicy::Orphan);
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            ..DeleteParams::default()
        };
        kubectl.delete::<Job>("pi", &params).await;
        until_gone(&kubectl.api::<Job>(), "pi").await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(tracked(&kubectl).await, 0);
        let left = if orphans { 2 } else { 0 };
        assert_eq!(kubectl.list::<Pod>().await.len(), left);
        cluster.stop().await;
    }
}

fn loops(builder: Builder) -> Builder {
    builder.loops(Loops::JOB | Loops::PODS | Loops::NODES)
}

/// The counters and the number of Pods by phase at the end of a Job.
type End = (
    Option<i32>,
    Option<i32>,
    Option<String>,
    BTreeMap<String, usize>,
);

/// Runs an indexed Job with a failing index, with or without a fault at one write.
async fn play(fault: Option<Fault>) -> (End, Vec<String>) {
    let (mut loops, kubectl) = FaultyLoops::start(fault, loops).await;
    sleep(Duration::from_secs(5)).await;
    loops.arm();
    let failing = "batch.kubernetes.io/job-completion-index=1";
    let pods = loops.cluster().pods();
    pods.matching(failing).exit(1).unwrap();
    let spec = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 1,
    });
    kubectl.create::<Job>(job(None, &spec)).await;
    if loops.recover().await {
        let pods = loops.cluster().pods();
        pods.matching(failing).exit(1).unwrap();
    }
    let (condition, status) = end(&kubectl).await;
    assert_eq!(reason(&condition), ("Failed", "FailedIndexes"));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(tracked(&kubectl).await, 0);
    let mut phases = BTreeMap::new();
    for pod in kubectl.list::<Pod>().await {
        let phase = pod.status.unwrap().phase.unwrap();
        *phases.entry(phase).or_default() += 1;
    }
    let counters = (
        status.succeeded,
        status.failed,
        status.completed_indexes,
        phases,
    );
    let writes = loops.stop().await;
    (counters, writes)
}

fn undisturbed() -> (End, Vec<String>) {
    let (end, writes) = run(play(None));
    assert_eq!(
        (end.0, end.1, end.2.as_deref()),
        (Some(1), Some(2), Some("0"))
    );
    assert!(writes.len() > 15, "{writes:#?}");
    (end, writes)
}

/// Proves cluster/crash-safe, job/exactly-once.
#[test]
fn pods_are_counted_once_after_a_crash_at_any_write() {
    let (reference, writes) = undisturbed();
    let crashes = (0..writes.len()).map(Fault::CrashAfter);
    for crash in [Fault::CrashBefore(0)].into_iter().chain(crashes) {
        let (end, _) = run(play(Some(crash)));
        assert_eq!(end, reference, "{crash:?} of {writes:#?}");
    }
}

/// Proves cluster/crash-safe, job/exactly-once.
#[test]
fn pods_are_counted_once_if_a_write_or_response_is_lost() {
    let (reference, writes) = undisturbed();
    let faults_at = |at| [Fault::LoseResponse(at), Fault::Fail(at)];
    for fault in (0..writes.len()).flat_map(faults_at) {
        let (end, _) = run(play(Some(fault)));
        assert_eq!(end, reference, "{fault:?} of {writes:#?}");
    }
}

/// Proves job/indexed.
#[tokio::test(start_paused = true)]
async fn indexed_job_is_elastic() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let pod = json!({ "restartPolicy": "Never",
        "containers": [{ "name": "main", "image": "pi:1" }] });
    let behavior = json!({ "annotations": { "pintle.dev/behavior": "run" } });
    let template = json!({ "metadata": behavior, "spec": pod });
    let spec = json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "template": template });
    let job = json!({ "metadata": { "name": "elastic" }, "spec": spec });
    kubectl.create::<Job>(job).await;
    for size in [4, 1] {
        let spec = json!({ "completions": size, "parallelism": size });
        kubectl
            .patch::<Job>("elastic", json!({ "spec": spec }))
            .await;
        sleep(Duration::from_secs(30)).await;
        let status = kubectl.get::<Job>("elastic").await.status.unwrap();
        assert_eq!(status.active, Some(size));
    }
    let spec = json!({ "spec": { "completions": 3 } });
    let jobs = kubectl.api::<Job>();
    let (params, patch) = (PatchParams::default(), Patch::Merge(spec));
    let refused = jobs.patch("elastic", &params, &patch).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("can only be modified in tandem"),
        "{refused}"
    );
    cluster.stop().await;
}
