use super::*;

fn access(method: &Method, uri: &str) -> String {
    let access = Access::of_request(method, &uri.parse().unwrap());
    match &access.what {
        What::Path(path) => format!("{} {path}", access.verb),
        What::Resource(resource) => format!(
            "{} {} group={} namespace={} name={}",
            access.verb,
            resource.combined(),
            resource.group,
            resource.namespace,
            resource.name
        ),
    }
}

/// Proves rbac/enforced.
#[test]
fn paths_become_attributes() {
    for (method, uri, expected) in [
        (Method::GET, "/", "get /"),
        (Method::GET, "/healthz", "get /healthz"),
        (Method::POST, "/healthz/ping", "post /healthz/ping"),
        (Method::GET, "/api", "get /api"),
        (Method::GET, "/api/v1", "get /api/v1"),
        (Method::GET, "/apis/apps/v1", "get /apis/apps/v1"),
        (
            Method::GET,
            "/api/v1/pods",
            "list pods group= namespace= name=",
        ),
        (
            Method::GET,
            "/api/v1/pods?watch=1",
            "watch pods group= namespace= name=",
        ),
        (
            Method::GET,
            "/api/v1/watch/namespaces/a/pods",
            "watch pods group= namespace=a name=",
        ),
        (
            Method::HEAD,
            "/api/v1/namespaces/a/pods/p",
            "get pods group= namespace=a name=p",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp",
            "list pods group= namespace=a name=p",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dp",
            "list pods group= namespace=a name=",
        ),
        (
            Method::POST,
            "/api/v1/namespaces/a/pods/p/eviction",
            "create pods/eviction group= namespace=a name=p",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a",
            "get namespaces group= namespace=a name=a",
        ),
        (
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update namespaces/finalize group= namespace=a name=a",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/status",
            "get namespaces/status group= namespace=a name=a",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp,metadata.name%3Dq",
            "list pods group= namespace=a name=p",
        ),
        (
            Method::GET,
            "/api/v1/proxy/namespaces/a/pods/p/path",
            "proxy pods group= namespace=a name=p",
        ),
        (
            Method::POST,
            "/api/v1/namespaces",
            "create namespaces group= namespace= name=",
        ),
        (
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection deployments group=apps namespace=a name=",
        ),
        (
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments/d",
            "delete deployments group=apps namespace=a name=d",
        ),
        (
            Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "patch deployments/scale group=apps namespace=a name=d",
        ),
        (
            Method::GET,
            "/apis/example.com/v1/nothing",
            "list nothing group=example.com namespace= name=",
        ),
    ] {
        assert_eq!(access(&method, uri), expected, "{uri}");
    }
}

#[test]
fn messages_escape_names_from_the_request() {
    let path = Access::of_request(&Method::GET, &"/%3Cscript%3E&".parse().unwrap());
    let error = path.forbidden(&User::new("u"), "");
    assert_eq!(
        error.message(),
        "forbidden: User \"u\" cannot get path \"/&lt;script&gt;&amp;\""
    );
}
