use super::*;
use crate::api::request::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn groups(lines: &[(&'static str, &str)]) -> Vec<String> {
    impersonated(&headers(lines), User::admin()).unwrap().groups
}

/// Proves auth/identity.
#[test]
fn impersonated_users_are_authenticated_by_default() {
    let bob = ("impersonate-user", "bob");
    let group = |name| ("impersonate-group", name);
    assert_eq!(groups(&[bob]), [AUTHENTICATED]);
    assert_eq!(groups(&[bob, group("red")]), ["red", AUTHENTICATED]);
    assert_eq!(
        groups(&[bob, group(AUTHENTICATED), group("red")]),
        [AUTHENTICATED, "red"]
    );
    assert_eq!(groups(&[bob, group(UNAUTHENTICATED)]), [UNAUTHENTICATED]);
    assert_eq!(
        groups(&[("impersonate-user", ANONYMOUS)]),
        [UNAUTHENTICATED]
    );
    assert_eq!(
        groups(&[("impersonate-user", "system:serviceaccount:ns:robot")]),
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            AUTHENTICATED
        ]
    );
}

#[test]
fn impersonating_a_group_requires_a_user() {
    let lines = [("impersonate-group", "red"), ("impersonate-extra-a", "b")];
    let error = impersonated(&headers(&lines), User::admin()).unwrap_err();
    assert_eq!(
        error.message(),
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"red\"}, \
             Extra:map[string][]string{\"a\":[]string{\"b\"}}} without impersonating a user name"
    );
}
