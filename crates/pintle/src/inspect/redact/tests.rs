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
