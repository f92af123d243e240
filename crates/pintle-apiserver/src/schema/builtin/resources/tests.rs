use super::*;

fn resource(group: &str, plural: &str) -> &'static Resource {
    let mut all = group_versions().iter().filter(|gv| gv.group == group);
    let mut all = all.next().into_iter().flat_map(|gv| &gv.resources);
    all.find(|resource| resource.plural == plural).unwrap()
}

/// Proves discovery/resources.
#[test]
fn resources_have_names_verbs_and_subresources() {
    let deployments = resource("apps", "deployments");
    assert_eq!(deployments.short_names, ["deploy"]);
    assert_eq!(deployments.categories, ["all"]);
    assert!(deployments.stored());
    let scale = deployments
        .subresources
        .iter()
        .find(|sub| sub.name == "scale")
        .unwrap();
    assert_eq!(
        (scale.group, scale.version, scale.kind),
        (Some("autoscaling"), Some("v1"), "Scale")
    );
    let reviews = resource("authorization.k8s.io", "selfsubjectaccessreviews");
    assert_eq!(reviews.verbs, ["create"]);
    assert!(!reviews.stored());
}

/// Proves discovery/resources.
#[test]
fn all_upstream_groups_are_present() {
    let groups: Vec<&str> = group_versions().iter().map(|gv| gv.group).collect();
    for group in [
        "",
        "apps",
        "batch",
        "coordination.k8s.io",
        "events.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
        "storage.k8s.io",
    ] {
        assert!(groups.contains(&group), "{group:?} is missing");
    }
    assert_eq!(groups[0], "", "the core group comes first");
}
