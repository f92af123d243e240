use serde_json::json;

use super::*;

#[test]
fn data_of_secrets_is_hidden() {
    let mut secret = json!({"data": {"key": "c2VjcmV0"}, "stringData": {"b": "plain"}});
    object("Secret", &mut secret);
    assert_eq!(secret["data"]["key"], HIDDEN);
    assert_eq!(secret["stringData"]["b"], HIDDEN);
    let mut map = json!({"data": {"key": "value"}});
    object("ConfigMap", &mut map);
    assert_eq!(map["data"]["key"], "value");
}

#[test]
fn annotations_and_variables_that_hold_secrets_are_hidden() {
    let mut pod = json!({
        "metadata": {
            "managedFields": [],
            "annotations": {
                "example.com/Auth-Token": "abc",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "example.com/team": "shop",
            },
        },
        "spec": {"template": {
            "metadata": {"annotations": {"vault/password": "x"}},
            "spec": {"containers": [{"env": [
                {"name": "DB_PASSWORD", "value": "hunter2"},
                {"name": "REGION", "value": "eu"},
            ]}]},
        }},
    });
    object("Pod", &mut pod);
    let text = pod.to_string();
    for secret in ["abc", "hunter2", "\"x\"", "managedFields", "\"{}\""] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for shown in ["shop", "eu"] {
        assert!(text.contains(shown), "{shown} not in {text}");
    }
}

#[test]
fn tokens_in_text_are_hidden() {
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln";
    assert_eq!(text("no secrets here"), "no secrets here");
    let clean = text(&format!(
        "refused Authorization: Bearer abc123 and jwt={token} end"
    ));
    assert_eq!(
        clean,
        "refused Authorization: Bearer (hidden) and jwt=(hidden) end"
    );
}

/// Proves inspect/secrets.
#[test]
fn rejected_values_are_hidden() {
    for (message, clean) in [
        (
            r#"Foo "a" is invalid: spec: Invalid value: {"password":"hunter2: x"}: no"#,
            r#"Foo "a" is invalid: spec: Invalid value: (hidden)"#,
        ),
        (
            "args: Invalid value: [\"--password=hunter2\"]: too many",
            "args: Invalid value: (hidden)",
        ),
        (
            r#"x: Invalid value: "{\"password\":\"hunter2\"}": no"#,
            "x: Invalid value: (hidden)",
        ),
        (
            r#"x: Invalid value: core.Env{Name:"A", Value:"hunter2"}: immutable"#,
            "x: Invalid value: (hidden)",
        ),
        (
            r#"[a: Invalid value: "b": no, c: Duplicate value: {"value":"hunter2"}]"#,
            r#"[a: Invalid value: "b": no, c: Duplicate value: (hidden)"#,
        ),
        (
            "x: Invalid value: \"does not end: hunter2",
            "x: Invalid value: (hidden)",
        ),
        (
            "x: Invalid value: two hunter2",
            "x: Invalid value: (hidden)",
        ),
    ] {
        assert_eq!(text(message), clean);
    }
    let long = format!("x: Invalid value: \"{}\": too long", "é".repeat(60));
    assert_eq!(text(&long), "x: Invalid value: (hidden)");
    for shown in [
        r#"metadata.name: Invalid value: "Not A \"Name\"": a lowercase RFC 1123 subdomain must be"#,
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        "spec.x: Invalid value: 7",
    ] {
        assert_eq!(text(shown), shown);
    }
    let mut foo = json!({"status": {"message": "x: Invalid value: {\"a\":\"hunter2\"}: no"}});
    object("Foo", &mut foo);
    assert!(!foo.to_string().contains("hunter2"), "{foo}");
}

/// Proves inspect/secrets.
#[test]
fn secrets_inside_other_objects_are_hidden() {
    let secret = json!({
        "kind": "Secret",
        "metadata": {"annotations": {"example.com/team": "hunter2"}},
        "data": {"a": "hunter2"},
        "stringData": {"b": "hunter2"},
    });
    let mut work = json!({"spec": {"manifests": [{"template": secret}], "name": "shown"}});
    object("ManifestWork", &mut work);
    let text = work.to_string();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(
        text.contains("shown") && text.contains("stringData"),
        "{text}"
    );
    let mut list = json!({"kind": "Secret", "data": "hunter2"});
    object("Thing", &mut list);
    assert_eq!(list["data"], HIDDEN);
}

/// Proves inspect/secrets.
#[test]
fn annotations_of_secrets_and_copies_of_objects_are_hidden() {
    let annotated = |name: &str| json!({"metadata": {"annotations": {name: "hunter2"}}});
    let mut secret = annotated("example.com/team");
    object("Secret", &mut secret);
    assert_eq!(
        secret,
        json!({"metadata": {"annotations": {"example.com/team": HIDDEN}}})
    );
    for name in [
        "banzaicloud.com/last-applied",
        "kopf.zalando.org/last-handled-configuration",
        "kapp.k14s.io/original",
        "objectset.rio.cattle.io/applied",
        "cluster.x-k8s.io/conversion-data",
    ] {
        let mut copy = annotated(name);
        object("Foo", &mut copy);
        assert_eq!(copy["metadata"]["annotations"][name], HIDDEN, "{name}");
    }
}

/// Proves inspect/secrets.
#[test]
fn bearer_tokens_are_hidden_in_any_case_and_after_any_space() {
    for (message, clean) in [
        ("BEARER abc", "BEARER (hidden)"),
        ("Bearer   abc def", "Bearer   (hidden) def"),
        ("bearer\tabc", "bearer\t(hidden)"),
        ("bearer: abc", "bearer: (hidden)"),
        ("é BeArEr\n\nabc", "é BeArEr\n\n(hidden)"),
    ] {
        assert_eq!(text(message), clean);
    }
}
