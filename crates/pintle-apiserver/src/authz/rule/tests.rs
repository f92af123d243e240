use super::*;

fn rule(value: &Value) -> Rule {
    Rule::read_all(&json!([value])).remove(0)
}

fn resource(verb: &'static str, plural: &'static str, sub: &'static str) -> Access<'static> {
    let resource = Resource {
        group: "apps".into(),
        plural: plural.into(),
        sub: sub.into(),
        namespace: "a".into(),
        name: "n".into(),
    };
    Access::to(verb, resource)
}

fn covers(own: &Rule, wanted: &Rule) -> bool {
    Cover::new(own).covers(wanted, &Effort::new(100))
}

/// Proves rbac/enforced.
#[test]
fn rules_match_subresources_and_wildcards() {
    let of = |resources: &[&str]| {
        rule(&json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": resources}))
    };
    let plain = resource("get", "deployments", "");
    let scale = resource("get", "deployments", "scale");
    assert!(of(&["deployments"]).allows(&plain));
    assert!(!of(&["deployments"]).allows(&scale));
    assert!(of(&["deployments/scale"]).allows(&scale));
    assert!(of(&["*/scale"]).allows(&scale));
    assert!(!of(&["*/scale"]).allows(&plain));
    assert!(!of(&["*/status"]).allows(&scale));
    assert!(of(&["*"]).allows(&plain));
    assert!(of(&["*"]).allows(&scale));
    assert!(!of(&["*"]).allows(&resource("list", "deployments", "")));
    assert!(!of(&["pods"]).allows(&plain));
    let core = rule(&json!({"verbs": ["*"], "apiGroups": [""], "resources": ["*"]}));
    assert!(!core.allows(&plain));
}

/// Proves rbac/enforced.
#[test]
fn names_limit_a_rule() {
    let named = rule(
        &json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
        "resourceNames": ["n", "m"]}),
    );
    assert!(named.allows(&resource("get", "deployments", "")));
    let other = Access::to(
        "create",
        Resource {
            plural: "deployments".into(),
            ..Resource::default()
        },
    );
    assert!(!named.allows(&other), "a create has no name");
}

/// Proves rbac/enforced.
#[test]
fn paths_match_exactly_or_by_prefix() {
    let path = |path: &'static str| Access {
        verb: "get".into(),
        what: What::Path(path.into()),
    };
    let urls = rule(&json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
    assert!(urls.allows(&path("/healthz")));
    assert!(!urls.allows(&path("/healthz/ping")));
    assert!(urls.allows(&path("/api/v1")));
    assert!(!urls.allows(&path("/api")));
    // Only a star at the end is a wildcard.
    let inner = rule(&json!({"verbs": ["get"], "nonResourceURLs": ["/a/*/b"]}));
    assert!(inner.allows(&path("/a/*/b")) && !inner.allows(&path("/a/x/b")));
    assert!(Rule::everything()[1].allows(&path("/anything")));
    assert!(!Rule::everything()[0].allows(&path("/anything")));
}

/// Proves rbac/escalation.
#[test]
fn rules_cover_their_parts() {
    let wanted = rule(&json!({"verbs": ["get", "list"], "apiGroups": [""],
        "resources": ["pods", "pods/log"], "resourceNames": ["n"]}));
    let parts = wanted.split();
    assert_eq!(parts.len(), 4);
    let covered = |own: &Value| {
        let own = rule(own);
        parts.iter().filter(|part| covers(&own, part)).count()
    };
    let pods = |names: &[&str]| {
        covered(
            &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
            "resourceNames": names}),
        )
    };
    assert_eq!((pods(&[]), pods(&["n"]), pods(&["m"])), (1, 1, 0));
    let logs = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/log"]});
    assert_eq!(covered(&logs), 2);
    // A rule for one name does not cover all names.
    let all = rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
    let named = rule(
        &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
        "resourceNames": ["n"]}),
    );
    assert!(!covers(&named, &all) && covers(&all, &named));
    let apps = rule(&json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]}));
    assert!(!covers(&apps, &all) && !covers(&all, &apps));
    let url = rule(&json!({"verbs": ["get"], "nonResourceURLs": ["/a/b"]}));
    let below = rule(&json!({"verbs": ["*"], "nonResourceURLs": ["/a/*"]}));
    assert!(covers(&below, &url) && !covers(&url, &below));
    assert!(!covers(&Rule::everything()[0], &url));
}

#[test]
fn rules_format_like_upstream() {
    let one = rule(&json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}));
    assert_eq!(
        one.to_string(),
        "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}"
    );
}

#[test]
fn comparisons_stop_at_the_limit() {
    let own = rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
    // Three comparisons: a verb, a group and a resource.
    let (enough, less) = (Effort::new(4), Effort::new(3));
    assert!(Cover::new(&own).covers(&own, &enough) && !enough.is_exhausted());
    assert!(Cover::new(&own).covers(&own, &less) && less.is_exhausted());
    assert!(!Cover::new(&own).covers(&own, &less));
}
