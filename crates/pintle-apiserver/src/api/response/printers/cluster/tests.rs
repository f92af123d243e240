use jiff::Timestamp;
use serde_json::json;

use super::*;

fn shown(cells: fn(&Fields<'_>) -> Vec<Value>, object: &Value, at: usize) -> Value {
    let now = Timestamp::UNIX_EPOCH;
    cells(&Fields { object, now })[at].clone()
}

#[test]
fn signing_request_row_shows_its_condition() {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    for (conditions, certificate, text) in [
        (json!([]), "", "Pending"),
        (json!([condition("Approved")]), "", "Approved"),
        (
            json!([condition("Approved")]),
            "Y2VydA==",
            "Approved,Issued",
        ),
        (json!([condition("Denied")]), "", "Denied"),
        (
            json!([condition("Approved"), condition("Failed")]),
            "",
            "Approved,Failed",
        ),
    ] {
        let status = json!({"conditions": conditions, "certificate": certificate});
        let object = json!({"spec": {"expirationSeconds": 86400}, "status": status});
        assert_eq!(shown(signing_request, &object, 5), text);
        assert_eq!(shown(signing_request, &object, 4), "24h");
    }
    assert_eq!(shown(signing_request, &json!({}), 4), "<none>");
}

#[test]
fn role_binding_row_shows_role_and_subjects() {
    let object = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "ann"}, {"kind": "User", "name": "bob"},
            {"kind": "Group", "name": "red"},
            {"kind": "ServiceAccount", "namespace": "ns", "name": "robot"}]});
    assert_eq!(shown(binding, &object, 1), "ClusterRole/view");
    assert_eq!(shown(binding, &object, 3), "ann, bob");
    assert_eq!(shown(binding, &object, 4), "red");
    assert_eq!(shown(binding, &object, 5), "ns/robot");
}

#[test]
fn policy_binding_row_shows_its_parameters() {
    let cell = |fields: &Fields<'_>| vec![parameters(fields)];
    for (reference, text) in [
        (json!(null), "<unset>"),
        (json!({"name": "x"}), "*/x"),
        (json!({"name": "x", "namespace": "ns"}), "ns/x"),
        (json!({"selector": {"matchLabels": {"a": "b"}}}), "a=b"),
    ] {
        let object = json!({"spec": {"paramRef": reference}});
        assert_eq!(shown(cell, &object, 0), text);
    }
}
