use serde_json::json;

use super::*;

fn account(uid: &str) -> ServiceAccount {
    serde_json::from_value(json!({ "metadata": { "name": "robot", "uid": uid } })).unwrap()
}

fn secret(uid: &str, data: &serde_json::Value) -> Secret {
    serde_json::from_value(json!({
        "metadata": { "name": "token", "namespace": "team", "annotations": {
            ACCOUNT: "robot", ACCOUNT_UID: uid,
        }},
        "type": TYPE, "data": data,
    }))
    .unwrap()
}

fn text(secret: &Secret, name: &str) -> String {
    let data = secret.data.as_ref().unwrap();
    String::from_utf8(data[name].0.clone()).unwrap()
}

/// Proves service-accounts/tokens.
#[test]
fn empty_secret_is_filled() {
    let empty = secret("", &json!({}));
    let Step::Fill { mut secret, token } = plan(&empty, Some(&account("1")), "CA") else {
        panic!()
    };
    assert!(token);
    assert_eq!(text(&secret, "namespace"), "team");
    assert_eq!(text(&secret, "ca.crt"), "CA");
    assert_eq!(meta::annotation(&secret.metadata, ACCOUNT_UID), Some("1"));
    set_token(&mut secret, "secret");
    assert_eq!(plan(&secret, Some(&account("1")), "CA"), Step::None);
    assert!(matches!(
        plan(&secret, Some(&account("1")), "another CA"),
        Step::Fill { token: false, .. }
    ));
}

/// Proves service-accounts/tokens.
#[test]
fn secret_of_another_account_of_that_name_is_deleted() {
    let mine = secret("1", &json!({}));
    assert_eq!(plan(&mine, Some(&account("2")), ""), Step::Delete);
    assert_eq!(plan(&mine, None, ""), Step::Delete);
    let mut opaque = mine;
    opaque.type_ = Some("Opaque".into());
    assert_eq!(plan(&opaque, None, ""), Step::None);
}
