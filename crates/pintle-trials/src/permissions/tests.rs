use super::*;

fn used() -> Permissions {
    let mut permissions = Permissions::default();
    let key = |group: &str, resource: &str| (group.to_owned(), resource.to_owned());
    permissions
        .used
        .insert(key("", "pods"), ["get", "list"].into());
    permissions
        .used
        .insert(key("e.com", "webs/status"), ["patch"].into());
    permissions
}

#[test]
fn missing_and_unused_permissions_are_found() {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]},
        {"apiGroups": ["e.com"], "resources": ["*"], "verbs": ["*"]},
    ]);
    let (missing, unused) = used().compare(&rules);
    assert_eq!(missing, ["get pods"]);
    assert_eq!(unused, ["delete pods"]);
}

#[test]
fn minimal_role_allows_exactly_the_used_permissions() {
    let (missing, unused) = used().compare(&used().minimal_rules());
    assert_eq!((missing, unused), (Vec::new(), Vec::new()));
    assert!(used().to_yaml().contains("resources: [\"webs/status\"]"));
}

#[test]
fn permission_on_finalizers_counts_as_used() {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["e.com"], "resources": ["webs/status"], "verbs": ["patch"]},
        {"apiGroups": ["e.com"], "resources": ["webs/finalizers"], "verbs": ["update"]},
    ]);
    assert_eq!(used().compare(&rules), (Vec::new(), Vec::new()));
}
