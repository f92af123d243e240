//! Paths and verbs: the server executes exactly the request it has authorized.

use crate::support::*;
use bytes::Bytes;
use http_body_util::Full;
use pintle_apiserver::ApiServer;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Proves rbac/one-path.
#[tokio::test]
async fn watch_prefix_serves_nothing_but_watches() {
    let server = server();
    let admin = http(&server);
    admin.post(CONFIG_MAPS, &config_map("a")).await;
    admin.post(PODS, &pod("p")).await;
    grant_cluster(
        &admin,
        "jane",
        &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]),
    )
    .await;
    let jane = http_as(&server, "jane");
    let before = server.resource_version();
    let maps = "/api/v1/watch/namespaces/default/configmaps";
    let one = format!("{maps}/a");
    let patch = json!({"data": {"k": "w"}});
    assert_eq!(jane.delete(&one).await.0, 405);
    assert_eq!(jane.delete(maps).await.0, 405);
    assert_eq!(jane.post(maps, &config_map("b")).await.0, 405);
    assert_eq!(jane.put(&one, &config_map("a")).await.0, 405);
    assert_eq!(jane.merge(&one, &patch).await.0, 405);
    let sub = "/api/v1/watch/namespaces/default/pods/p/status";
    assert_eq!(jane.merge(sub, &json!({"status": {}})).await.0, 404);
    assert_eq!(jane.get(sub).await.0, 404);
    assert_eq!(server.resource_version(), before);
    let mut watch = jane.watch(maps).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
}

/// Proves rbac/one-path.
#[tokio::test]
async fn empty_segments_match_no_route() {
    let server = server();
    let admin = http(&server);
    grant_cluster(
        &admin,
        "core",
        &json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]),
    )
    .await;
    grant_cluster(
        &admin,
        "reader",
        &json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}]),
    )
    .await;
    let core = http_as(&server, "core");
    let hooks = "/apis//admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let (code, status) = core.post(hooks, &json!({"metadata": {"name": "w"}})).await;
    assert_eq!(code, 404, "{status}");
    let maps = "/apis//v1/namespaces/default/configmaps";
    assert_eq!(core.post(maps, &config_map("a")).await.0, 404);
    let reader = http_as(&server, "reader");
    for path in [
        "/api/v1/namespaces/default//secrets",
        "/api/v1/namespaces//secrets",
        "/api/v1//secrets/x",
        "/api/v1/namespaces/default/%2Fsecrets",
    ] {
        let (code, status) = reader.get(path).await;
        assert!(code == 403 || code == 404, "{path}: {code} {status}");
        let (code, status) = admin.get(path).await;
        assert_eq!(code, 404, "{path}: {status}");
    }
    // The path names no resource, so the message shows an empty one.
    let nobody = http_as(&server, "nobody");
    let (_, status) = nobody.get("/api/v1//namespaces/default/pods/p").await;
    let why =
        "User \"nobody\" cannot get resource \"/default\" in API group \"\" at the cluster scope";
    assert_eq!(status["message"], format!("forbidden: {why}"));
    // Leading and trailing slashes do not form segments.
    assert_eq!(admin.get("/api/v1/namespaces/default/").await.0, 200);
}

/// Proves rbac/one-path.
#[tokio::test]
async fn namespace_subresources_hide_resources_of_that_name() {
    let server = server();
    let admin = http(&server);
    let definition = foo_definition().to_string();
    let definition = definition.replace("foos", "finalize");
    let definition: Value = serde_json::from_str(&definition).unwrap();
    assert_eq!(admin.post(DEFINITIONS, &definition).await.0, 201);
    // Authorization treats this path as a subresource of the namespace.
    let path = "/apis/example.com/v1/namespaces/default/finalize";
    assert_eq!(admin.get(path).await.0, 404);
    assert_eq!(admin.post(path, &foo("a")).await.0, 404);
}

/// Proves rbac/one-path.
#[tokio::test]
async fn connects_with_get_also_need_create() {
    let server = server();
    let admin = http(&server);
    admin.post(PODS, &pod("p")).await;
    let all = ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"];
    for (user, verbs) in [("jane", &["get"][..]), ("joe", &["get", "create"])] {
        let rule = json!({"apiGroups": [""], "resources": all, "verbs": verbs});
        grant_cluster(&admin, user, &json!([rule])).await;
    }
    let (jane, joe) = (http_as(&server, "jane"), http_as(&server, "joe"));
    for sub in ["exec?command=ls", "attach", "portforward"] {
        // The permission is checked before the Pod is looked up.
        for name in ["p", "missing"] {
            let (code, status) = jane.get(&format!("{PODS}/{name}/{sub}")).await;
            assert_eq!(code, 403, "{sub}: {status}");
            let message = format!("pods {name:?} is forbidden: ");
            assert_eq!(status["message"], message);
        }
        assert_eq!(joe.get(&format!("{PODS}/p/{sub}")).await.0, 501, "{sub}");
        assert_eq!(joe.get(&format!("{PODS}/missing/{sub}")).await.0, 404);
    }
    assert_eq!(jane.get(&format!("{PODS}/p/proxy")).await.0, 501);
}

/// Paths that exist, with segments inserted where they do not belong.
fn path() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "api/v1/namespaces/default/configmaps/a",
        "api/v1/namespaces/default/configmaps",
        "api/v1/namespaces/default",
        "api/v1/namespaces",
        "api/v1/namespaces/other/finalize",
        "apis/apps/v1/namespaces/default/deployments/d",
        "apis/apps/v1/namespaces/default/deployments/d/scale",
        "apis/apps/v1/namespaces/default/deployments",
        "apis/scheduling.k8s.io/v1/priorityclasses",
        "apis/scheduling.k8s.io/v1/priorityclasses/c",
    ]);
    let inserted = prop::sample::select(vec![
        "",
        "",
        "",
        "watch",
        "watch",
        "watch",
        "%2F",
        "x%2Fy",
        "proxy",
        "namespaces",
        "status",
    ]);
    let inserted = prop::collection::vec((inserted, 1..5_usize), 0..3);
    (known, inserted).prop_map(|(known, inserted)| {
        let mut parts: Vec<&str> = known.split('/').collect();
        for (part, at) in inserted {
            parts.insert(at.min(parts.len()), part);
        }
        format!("/{}", parts.join("/"))
    })
}

/// Returns everything outside of the core group that the paths above can reach.
async fn others(admin: &Http) -> Vec<Value> {
    let mut found = Vec::new();
    for path in [
        "/apis/apps/v1/deployments",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
    ] {
        found.push(admin.get(path).await.1["items"].clone());
    }
    found
}

async fn send(server: &ApiServer, user: &str, method: &str, path: &str, body: &Value) -> u16 {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", kind);
    let body = Full::new(Bytes::from(body.to_string()));
    let http = http_as(server, user);
    let response = http.send(request.body(body).unwrap()).await;
    response.status().as_u16()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    // Proves rbac/one-path.
    #[test]
    fn permissions_hold_for_any_path_and_method(
        method in prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
        path in path(),
        body in prop::sample::select(vec![
            json!({}),
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}}),
            json!({"metadata": {"name": "c"}, "value": 5}),
        ]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = server();
            let admin = http(&server);
            admin.post(CONFIG_MAPS, &config_map("a")).await;
            admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
            let labels = json!({"app": "d"});
            admin.post("/apis/apps/v1/namespaces/default/deployments", &json!({
                "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod("p")["spec"]}}})).await;
            grant_cluster(&admin, "reader", &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}])).await;
            grant_cluster(&admin, "core", &json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}])).await;
            let before = server.resource_version();
            send(&server, "reader", method, &path, &body).await;
            assert_eq!(server.resource_version(), before, "a reader wrote with {method} {path}");
            let before = others(&admin).await;
            send(&server, "core", method, &path, &body).await;
            assert_eq!(others(&admin).await, before, "wrote to another group with {method} {path}");
        });
    }
}
