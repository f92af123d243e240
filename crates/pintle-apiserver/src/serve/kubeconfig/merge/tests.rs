use super::*;

fn foreign() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true},
        "clusters": [{"name": "prod", "cluster": {"server": "https://prod"}}],
        "users": [{"name": "me", "user": {"exec": {"command": "login", "args": ["007"]}}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
        "current-context": "prod",
    })
}

fn ours_named(context: &str, server: &str) -> [Value; 3] {
    let marks = json!([{"name": MARK, "extension": {}}]);
    let user = user_name(context);
    [
        json!({"name": context, "cluster": {"server": server, "extensions": marks}}),
        json!({"name": user, "user": {"token": "t", "extensions": marks}}),
        json!({"name": context, "context": {"cluster": context, "user": user,
                "extensions": marks}}),
    ]
}

fn ours(server: &str) -> [Value; 3] {
    ours_named("pintle", server)
}

fn current(config: Option<&Value>) -> &str {
    config.unwrap()["current-context"].as_str().unwrap()
}

/// Proves auth/kubeconfig.
#[test]
fn merge_then_remove_restores_the_file() {
    let mut config = Some(foreign());
    let previous = merge(&mut config, "pintle", ours("https://a")).unwrap();
    assert_eq!(previous.as_deref(), Some("prod"));
    let merged = config.as_ref().unwrap();
    assert_eq!(merged["current-context"], "pintle");
    assert_eq!(merged["clusters"].as_array().unwrap().len(), 2);
    assert_eq!(merged["users"][0], foreign()["users"][0]);
    assert!(leads_to(merged, "pintle", "https://a"));
    unmerge(&mut config, "pintle", "https://a");
    assert_eq!(config, Some(foreign()));
}

/// Proves auth/kubeconfig.
#[test]
fn only_marked_entries_are_replaced() {
    let mut config = Some(foreign());
    merge(&mut config, "pintle", ours("https://a")).unwrap();
    let again = merge(&mut config, "pintle", ours("https://b")).unwrap();
    assert_eq!(
        again.as_deref(),
        Some("prod"),
        "previous context of the first merge"
    );
    let merged = config.unwrap();
    assert_eq!(merged["clusters"].as_array().unwrap().len(), 2);
    assert!(leads_to(&merged, "pintle", "https://b"));

    let mut taken = foreign();
    taken["users"][0]["name"] = json!("pintle-admin");
    assert_eq!(
        merge(&mut Some(taken), "pintle", ours("https://a")),
        Err(Unusable::Taken {
            name: "pintle-admin".into(),
            list: "users"
        })
    );
}

/// Proves auth/kubeconfig.
#[test]
fn contexts_can_be_removed_in_any_order() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        for before in [Some(foreign()), None] {
            let mut config = before.clone();
            merge(&mut config, "a", ours_named("a", "a")).unwrap();
            let previous = merge(&mut config, "b", ours_named("b", "b")).unwrap();
            assert_eq!(previous.as_deref(), Some("a"));
            unmerge(&mut config, first, first);
            assert_eq!(current(config.as_ref()), second);
            unmerge(&mut config, second, second);
            assert_eq!(config, before, "{first} ended first");
        }
    }
}

/// Proves auth/kubeconfig.
#[test]
fn replaced_context_keeps_its_previous_context() {
    let mut config = Some(foreign());
    merge(&mut config, "a", ours_named("a", "crashed")).unwrap();
    merge(&mut config, "b", ours_named("b", "b")).unwrap();
    merge(&mut config, "a", ours_named("a", "a")).unwrap();
    unmerge(&mut config, "b", "b");
    assert_eq!(current(config.as_ref()), "a");
    unmerge(&mut config, "a", "a");
    assert_eq!(config, Some(foreign()));
}

#[test]
fn files_that_are_not_kubeconfigs_are_rejected() {
    for other in [
        json!({"kind": "Pod"}),
        json!([1]),
        json!("text"),
        json!({"clusters": {}}),
    ] {
        let result = merge(&mut Some(other.clone()), "pintle", ours("https://a"));
        assert!(matches!(result, Err(Unusable::Invalid(_))), "{other}");
    }
}

/// Proves auth/kubeconfig.
#[test]
fn only_a_created_file_without_other_content_is_deleted() {
    for (before, added, deleted) in [
        (None, json!({}), true),
        (Some(Value::Null), json!({}), false),
        (None, json!({"preferences": {"colors": true}}), false),
        (None, json!({"contexts": [{"name": "new"}]}), false),
    ] {
        let mut config = before.clone();
        assert_eq!(merge(&mut config, "pintle", ours("a")), Ok(None));
        let fields = config.as_mut().unwrap();
        assert_eq!(fields["kind"], "Config");
        for (field, value) in added.as_object().unwrap() {
            match &mut fields[field] {
                Value::Array(list) => list.extend(value.as_array().unwrap().iter().cloned()),
                field => *field = value.clone(),
            }
        }
        unmerge(&mut config, "pintle", "a");
        assert_eq!(config.is_none(), deleted, "{before:?} {added}");
    }
}

#[test]
fn current_context_chosen_in_between_is_kept() {
    let mut config = Some(foreign());
    merge(&mut config, "pintle", ours("https://a")).unwrap();
    config.as_mut().unwrap()["current-context"] = json!("other");
    unmerge(&mut config, "pintle", "https://a");
    assert_eq!(current(config.as_ref()), "other");
}
