use serde_json::json;

use super::selector;

#[test]
fn selectors_print_labels_and_expressions_by_key() {
    let both = json!({"matchLabels": {"tier": "web"}, "matchExpressions": [
            {"key": "app", "operator": "In", "values": ["b", "a"]},
            {"key": "zone", "operator": "DoesNotExist"},
            {"key": "env", "operator": "Exists"},
            {"key": "track", "operator": "NotIn", "values": ["canary"]}]});
    assert_eq!(
        selector(&both),
        "app in (a,b),env,tier=web,track notin (canary),!zone"
    );
    assert_eq!(selector(&json!({})), "");
}
