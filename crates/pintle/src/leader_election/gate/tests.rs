use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn request(method: &str, uri: &str) -> http::request::Builder {
    Request::builder().method(method).uri(uri)
}

fn writes(method: &str, uri: &str) -> bool {
    is_write(&request(method, uri).body(Body::empty()).unwrap())
}

#[test]
fn reads_pass_and_changes_are_writes() {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        assert!(writes(method, PODS), "{method}");
    }
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert!(!writes(method, PODS), "{method}");
    }
    for uri in [
        "/version",
        "/api/v1/pods?watch=true",
        "/api/v1/namespaces/default/pods/web/log?follow=true",
        "/apis/apps/v1/namespaces/default/deployments/web/scale",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/status",
    ] {
        assert!(!writes("GET", uri), "{uri}");
    }
}

#[test]
fn requests_that_connect_are_writes_with_any_method() {
    for uri in [
        "/api/v1/namespaces/default/pods/web/exec?command=rm",
        "/api/v1/namespaces/default/pods/web/attach",
        "/api/v1/namespaces/default/pods/web/portforward",
        "/api/v1/namespaces/default/pods/web/proxy",
        "/api/v1/namespaces/default/pods/web:8080/proxy/admin/shutdown",
        "/api/v1/namespaces/default/services/https:web:443/proxy/",
        "/api/v1/nodes/node-1/proxy/run/default/web",
        // The API server rejects a dry run of these, and other servers may ignore `dryRun`.
        "/api/v1/namespaces/default/pods/web/exec?command=rm&dryRun=All",
    ] {
        for method in ["GET", "HEAD", "OPTIONS", "POST"] {
            assert!(writes(method, uri), "{method} {uri}");
        }
    }
    // A stream to another API server, such as the console of a virtual machine.
    let console = "/apis/subresources.kubevirt.io/v1/namespaces/default/machines/a/console";
    let stream = request("GET", console).header("Upgrade", "websocket");
    assert!(is_write(&stream.body(Body::empty()).unwrap()));
}

#[test]
fn objects_named_like_a_subresource_can_be_read() {
    for uri in [
        "/api/v1/namespaces/default/pods/exec",
        "/api/v1/namespaces/proxy/pods/proxy",
        "/api/v1/namespaces/default/pods/exec/log",
        "/api/v1/nodes/proxy",
        "/api/v1/namespaces/attach",
        "/apis/example.com/v1/proxy/a/status",
    ] {
        assert!(!writes("GET", uri), "{uri}");
    }
}

#[test]
fn dry_runs_pass() {
    let dry_run = format!("{PODS}?fieldManager=x&dryRun=All");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        assert!(!writes(method, &dry_run), "{method}");
    }
    for query in ["dryRun", "dryRun=", "dryRun=None", "xdryRun=All"] {
        assert!(writes("POST", &format!("{PODS}?{query}")), "{query}");
    }
    assert!(writes("POST", "/webhook?dryRun=All"), "not an API resource");
}

/// The API server ignores the query of a deletion that has a body.
#[test]
fn deletion_with_a_body_is_a_write_whatever_its_query() {
    for body in ["{}", r#"{"dryRun":["All"]}"#] {
        let request = request("DELETE", &format!("{PODS}/web?dryRun=All"));
        let request = request.body(Body::from(body.as_bytes().to_vec()));
        assert!(is_write(&request.unwrap()), "{body}");
    }
}

#[test]
fn only_creating_a_review_is_a_read() {
    let namespaced = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    for uri in [
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        namespaced,
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    ] {
        assert!(!writes("POST", uri), "{uri}");
    }
    for (method, uri) in [
        ("DELETE", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/apis/authentication.k8s.io/v1/others"),
        ("POST", "/apis/example.com/v1/tokenreviews"),
        // It returns a credential.
        ("POST", "/api/v1/namespaces/default/serviceaccounts/a/token"),
    ] {
        assert!(writes(method, uri), "{method} {uri}");
    }
}

/// Proves election/gate.
#[tokio::test(start_paused = true)]
async fn write_does_not_outlive_its_term_into_the_next() {
    let leadership = Leadership::new("default", "operator");
    let (now, minute) = (Instant::now(), std::time::Duration::from_secs(60));
    let first = leadership.begin(now, now + minute);
    let mut write = std::pin::pin!(leadership.during_term(std::future::pending::<()>()));
    assert!(futures::poll!(&mut write).is_pending());
    // Another term begins before the write runs again.
    leadership.end(first);
    leadership.begin(now, now + minute);
    let cancelled = tokio::time::timeout(minute / 2, write).await;
    assert_eq!(cancelled, Ok(Err(NotLeading::Cancelled)));
}
