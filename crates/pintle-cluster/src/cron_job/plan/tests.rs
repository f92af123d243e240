use serde_json::{Value, json};

use super::*;

/// 2026-01-01T00:00:00Z, a Thursday.
const START: i64 = 1_767_225_600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

fn cron(spec: &Value, status: &Value) -> CronJob {
    let mut cron = json!({
        "metadata": {
            "name": "tick", "namespace": "default", "uid": "cron",
            "creationTimestamp": at(0).to_string(),
        },
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": { "metadata": { "labels": { "app": "tick" } }, "spec": { "template": {} } },
            "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
        },
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        cron["spec"][key] = value.clone();
    }
    serde_json::from_value(cron).unwrap()
}

fn job(name: &str, ended: Option<&str>, started: i64) -> Arc<Job> {
    let condition = ended.map(|type_| json!({ "type": type_, "status": "True" }));
    let conditions: Vec<_> = condition.into_iter().collect();
    let completed = (ended == Some("Complete")).then(|| at(started + 9).to_string());
    let job = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "status": {
            "conditions": conditions, "startTime": at(started).to_string(), "completionTime": completed,
        },
    });
    Arc::new(serde_json::from_value(job).unwrap())
}

fn active(names: &[&str]) -> Value {
    let refs: Vec<_> = names
        .iter()
        .map(|it| json!({ "name": it, "uid": it }))
        .collect();
    json!(refs)
}

fn look(cron: &CronJob, jobs: &[Arc<Job>], now: i64) -> Plan {
    let now = at(now);
    plan(&Observed { cron, jobs, now })
}

fn started_at(plan: &Plan) -> Option<i64> {
    let start = plan.start.as_ref()?;
    Some(start.scheduled.as_second() - START)
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.events.iter().map(|(_, reason, _)| *reason).collect()
}

/// Proves cronjob/schedule.
#[test]
fn due_job_is_started_and_the_next_one_scheduled() {
    let tick = cron(&json!({}), &json!({}));
    let early = look(&tick, &[], 60);
    assert_eq!(started_at(&early), None);
    assert_eq!(early.requeue_after, Some(Duration::from_millis(240_100)));
    let due = look(&tick, &[], 301);
    assert_eq!(started_at(&due), Some(300));
    assert_eq!(due.requeue_after, Some(Duration::from_millis(299_100)));
    let job = due.start.unwrap().job;
    let minutes = (START + 300) / 60;
    assert_eq!(job.metadata.name, Some(format!("tick-{minutes}")));
    let annotations = job.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[SCHEDULED], "2026-01-01T00:05:00Z");
    assert_eq!(meta::labels(&job.metadata)["app"], "tick");
    let status = started(CronJobStatus::default(), &job, at(300));
    let known = cron(&json!({}), &serde_json::to_value(status).unwrap());
    let running = job_named(&format!("tick-{minutes}"));
    assert_eq!(
        started_at(&look(&known, &[running], 302)),
        None,
        "already started"
    );
}

fn job_named(name: &str) -> Arc<Job> {
    job(name, None, 300)
}

/// Proves cronjob/schedule.
#[test]
fn only_the_most_recent_missed_time_is_started() {
    let tick = cron(
        &json!({}),
        &json!({ "lastScheduleTime": at(300).to_string() }),
    );
    let late = look(&tick, &[], 1_850);
    assert_eq!(started_at(&late), Some(1_800));
    assert_eq!(reasons(&late), Vec::<&str>::new());
    let many = look(&tick, &[], 300 * 120 + 10);
    assert_eq!(started_at(&many), Some(300 * 120));
    assert_eq!(reasons(&many), ["TooManyMissedTimes"]);
    let every = cron(&json!({ "schedule": "@every 7m" }), &json!({}));
    assert_eq!(
        started_at(&look(&every, &[], 7 * 60 * 3 + 1)),
        Some(7 * 60 * 3)
    );
}

/// Proves cronjob/schedule.
#[test]
fn deadline_limits_how_late_a_job_starts() {
    let tick = cron(&json!({ "startingDeadlineSeconds": 30 }), &json!({}));
    assert_eq!(started_at(&look(&tick, &[], 329)), Some(300));
    let missed = look(&tick, &[], 340);
    assert_eq!(started_at(&missed), None);
    assert_eq!(missed.requeue_after, Some(Duration::from_millis(260_100)));
}

/// Proves cronjob/schedule.
#[test]
fn schedule_uses_the_time_zone() {
    let spec = json!({ "schedule": "0 9 * * *", "timeZone": "America/New_York" });
    let due = look(&cron(&spec, &json!({})), &[], 14 * 3600 + 1);
    assert_eq!(started_at(&due), Some(14 * 3600));
    let job = due.start.unwrap().job;
    assert_eq!(
        job.metadata.annotations.unwrap()[SCHEDULED],
        "2026-01-01T09:00:00-05:00"
    );
}

/// Proves cronjob/schedule.
#[test]
fn invalid_specs_are_reported() {
    for (spec, reason, message) in [
        (
            json!({ "timeZone": "Mars/Base" }),
            "UnknownTimeZone",
            "invalid timeZone: \"Mars/Base\": unknown time zone Mars/Base",
        ),
        (
            json!({ "schedule": "61 * * * *" }),
            "UnparseableSchedule",
            "unparseable schedule: \"61 * * * *\" : end of range (61) above maximum (59): 61",
        ),
        (
            json!({ "schedule": "0 0 31 2 *" }),
            "InvalidSchedule",
            "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second",
        ),
    ] {
        let plan = look(&cron(&spec, &json!({})), &[], 301);
        assert_eq!(
            plan.events,
            [(EventType::Warning, reason, message.to_owned())]
        );
        assert!(plan.start.is_none() && plan.requeue_after.is_none());
    }
    let suspended = look(&cron(&json!({ "suspend": true }), &json!({})), &[], 301);
    assert!(suspended.start.is_none() && suspended.requeue_after.is_none());
}

/// Proves cronjob/jobs.
#[test]
fn concurrency_policy_applies_to_active_jobs() {
    for (policy, starts, replaces) in [
        ("Allow", true, false),
        ("Forbid", false, false),
        ("Replace", true, true),
    ] {
        let status = json!({ "active": active(&["a"]), "lastScheduleTime": at(300).to_string() });
        let tick = cron(&json!({ "concurrencyPolicy": policy }), &status);
        let plan = look(&tick, &[job("a", None, 300)], 601);
        assert_eq!(plan.start.is_some(), starts, "{policy}");
        assert_eq!(
            plan.start.is_some_and(|it| it.replaces),
            replaces,
            "{policy}"
        );
        let expected: &[&str] = if starts { &[] } else { &["JobAlreadyActive"] };
        let reasons: Vec<_> = plan.events.iter().map(|it| it.1).collect();
        assert_eq!(reasons, expected, "{policy}");
    }
}

/// Proves cronjob/jobs.
#[test]
fn finished_jobs_leave_the_status_and_the_oldest_are_deleted() {
    let status = json!({
        "active": active(&["c", "gone"]), "lastScheduleTime": at(300).to_string(),
    });
    let tick = cron(&json!({}), &status);
    let jobs = [
        job("a", Some("Complete"), 10),
        job("b", Some("Failed"), 20),
        job("c", Some("Complete"), 30),
        job("d", Some("Failed"), 15),
        job("e", None, 40),
    ];
    let plan = look(&tick, &jobs, 310);
    let deleted: Vec<_> = plan
        .delete
        .iter()
        .map(|job| meta::name(&job.metadata))
        .collect();
    assert_eq!(deleted, ["a", "d"]);
    assert_eq!(plan.status.active, None);
    assert_eq!(plan.status.last_successful_time, Some(Time(at(39))));
    assert_eq!(
        reasons(&plan),
        ["SawCompletedJob", "UnexpectedJob", "MissingJob"]
    );
}
