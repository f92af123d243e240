#![allow(clippy::needless_pass_by_value, reason = "shorter tests")]

use super::*;

fn read(method: Method, path: &str) -> Target {
    Target::read(&method, &path.parse().unwrap(), b"{}")
}

#[test]
fn paths_become_fingerprints() {
    let cases = [
        (Method::GET, "/api/v1/pods?watch=true", "watch/pods//"),
        (
            Method::GET,
            "/api/v1/namespaces/default/pods",
            "list/pods/default/",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/default",
            "get/namespaces//default",
        ),
        (
            Method::PATCH,
            "/apis/apps/v1/namespaces/d/deployments/web/status?force=true",
            "patch/deployments.apps/d/web/status",
        ),
        (
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update/namespaces//a/finalize",
        ),
        (
            Method::DELETE,
            "/api/v1/namespaces/d/pods",
            "deletecollection/pods/d/",
        ),
    ];
    for (method, path, expected) in cases {
        assert_eq!(read(method, path).fingerprint(), expected, "{path}");
    }
}

#[test]
fn creates_take_their_name_from_the_body() {
    let uri: Uri = "/api/v1/namespaces/d/pods".parse().unwrap();
    let named = Target::read(&Method::POST, &uri, br#"{"metadata":{"name":"a"}}"#);
    assert_eq!(named.fingerprint(), "create/pods/d/a");
    let generated = Target::read(
        &Method::POST,
        &uri,
        br#"{"metadata":{"generateName":"a-"}}"#,
    );
    assert_eq!(generated.fingerprint(), "create/pods/d/a-*");
}

#[test]
fn discovery_requests_name_no_resource() {
    assert_eq!(read(Method::GET, "/apis").verb, Verb::Other);
    assert_eq!(read(Method::GET, "/apis/apps/v1").verb, Verb::Other);
    assert_eq!(read(Method::GET, "/version").verb, Verb::Other);
}
