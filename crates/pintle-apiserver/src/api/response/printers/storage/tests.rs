use jiff::Timestamp;
use serde_json::json;

use super::*;

#[test]
fn claim_row_shows_capacity_once_bound() {
    let status = json!({"phase": "Bound", "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany", "ReadWriteOnce"]});
    let mut object = json!({"spec": {"storageClassName": "fast"}, "status": status});
    let now = Timestamp::UNIX_EPOCH;
    let shown = |object: &Value, at: usize| claim(&Fields { object, now })[at].clone();
    assert_eq!(shown(&object, 3), "");
    object["spec"]["volumeName"] = "pv".into();
    assert_eq!(shown(&object, 3), "1Gi");
    assert_eq!(shown(&object, 4), "RWO,ROX");
    assert_eq!(shown(&object, 5), "fast");
    object["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(shown(&object, 1), "Terminating");
}
