use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn finished(seconds: i64) -> Pod {
    let state = json!({ "terminated": { "exitCode": 1, "finishedAt": at(seconds).to_string() } });
    let container = json!({
        "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    serde_json::from_value(
        json!({ "metadata": {}, "status": { "containerStatuses": [container] } }),
    )
    .unwrap()
}

/// Proves job/backoff.
#[test]
fn delay_doubles_with_each_failure_since_the_last_success() {
    let mut backoff = Backoff::default();
    assert_eq!(backoff.remaining(at(0)), Duration::ZERO);
    let mut delays = Vec::new();
    for _ in 0..8 {
        backoff = backoff.with(&[], &[&finished(0)]);
        delays.push(backoff.remaining(at(0)).as_secs());
    }
    assert_eq!(delays, [10, 20, 40, 80, 160, 320, 600, 600]);
    assert_eq!(backoff.remaining(at(590)).as_secs(), 10);
    assert_eq!(backoff.remaining(at(600)), Duration::ZERO);
    // A failure after a success counts as the first one, and a failure before it does not count.
    let (before, success, after) = (finished(1), finished(2), finished(3));
    let mixed = backoff.with(&[&success], &[&after, &before]);
    assert_eq!(mixed.remaining(at(3)).as_secs(), 10);
    assert_eq!(backoff.with(&[&success], &[]), Backoff::default());
}

/// Proves job/backoff.
#[test]
fn finish_time_comes_from_the_last_container() {
    let mut pod = finished(5);
    let status = pod.status.as_mut().unwrap();
    let statuses = status.container_statuses.as_mut().unwrap();
    statuses.extend(finished(9).status.unwrap().container_statuses.unwrap());
    assert_eq!(finished_at(&pod), at(9));
    let mut deleted: Pod = serde_json::from_value(json!({ "metadata": {
        "creationTimestamp": at(1).to_string(),
    }}))
    .unwrap();
    assert_eq!(finished_at(&deleted), at(1));
    deleted.metadata.deletion_timestamp = Some(Time(at(40)));
    deleted.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(finished_at(&deleted), at(10));
}
