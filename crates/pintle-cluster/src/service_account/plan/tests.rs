use super::*;

fn namespace(phase: &str) -> Namespace {
    serde_json::from_value(serde_json::json!({
        "metadata": { "name": "team" }, "status": { "phase": phase },
    }))
    .unwrap()
}

/// Proves service-accounts/defaults.
#[test]
fn namespace_gets_account_and_current_root_ca() {
    let steps = plan(&namespace("Active"), false, None, "PEM");
    let [Step::CreateAccount(account), Step::CreateMap(map)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(account.metadata.name.as_deref(), Some("default"));
    assert_eq!(account.metadata.namespace.as_deref(), Some("team"));
    assert_eq!(map.data.as_ref().unwrap()["ca.crt"], "PEM");
    assert!(plan(&namespace("Active"), true, Some(map), "PEM").is_empty());

    let steps = plan(&namespace("Active"), true, Some(map), "NEW");
    assert!(matches!(steps.as_slice(), [Step::UpdateMap(_)]));
}

/// Proves service-accounts/defaults.
#[test]
fn terminating_namespace_needs_no_writes() {
    assert!(plan(&namespace("Terminating"), false, None, "PEM").is_empty());
}
