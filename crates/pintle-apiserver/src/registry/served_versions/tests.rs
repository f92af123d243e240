use serde_json::json;

use super::*;

#[test]
fn event_conversion_round_trips() {
    let Value::Object(core) = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "p"},
            "message": "m", "reportingComponent": "", "reportingInstance": "", "reason": "r", "count": 2, "source": {"component": "c"}})
    else {
        panic!("not an object")
    };
    let other = Conversion::Events.to_served(core.clone());
    assert_eq!(other["regarding"], core["involvedObject"]);
    assert_eq!(other["note"], "m");
    assert_eq!(Conversion::Events.to_stored(other), core);
}
