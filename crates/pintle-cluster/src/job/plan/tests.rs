use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn job(spec: &Value) -> Job {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "pi", "namespace": "default", "uid": "job" },
        "spec": {
            "backoffLimit": 6, "parallelism": 1, "completions": 1,
            "template": { "spec": { "restartPolicy": "Never", "containers": [] } },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

fn pod(uid: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": uid, "namespace": "default", "uid": uid,
            "finalizers": [template::TRACKING],
            "creationTimestamp": at(0).to_string(),
        },
        "status": { "phase": phase },
    })
}

fn indexed(uid: &str, index: i32, phase: &str) -> Value {
    let mut pod = pod(uid, phase);
    pod["metadata"]["annotations"] =
        json!({ "batch.kubernetes.io/job-completion-index": index.to_string() });
    pod
}

fn exited(mut pod: Value, code: i32) -> Value {
    let state = json!({ "terminated": { "exitCode": code, "finishedAt": at(0).to_string() } });
    pod["status"]["containerStatuses"] = json!([{
        "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]);
    pod
}

fn pods(pods: &[Value]) -> Vec<Arc<Pod>> {
    pods.iter()
        .map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap()))
        .collect()
}

/// The outcome of a reconcile in which every write succeeds.
struct Outcome {
    work: Work,
    status: JobStatus,
    finished: Option<JobCondition>,
    requeue_after: Option<Duration>,
}

fn reconcile(job: &Job, observed: &[Value], now: i64) -> Outcome {
    let observed = pods(observed);
    let backoff = Backoff::default();
    let mut sync = Sync::new(Observed {
        job,
        pods: &observed,
        backoff: &backoff,
        now: at(now),
    });
    let work = sync.work();
    let done = match &work {
        Work::None => Done::default(),
        Work::Create(pods) => Done {
            created: pods.len(),
            deleted: Vec::new(),
        },
        Work::Remove(pods) | Work::Terminate(pods) => Done {
            created: 0,
            deleted: pods.clone(),
        },
    };
    sync.done(&work, &done);
    let tracked = sync.track();
    let uid = |pod: &Arc<Pod>| meta::uid(&pod.metadata).to_owned();
    let released: BTreeSet<String> = tracked.release.iter().map(uid).collect();
    let finished = sync.conclude(&tracked, &released);
    Outcome {
        work,
        finished,
        requeue_after: sync.requeue_after,
        status: sync.status,
    }
}

fn created(work: &Work) -> Vec<Option<i32>> {
    match work {
        Work::Create(pods) => pods.iter().map(template::index).collect(),
        _ => Vec::new(),
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| meta::name(&pod.metadata)).collect()
}

fn conditions(outcome: &Outcome) -> Vec<(String, String)> {
    let conditions = outcome.status.conditions.iter().flatten();
    conditions
        .map(|it| (it.type_.clone(), it.reason.clone().unwrap_or_default()))
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

/// Proves job/completions.
#[test]
fn active_pods_never_exceed_the_remaining_completions() {
    let five = job(&json!({ "completions": 5, "parallelism": 3 }));
    let first = reconcile(&five, &[], 0);
    assert_eq!(created(&first.work).len(), 3);
    assert_eq!(first.status.active, Some(3));
    assert_eq!(first.status.start_time, Some(Time(at(0))));
    let mut four = five.clone();
    four.status = Some(JobStatus {
        succeeded: Some(3),
        ..JobStatus::default()
    });
    let rest = reconcile(&four, &[pod("a", "Running"), pod("b", "Succeeded")], 9);
    assert_eq!(rest.work, Work::None);
    assert_eq!(rest.status.succeeded, Some(4));
    let all = reconcile(&four, &[pod("a", "Succeeded"), pod("b", "Succeeded")], 9);
    assert_eq!(all.status.succeeded, Some(5));
    let expected = [
        ("SuccessCriteriaMet", "CompletionsReached"),
        ("Complete", "CompletionsReached"),
    ];
    assert_eq!(conditions(&all), pairs(&expected));
    assert_eq!(all.status.completion_time, Some(Time(at(9))));
}

/// Proves job/completions.
#[test]
fn job_without_completions_ends_after_the_first_success() {
    let queue = job(&json!({ "completions": null, "parallelism": 2 }));
    assert_eq!(created(&reconcile(&queue, &[], 0).work).len(), 2);
    let one = reconcile(&queue, &[pod("a", "Succeeded"), pod("b", "Running")], 0);
    assert_eq!(one.work, Work::None);
    assert!(one.finished.is_none());
    let both = reconcile(&queue, &[pod("a", "Succeeded"), pod("b", "Failed")], 0);
    assert_eq!(both.finished.unwrap().type_, "Complete");
}

/// Proves job/backoff.
#[test]
fn failures_beyond_the_limit_fail_the_job() {
    let limited = job(&json!({ "backoffLimit": 1, "parallelism": 2, "completions": 2 }));
    let once = reconcile(&limited, &[pod("a", "Failed"), pod("b", "Running")], 4);
    assert_eq!(once.work, Work::None);
    assert_eq!(once.requeue_after, Some(Duration::from_secs(6)));
    let failed = [pod("a", "Failed"), pod("b", "Failed"), pod("c", "Running")];
    let twice = reconcile(&limited, &failed, 4);
    let Work::Terminate(terminated) = &twice.work else {
        panic!("{:?}", twice.work)
    };
    assert_eq!(names(terminated), ["c"]);
    // The Job waits for the Pod that it has just deleted.
    assert_eq!(
        conditions(&twice),
        pairs(&[("FailureTarget", "BackoffLimitExceeded")])
    );
    assert_eq!(
        (twice.status.failed, twice.status.terminating),
        (Some(3), Some(1))
    );
    let mut later = limited.clone();
    later.status = Some(twice.status);
    let end = reconcile(&later, &[], 5);
    assert_eq!(
        end.finished.unwrap().message.as_deref(),
        Some("Job has reached the specified backoff limit")
    );
    assert_eq!(end.status.failed, Some(3));
}

/// Proves job/backoff.
#[test]
fn restarts_in_place_count_towards_the_limit() {
    let template = json!({ "spec": { "restartPolicy": "OnFailure", "containers": [] } });
    let spec = json!({ "backoffLimit": 2, "template": template });
    let mut restarting = exited(pod("a", "Running"), 1);
    for (restarts, fails) in [(1, false), (2, true)] {
        restarting["status"]["containerStatuses"][0]["restartCount"] = json!(restarts);
        let outcome = reconcile(&job(&spec), &[restarting.clone()], 0);
        assert_eq!(!conditions(&outcome).is_empty(), fails, "{restarts}");
    }
}

/// Proves job/deadline.
#[test]
fn deadline_fails_the_job_and_is_awaited() {
    let mut deadline = job(&json!({ "activeDeadlineSeconds": 60 }));
    deadline.status = Some(JobStatus {
        start_time: Some(Time(at(0))),
        ..JobStatus::default()
    });
    let before = reconcile(&deadline, &[pod("a", "Running")], 20);
    assert_eq!(before.requeue_after, Some(Duration::from_secs(40)));
    let after = reconcile(&deadline, &[pod("a", "Running")], 60);
    assert_eq!(
        conditions(&after),
        pairs(&[("FailureTarget", "DeadlineExceeded")])
    );
}

/// Proves job/indexed.
#[test]
fn indexes_are_filled_from_the_lowest() {
    let mut indexed_job = job(&json!({
        "completionMode": "Indexed", "completions": 6, "parallelism": 3,
    }));
    let first = reconcile(&indexed_job, &[], 0);
    assert_eq!(created(&first.work), [Some(0), Some(1), Some(2)]);
    let Work::Create(pods) = &first.work else {
        panic!()
    };
    assert_eq!(pods[1].metadata.generate_name.as_deref(), Some("pi-1-"));
    assert_eq!(
        pods[1].spec.as_ref().unwrap().hostname.as_deref(),
        Some("pi-1")
    );
    indexed_job.status = Some(JobStatus {
        completed_indexes: Some("0,2".into()),
        succeeded: Some(2),
        ..JobStatus::default()
    });
    let running = [indexed("a", 1, "Running"), indexed("b", 3, "Succeeded")];
    let next = reconcile(&indexed_job, &running, 0);
    assert_eq!(created(&next.work), [Some(4), Some(5)]);
    assert_eq!(next.status.completed_indexes.as_deref(), Some("0,2,3"));
    assert_eq!(next.status.succeeded, Some(3));
    let duplicates = [
        indexed("a", 1, "Running"),
        indexed("b", 1, "Pending"),
        indexed("c", 9, "Running"),
        pod("d", "Running"),
    ];
    let Work::Remove(mut removed) = reconcile(&indexed_job, &duplicates, 0).work else {
        panic!()
    };
    removed.sort_by_key(|pod| meta::uid(&pod.metadata).to_owned());
    assert_eq!(names(&removed), ["b", "c", "d"]);
}

/// Proves job/indexed.
#[test]
fn each_index_has_its_own_backoff_limit() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "backoffLimitPerIndex": 1, "backoffLimit": 1_000,
    });
    let mut failing = exited(indexed("a", 0, "Failed"), 1);
    let others = [indexed("b", 1, "Succeeded"), indexed("c", 2, "Running")];
    let [second, third] = others;
    let first = reconcile(
        &job(&spec),
        &[failing.clone(), second.clone(), third.clone()],
        4,
    );
    assert_eq!(first.work, Work::None);
    assert_eq!(first.requeue_after, Some(Duration::from_secs(6)));
    assert_eq!(
        first.status.failed, None,
        "it is counted when it is replaced"
    );
    let retried = reconcile(
        &job(&spec),
        &[failing.clone(), second.clone(), third.clone()],
        10,
    );
    let Work::Create(pods) = &retried.work else {
        panic!()
    };
    assert_eq!(
        (template::index(&pods[0]), template::failures(&pods[0])),
        (Some(0), 1)
    );
    // The second failure is the last.
    let failures = "batch.kubernetes.io/job-index-failure-count";
    failing["metadata"]["annotations"][failures] = json!("1");
    let failed = reconcile(&job(&spec), &[failing.clone(), second.clone(), third], 30);
    assert_eq!(failed.status.failed_indexes.as_deref(), Some("0"));
    assert!(conditions(&failed).is_empty());
    let all = [
        failing.clone(),
        second.clone(),
        indexed("c", 2, "Succeeded"),
    ];
    let end = reconcile(&job(&spec), &all, 30);
    let failed = [
        ("FailureTarget", "FailedIndexes"),
        ("Failed", "FailedIndexes"),
    ];
    assert_eq!(conditions(&end), pairs(&failed));
    let mut strict = spec.clone();
    strict["maxFailedIndexes"] = json!(0);
    let end = reconcile(
        &job(&strict),
        &[failing, second, indexed("c", 2, "Running")],
        30,
    );
    assert_eq!(
        conditions(&end),
        pairs(&[("FailureTarget", "MaxFailedIndexesExceeded")])
    );
}

/// Proves job/policies.
#[test]
fn failure_policy_decides_by_exit_code_and_condition() {
    let on_codes = |action: &str, operator: &str, code: i32| json!({ "action": action, "onExitCodes": { "operator": operator, "values": [code] } });
    let disrupted = json!({ "action": "Ignore", "onPodConditions": [
        { "type": "DisruptionTarget", "status": "True" },
    ]});
    let rules = json!([
        on_codes("FailJob", "In", 42),
        on_codes("Ignore", "In", 43),
        on_codes("Count", "In", 44),
        disrupted,
        on_codes("FailJob", "NotIn", 1),
    ]);
    let policy = job(&json!({ "backoffLimit": 0, "podFailurePolicy": { "rules": rules } }));
    let outcome = |code| reconcile(&policy, &[exited(pod("a", "Failed"), code)], 100);
    let fails = outcome(42);
    assert_eq!(
        fails.finished.as_ref().unwrap().reason.as_deref(),
        Some("PodFailurePolicy")
    );
    assert_eq!(
        fails.finished.unwrap().message.as_deref(),
        Some(
            "Container main for pod default/a failed with exit code 42 matching FailJob rule at index 0"
        )
    );
    let ignored = outcome(43);
    assert_eq!(
        (ignored.status.failed, created(&ignored.work).len()),
        (None, 1)
    );
    for code in [44, 1] {
        let counted = outcome(code).finished.unwrap();
        assert_eq!(
            counted.reason.as_deref(),
            Some("BackoffLimitExceeded"),
            "{code}"
        );
    }
    let message = outcome(7).finished.unwrap().message.unwrap();
    assert!(
        message.ends_with("exit code 7 matching FailJob rule at index 4"),
        "{message}"
    );
    let mut evicted = pod("a", "Failed");
    evicted["status"]["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True" }]);
    assert_eq!(reconcile(&policy, &[evicted], 100).status.failed, None);
}

/// Proves job/policies.
#[test]
fn deleted_pods_are_replaced_by_policy() {
    let mut deleted = pod("a", "Running");
    deleted["metadata"]["deletionTimestamp"] = json!(at(0).to_string());
    let eager = job(&json!({ "podReplacementPolicy": "TerminatingOrFailed" }));
    let outcome = reconcile(&eager, &[deleted.clone()], 100);
    assert_eq!(created(&outcome.work).len(), 1);
    assert_eq!(outcome.status.failed, Some(1));
    let patient = job(&json!({ "podReplacementPolicy": "Failed" }));
    let outcome = reconcile(&patient, &[deleted], 100);
    assert_eq!(outcome.work, Work::None);
    assert_eq!(
        (outcome.status.failed, outcome.status.terminating),
        (None, Some(1))
    );
}

/// Proves job/policies.
#[test]
fn success_policy_ends_the_job_early() {
    let spec = |rule: Value| {
        json!({
            "completionMode": "Indexed", "completions": 5, "parallelism": 5,
            "successPolicy": { "rules": [rule] },
        })
    };
    let observed = [
        indexed("a", 0, "Succeeded"),
        indexed("b", 2, "Succeeded"),
        indexed("c", 3, "Running"),
    ];
    for (rule, met) in [
        (json!({ "succeededIndexes": "0,2" }), true),
        (json!({ "succeededIndexes": "0-2" }), false),
        (
            json!({ "succeededIndexes": "0-2", "succeededCount": 2 }),
            true,
        ),
        (
            json!({ "succeededIndexes": "2-4", "succeededCount": 2 }),
            false,
        ),
        (json!({ "succeededCount": 2 }), true),
        (json!({ "succeededCount": 3 }), false),
    ] {
        let outcome = reconcile(&job(&spec(rule.clone())), &observed, 0);
        let expected: &[_] = if met {
            &[("SuccessCriteriaMet", "SuccessPolicy")]
        } else {
            &[]
        };
        assert_eq!(conditions(&outcome), pairs(expected), "{rule}");
        assert_eq!(matches!(outcome.work, Work::Terminate(_)), met);
        // Pods that are cut short do not count as failed.
        assert_eq!(outcome.status.failed, None);
    }
}

/// Proves job/suspend.
#[test]
fn suspended_job_has_no_pods() {
    let mut suspended = job(&json!({ "suspend": true, "activeDeadlineSeconds": 10 }));
    let outcome = reconcile(&suspended, &[pod("a", "Running")], 0);
    assert!(matches!(&outcome.work, Work::Remove(pods) if pods.len() == 1));
    assert_eq!(
        conditions(&outcome),
        pairs(&[("Suspended", "JobSuspended")])
    );
    assert_eq!(outcome.status.start_time, None);
    suspended.status = Some(outcome.status);
    suspended.spec.as_mut().unwrap().suspend = Some(false);
    let resumed = reconcile(&suspended, &[], 500);
    assert_eq!(created(&resumed.work).len(), 1);
    assert_eq!(conditions(&resumed), pairs(&[("Suspended", "JobResumed")]));
    assert_eq!(resumed.status.start_time, Some(Time(at(500))));
}

/// Proves job/exactly-once.
#[test]
fn released_pods_are_counted_once() {
    let mut counting = job(&json!({ "completions": 4 }));
    counting.status = Some(JobStatus {
        succeeded: Some(1),
        uncounted_terminated_pods: Some(UncountedTerminatedPods {
            succeeded: Some(vec!["gone".into(), "held".into()]),
            failed: Some(vec!["failed".into()]),
        }),
        ..JobStatus::default()
    });
    // `held` still has its finalizer, the others lost theirs before the loop crashed.
    let mut failed = pod("failed", "Failed");
    failed["metadata"]["finalizers"] = Value::Null;
    let outcome = reconcile(&counting, &[pod("held", "Succeeded"), failed], 100);
    assert_eq!(
        (outcome.status.succeeded, outcome.status.failed),
        (Some(3), Some(1))
    );
    let uncounted = outcome.status.uncounted_terminated_pods;
    assert_eq!(uncounted, Some(UncountedTerminatedPods::default()));
    assert_eq!(created(&outcome.work).len(), 1);
}
