//! `CronJob`s and the TTL of finished Jobs.

use std::time::Duration;

use crate::support::{
    Kubectl,
    faulty::{FaultyLoops, faults_at, run},
    gateway::Fault,
    start, start_of_time, virtual_cluster,
};
use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{Event, Pod},
};
use kube::ResourceExt;
use pintle_cluster::{Behavior, Builder, Loops};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

/// Returns the start of the virtual clock in minutes since the epoch.
fn first_minute() -> i64 {
    start_of_time().as_second() / 60
}

fn cron_job(behavior: Option<&str>, spec: &Value) -> Value {
    let annotations = behavior.map(|it| json!({ Behavior::ANNOTATION: it }));
    let mut cron = json!({
        "metadata": { "name": "tick" },
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": { "spec": { "template": {
                "metadata": { "annotations": annotations },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "main", "image": "tick:1" }],
                },
            }}},
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        cron["spec"][key] = value.clone();
    }
    cron
}

/// Returns the minutes after the start for which there are Jobs.
async fn minutes(kubectl: &Kubectl) -> Vec<i64> {
    let mut minutes: Vec<i64> = kubectl
        .list::<Job>()
        .await
        .iter()
        .map(|job| {
            let name = job.name_any();
            let minute: i64 = name.strip_prefix("tick-").unwrap().parse().unwrap();
            minute - first_minute()
        })
        .collect();
    minutes.sort_unstable();
    minutes
}

async fn reasons(kubectl: &Kubectl) -> Vec<String> {
    let mut reasons: Vec<_> = kubectl
        .list::<Event>()
        .await
        .into_iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("CronJob"))
        .filter_map(|event| event.reason)
        .collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Proves cronjob/schedule, cronjob/jobs.
#[tokio::test(start_paused = true)]
async fn jobs_start_on_schedule_and_old_ones_are_deleted() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "successfulJobsHistoryLimit": 2 });
    kubectl.create::<CronJob>(cron_job(None, &spec)).await;
    sleep(Duration::from_secs(290)).await;
    assert_eq!(minutes(&kubectl).await, [0; 0]);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(minutes(&kubectl).await, [5]);
    let status = kubectl.get::<CronJob>("tick").await.status.unwrap();
    assert_eq!(status.active.unwrap().len(), 1);
    let scheduled = status.last_schedule_time.unwrap().0.as_second();
    assert_eq!(scheduled, start_of_time().as_second() + 300);
    sleep(Duration::from_secs(19 * 60)).await;
    assert_eq!(minutes(&kubectl).await, [15, 20]);
    let status = kubectl.get::<CronJob>("tick").await.status.unwrap();
    assert_eq!(status.active, None);
    assert!(status.last_successful_time > status.last_schedule_time);
    assert_eq!(kubectl.list::<Pod>().await.len(), 2);
    let job = kubectl.list::<Job>().await.remove(0);
    let annotation = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    assert_eq!(job.annotations()[annotation], "2026-01-01T00:15:00Z");
    let expected = ["SawCompletedJob", "SuccessfulCreate", "SuccessfulDelete"];
    assert_eq!(reasons(&kubectl).await, expected);
    cluster.stop().await;
}

/// Proves cronjob/jobs.
#[tokio::test(start_paused = true)]
async fn concurrency_policy_applies_to_running_jobs() {
    for (policy, expected) in [
        ("Allow", vec![5, 10, 15]),
        ("Forbid", vec![5]),
        ("Replace", vec![15]),
    ] {
        let (cluster, kubectl) = start(virtual_cluster()).await;
        let spec = json!({ "concurrencyPolicy": policy });
        let manifest = cron_job(Some("run"), &spec);
        kubectl.create::<CronJob>(manifest).await;
        sleep(Duration::from_secs(16 * 60)).await;
        assert_eq!(minutes(&kubectl).await, expected, "{policy}");
        let status = kubectl.get::<CronJob>("tick").await.status.unwrap();
        assert_eq!(status.active.unwrap().len(), expected.len(), "{policy}");
        // The postponed Job starts when the other one ends.
        cluster.pods().exit(0).unwrap();
        sleep(Duration::from_secs(30)).await;
        if policy == "Forbid" {
            assert_eq!(minutes(&kubectl).await, [5, 15]);
        }
        cluster.stop().await;
    }
}

/// Proves cronjob/schedule.
#[tokio::test(start_paused = true)]
async fn suspended_cron_job_starts_nothing() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "suspend": true, "startingDeadlineSeconds": 60 });
    kubectl.create::<CronJob>(cron_job(None, &spec)).await;
    sleep(Duration::from_secs(7 * 60)).await;
    assert_eq!(minutes(&kubectl).await, [0; 0]);
    kubectl
        .patch::<CronJob>("tick", json!({ "spec": { "suspend": false } }))
        .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        minutes(&kubectl).await,
        [0; 0],
        "too late for the first one"
    );
    sleep(Duration::from_secs(3 * 60)).await;
    assert_eq!(minutes(&kubectl).await, [10]);
    cluster.stop().await;
}

/// Proves cronjob/schedule.
#[tokio::test(start_paused = true)]
async fn schedule_change_and_time_zone_apply() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "schedule": "30 1 * * *", "timeZone": "Europe/Berlin" });
    kubectl.create::<CronJob>(cron_job(None, &spec)).await;
    // The clock starts at 01:00 in Berlin.
    sleep(Duration::from_secs(31 * 60)).await;
    assert_eq!(minutes(&kubectl).await, [30]);
    kubectl
        .patch::<CronJob>("tick", json!({ "spec": { "schedule": "40 1 * * *" } }))
        .await;
    sleep(Duration::from_secs(10 * 60)).await;
    assert_eq!(minutes(&kubectl).await, [30, 40]);
    cluster.stop().await;
}

/// Proves job/exactly-once.
#[tokio::test(start_paused = true)]
async fn finished_job_is_deleted_after_its_ttl() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create_job("pi", "pi:1", 2).await;
    kubectl.create_job("kept", "pi:1", 1).await;
    let ttl = json!({ "spec": { "ttlSecondsAfterFinished": 100 } });
    kubectl.patch::<Job>("pi", ttl).await;
    sleep(Duration::from_secs(90)).await;
    assert_eq!(kubectl.list::<Job>().await.len(), 2);
    sleep(Duration::from_secs(30)).await;
    let left: Vec<_> = kubectl
        .list::<Job>()
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(left, ["kept"]);
    assert_eq!(kubectl.list::<Pod>().await.len(), 1);
    cluster.stop().await;
}

fn loops(builder: Builder) -> Builder {
    builder.loops(Loops::CRON_JOB | Loops::JOB | Loops::PODS | Loops::NODES)
}

/// Runs a CronJob for eleven minutes, with or without a fault at one write of the loops. Returns
/// the Jobs, the status, and the writes.
async fn play(fault: Option<Fault>) -> ((Vec<i64>, bool, Option<i64>), Vec<String>) {
    let began = Instant::now();
    let (mut loops, kubectl) = FaultyLoops::start(fault, loops).await;
    sleep(Duration::from_secs(5)).await;
    loops.arm();
    let spec = json!({ "concurrencyPolicy": "Replace", "successfulJobsHistoryLimit": 1 });
    kubectl.create::<CronJob>(cron_job(None, &spec)).await;
    loops.recover().await;
    sleep_until(began + Duration::from_secs(11 * 60)).await;
    let status = kubectl.get::<CronJob>("tick").await.status.unwrap();
    let last = status.last_schedule_time.map(|it| it.0.as_second());
    let jobs = minutes(&kubectl).await;
    let writes = loops.stop().await;
    ((jobs, status.active.is_none(), last), writes)
}

/// Proves cluster/crash-safe.
#[test]
fn cron_job_survives_a_fault_at_any_write() {
    let (reference, writes) = run(play(None));
    assert_eq!(reference.0, [10]);
    assert!(writes.len() > 10, "{writes:#?}");
    let of_cron_jobs = |at: &usize| {
        let write = &writes[*at];
        write.contains("/cronjobs/") || write.ends_with("/jobs") || write.starts_with("DELETE")
    };
    for fault in (0..writes.len()).filter(of_cron_jobs).flat_map(faults_at) {
        let (end, _) = run(play(Some(fault)));
        assert_eq!(end, reference, "{fault:?} of {writes:#?}");
    }
}
