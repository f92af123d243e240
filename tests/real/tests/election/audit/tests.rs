use super::*;
use serde_json::json;

fn history(log: &[serde_json::Value]) -> History {
    let lines: Vec<String> = log.iter().map(ToString::to_string).collect();
    // The ConfigMap `a.7` of these tests is committed with revision 7.
    let revision = |name: &str| name.rsplit_once('.')?.1.parse().ok();
    History::read(&lines.join("\n"), "here", "operator", revision)
}

fn lease(revision: u64, holder: &str, second: u64) -> serde_json::Value {
    let at = format!("2026-01-01T00:00:{second:02}.000000Z");
    json!({
        "stage": "ResponseComplete", "verb": "update", "stageTimestamp": at,
        "objectRef": {"resource": "leases", "namespace": "here", "name": "operator"},
        "responseStatus": {"code": 200},
        "responseObject": {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "operator", "resourceVersion": revision.to_string()},
            "spec": {"holderIdentity": holder, "renewTime": at},
        },
    })
}

fn write(name: &str, second: u64) -> serde_json::Value {
    json!({
        "stage": "ResponseComplete", "verb": "create",
        "stageTimestamp": format!("2026-01-01T00:00:{second:02}.500000Z"),
        "objectRef": {"resource": "configmaps", "namespace": "here", "name": name},
        "responseStatus": {"code": 201},
    })
}

#[test]
fn writes_of_the_holder_are_in_its_term() {
    let history = history(&[
        lease(1, "a", 1),
        write("a.2", 2),
        lease(3, "a", 3),
        write("a.4", 4),
        lease(5, "", 5),
        lease(6, "b", 6),
        write("b.7", 7),
    ]);
    assert_eq!(history.writes.len(), 3);
    assert!(history.outside_a_term().is_empty());
    let since = "2026-01-01T00:00:04.5Z".parse().unwrap();
    let seconds = history.takeover("a", since);
    assert_eq!(seconds.0.as_millis(), 1_500);
    assert_eq!(seconds.1.as_millis(), 3_000);
}

#[test]
fn out_of_term_writes_are_found_in_any_log_order() {
    let history = history(&[
        write("a.2", 2),
        lease(3, "a", 3),
        // Committed after the successor's write, but logged before it.
        write("a.7", 6),
        lease(5, "b", 6),
        write("b.6", 6),
        lease(8, "", 8),
        write("b.9", 9),
    ]);
    let outside = history.outside_a_term();
    let outside: Vec<u64> = outside.iter().map(|write| write.revision).collect();
    assert_eq!(outside, [2, 7, 9]);
}

#[test]
fn failed_requests_and_other_objects_are_ignored() {
    let mut refused = lease(2, "b", 2);
    refused["responseStatus"]["code"] = json!(409);
    let mut elsewhere = write("b.4", 4);
    elsewhere["objectRef"]["namespace"] = json!("there");
    let history = history(&[
        lease(1, "a", 1),
        refused,
        elsewhere,
        write("kube-root-ca.crt", 4),
    ]);
    assert_eq!(history.changes.len(), 1);
    assert!(history.writes.is_empty());
}
