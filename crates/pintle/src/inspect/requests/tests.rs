use super::*;

fn target(path: &str) -> (String, String, String, String) {
    let target = Target::of(path).unwrap();
    let text = |part: Option<String>| part.unwrap_or_default();
    let namespace = text(target.namespace);
    let place = format!("{namespace}/{}", text(target.name));
    (
        target.group,
        target.resource,
        place,
        text(target.subresource),
    )
}

#[test]
fn paths_name_objects() {
    let of = |path: &str| {
        let (group, resource, place, subresource) = target(path);
        [group, resource, place, subresource].join(" ")
    };
    assert_eq!(of("/api/v1/namespaces/a/pods/b/status"), " pods a/b status");
    assert_eq!(
        of("/apis/apps/v1/namespaces/a/deployments"),
        "apps deployments a/ "
    );
    assert_eq!(of("/api/v1/namespaces/a"), " namespaces /a ");
    assert_eq!(
        of("/api/v1/namespaces/a/finalize"),
        " namespaces /a finalize"
    );
    assert_eq!(of("/api/v1/nodes/n"), " nodes /n ");
    assert_eq!(Target::of("/healthz"), None);
}

#[test]
fn plurals_match_their_kinds() {
    for (kind, resource) in [
        ("Deployment", "deployments"),
        ("Ingress", "ingresses"),
        ("NetworkPolicy", "networkpolicies"),
        ("Endpoints", "endpoints"),
    ] {
        assert!(is_plural(kind, resource), "{kind}");
    }
    assert!(!is_plural("Pod", "podtemplates"));
}
