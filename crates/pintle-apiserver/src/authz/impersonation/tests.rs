use super::*;
use crate::{
    ApiServer,
    api::{ANONYMOUS, AUTHENTICATED},
};

fn acting_as(lines: &[(&'static str, &str)]) -> Result<User, ApiError> {
    let mut request = http::Request::get("/api/v1/pods");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let server = ApiServer::builder().build();
    acting_user(&server.api, &parts, User::admin())
}

fn groups(lines: &[(&'static str, &str)]) -> Vec<String> {
    acting_as(lines).unwrap().groups
}

const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Proves rbac/impersonation.
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
    let error = acting_as(&lines).unwrap_err();
    assert_eq!(
        error.message(),
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"red\"}, \
             Extra:map[string][]string{\"a\":[]string{\"b\"}}} without impersonating a user name"
    );
}
