use serde_json::json;

use super::*;

/// Proves job/exactly-once.
#[test]
fn ttl_starts_when_the_job_finishes() {
    let at = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
    let job = |ttl: Option<i32>, type_: &str| -> Job {
        let condition = json!({
            "type": type_, "status": "True", "lastTransitionTime": at(0).to_string(),
        });
        serde_json::from_value(json!({
            "spec": { "ttlSecondsAfterFinished": ttl, "template": {} },
            "status": { "conditions": [condition] },
        }))
        .unwrap()
    };
    let seconds = |job: &Job, now| remaining(job, at(now)).map(|left| left.as_secs());
    assert_eq!(seconds(&job(None, "Complete"), 9), None);
    assert_eq!(seconds(&job(Some(60), "FailureTarget"), 9), None);
    assert_eq!(seconds(&job(Some(60), "Complete"), 9), Some(51));
    assert_eq!(seconds(&job(Some(60), "Failed"), 60), Some(0));
    assert_eq!(seconds(&job(Some(0), "Failed"), 0), Some(0));
    let mut deleted = job(Some(0), "Failed");
    deleted.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(seconds(&deleted, 0), None);
}
