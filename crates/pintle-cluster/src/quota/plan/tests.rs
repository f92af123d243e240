use serde_json::json;

use super::*;

fn quota(spec: &Value, status: &Value) -> ResourceQuota {
    let quota = json!({ "metadata": { "name": "q" }, "spec": spec, "status": status });
    serde_json::from_value(quota).unwrap()
}

fn used(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
        .collect()
}

#[test]
fn new_quota_gets_a_status_immediately() {
    let hard = json!({ "hard": { "pods": "2" } });
    let fresh = quota(&hard, &json!({}));
    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(wait(&fresh, Some(now), now), None);
    let status = status(&fresh, used(&[("pods", "1"), ("secrets", "4")])).unwrap();
    assert_eq!(
        json!(status),
        json!({ "hard": { "pods": "2" }, "used": { "pods": "1" } })
    );
}

#[test]
fn unchanged_usage_is_not_written() {
    let hard = json!({ "hard": { "pods": "2" } });
    let full = quota(
        &hard,
        &json!({ "hard": { "pods": "2" }, "used": { "pods": "1" } }),
    );
    assert_eq!(status(&full, used(&[("pods", "1")])), None);
    assert!(status(&full, used(&[("pods", "0")])).is_some());
    let raised = json!({ "hard": { "pods": "3" } });
    let raised = quota(
        &raised,
        &json!({ "hard": { "pods": "2" }, "used": { "pods": "1" } }),
    );
    assert!(status(&raised, used(&[("pods", "1")])).is_some());
}

#[test]
fn counts_of_a_busy_namespace_are_paced() {
    let hard = json!({ "hard": { "pods": "2" } });
    let full = quota(
        &hard,
        &json!({ "hard": { "pods": "2" }, "used": { "pods": "1" } }),
    );
    let now = Timestamp::from_millisecond(1_000).unwrap();
    let at = |millis: i64| Timestamp::from_millisecond(millis).ok();
    assert_eq!(wait(&full, None, now), None);
    assert_eq!(wait(&full, at(950), now), Some(Duration::from_millis(150)));
    assert_eq!(wait(&full, at(800), now), None);
}

#[test]
fn kinds_without_a_watch_are_polled() {
    let kinds = |plurals: &[(&str, &str)]| -> BTreeSet<(String, String)> {
        let plurals = plurals.iter();
        plurals
            .map(|(group, plural)| ((*group).to_owned(), (*plural).to_owned()))
            .collect()
    };
    assert_eq!(recheck(&kinds(&[("", "pods"), ("", "secrets")])), RESYNC);
    assert_eq!(
        recheck(&kinds(&[("", "pods"), ("apps", "deployments")])),
        POLL
    );
}
