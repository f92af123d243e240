use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn content(plural: &str) -> Content {
    Content {
        group: String::new(),
        version: "v1".into(),
        plural: plural.into(),
        kind: String::new(),
    }
}

fn terminating() -> Namespace {
    serde_json::from_value(serde_json::json!({
        "metadata": { "name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "finalizers": ["kubernetes", "example.com/mine"] },
        "status": { "phase": "Terminating" },
    }))
    .unwrap()
}

fn value(status: &NamespaceStatus, type_: &str) -> (String, String) {
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == type_)
        .unwrap();
    (condition.status.clone(), condition.message.clone().unwrap())
}

/// Proves namespaces/emptied.
#[test]
fn conditions_show_remaining_objects_and_finalizers() {
    let mut namespace = terminating();
    let held = ["example.com/hold".to_owned()];
    let mut report = Report::default();
    report.add(&content("configmaps"), [&held[..], &[]].into_iter());
    assert!(!report.is_clean());

    let first = status(&namespace, &report, at(0)).unwrap();
    assert_eq!(first.conditions.as_ref().unwrap().len(), 5);
    let (remaining, message) = value(&first, "NamespaceContentRemaining");
    assert_eq!(remaining, "True");
    assert!(
        message.contains("configmaps. has 2 resource instances"),
        "{message}"
    );
    let (held, message) = value(&first, "NamespaceFinalizersRemaining");
    assert_eq!(held, "True");
    assert!(message.contains("example.com/hold in 1"), "{message}");
    assert_eq!(value(&first, "NamespaceDeletionContentFailure").0, "False");

    namespace.status = Some(first);
    assert_eq!(status(&namespace, &report, at(9)), None, "unchanged");
    let done = status(&namespace, &Report::default(), at(9)).unwrap();
    assert_eq!(value(&done, "NamespaceContentRemaining").0, "False");
}

/// Proves namespaces/emptied.
#[test]
fn only_our_finalizer_is_removed() {
    let namespace = terminating();
    assert!(needs_emptying(&namespace));
    let finalized = finalized(&namespace);
    assert!(!needs_emptying(&finalized));
    assert_eq!(
        finalized.spec.unwrap().finalizers.unwrap(),
        ["example.com/mine"]
    );

    let active = Namespace {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta::default(),
        ..namespace
    };
    assert!(!needs_emptying(&active));
}
