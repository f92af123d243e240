use serde_json::{Value, json};

use super::*;

fn role(name: &str, label: &str, rules: &Value, selects: Option<&str>) -> Arc<ClusterRole> {
    let mut role = json!({ "metadata": { "name": name, "labels": { label: "true" } },
        "rules": rules });
    if let Some(label) = selects {
        role["aggregationRule"] =
            json!({ "clusterRoleSelectors": [{ "matchLabels": { label: "true" } }] });
    }
    Arc::new(serde_json::from_value(role).unwrap())
}

fn get(resource: &str) -> Value {
    json!({ "apiGroups": [""], "resources": [resource], "verbs": ["get"] })
}

fn resources(rules: &[PolicyRule]) -> Vec<String> {
    let resources = rules
        .iter()
        .flat_map(|rule| rule.resources.iter().flatten());
    resources.cloned().collect()
}

#[test]
fn rules_are_collected_once_and_in_order() {
    let view = role("view", "to-edit", &json!([]), Some("to-view"));
    let roles = [
        role("a", "to-view", &json!([get("pods"), get("secrets")]), None),
        role("b", "to-view", &json!([get("secrets"), get("nodes")]), None),
        role("c", "other", &json!([get("events")]), None),
        view.clone(),
    ];
    let rules = rules(&view, &roles).unwrap();
    assert_eq!(resources(&rules), ["pods", "secrets", "nodes"]);
}

#[test]
fn role_with_all_rules_is_left_alone() {
    let all = json!([get("pods")]);
    let view = role("view", "to-view", &all, Some("to-view"));
    let roles = [role("a", "to-view", &all, None), view.clone()];
    assert_eq!(rules(&view, &roles), None, "it does not aggregate itself");
    let roles = [view.clone()];
    assert_eq!(
        rules(&view, &roles),
        Some(Vec::new()),
        "removed rules disappear"
    );
}

#[test]
fn roles_without_aggregation_have_no_plan() {
    let plain = role("a", "to-view", &json!([get("pods")]), None);
    assert_eq!(rules(&plain, std::slice::from_ref(&plain)), None);
}
