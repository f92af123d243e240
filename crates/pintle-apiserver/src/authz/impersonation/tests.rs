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

/// A Pod's service account may act as the Pod's node with one permission that covers all nodes.
///
/// Proves rbac/impersonation.
#[test]
fn service_account_acts_as_its_own_node() {
    let robot = |node: &str| {
        let mut robot = User::new("system:serviceaccount:ns:robot");
        robot.extra = BTreeMap::from([(NODE_NAME.to_owned(), vec![node.to_owned()])]);
        robot
    };
    let node = User::new("system:node:n1");
    let wanted = User {
        groups: Vec::new(),
        ..node
    };
    let applies = |user: &User| Mode::AssociatedNode.applies(&wanted, user);
    assert!(applies(&robot("n1")));
    assert!(!applies(&robot("n2")));
    assert!(!applies(&User::new("jane")));
    let server = ApiServer::builder()
        .authorization(crate::Authorization::AlwaysAllow)
        .build();
    let (parts, ()) = http::Request::get("/api/v1/pods")
        .body(())
        .unwrap()
        .into_parts();
    let acting = Mode::AssociatedNode.check(&server.api, &parts, &wanted, &robot("n1"));
    assert_eq!(acting.unwrap().groups, ["system:nodes", AUTHENTICATED]);
    // Nothing is granted here, so the error shows which permission is checked.
    let server = ApiServer::builder().build();
    let error = Mode::AssociatedNode.check(&server.api, &parts, &wanted, &robot("n1"));
    assert_eq!(
        error.unwrap_err().message(),
        "pods is forbidden: User \"system:serviceaccount:ns:robot\" cannot \
         impersonate-on:associated-node:list resource \"pods\" in API group \"\" at the cluster scope"
    );
}
