//! Warnings about stored objects that have no effect, and about deprecated annotations.

use crate::support::*;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use pintle_apiserver::Body;
use serde_json::{Value, json};

fn warnings(response: &Response<Body>) -> Vec<String> {
    let values = response.headers().get_all(header::WARNING).iter();
    values
        .map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

async fn write(http: &Http, method: &str, path: &str, media: &str, body: &Value) -> Vec<String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, media)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = http.send(request).await;
    assert!(response.status().is_success(), "{}", response.status());
    warnings(&response)
}

fn workload(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x"}]}}}})
}

/// Proves objects/no-silent-storage.
#[tokio::test]
async fn creating_an_object_without_effect_warns() {
    let server = server();
    let http = http(&server);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let named = |name: &str| json!({"metadata": {"name": name}});
    for (path, object, message) in [
        (
            quotas,
            named("q"),
            "the ResourceQuota is stored and has no effect: no controller computes its usage here",
        ),
        (
            roles,
            json!({"metadata": {"name": "r"}, "rules": [],
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
            "the ClusterRole is stored and has no effect: no controller aggregates the rules of other roles here",
        ),
        (
            sets,
            workload("s"),
            "the StatefulSet is stored and has no effect: no controller creates its Pods here",
        ),
    ] {
        let warnings = write(&http, "POST", path, "application/json", &object).await;
        assert_eq!(warnings, [format!("299 - \"pintle: {message}\"")]);
    }
    let warnings = write(
        &http,
        "POST",
        CONFIG_MAPS,
        "application/json",
        &config_map("m"),
    )
    .await;
    assert_eq!(warnings, [""; 0], "a ConfigMap needs no controller");
}

/// Proves objects/no-silent-storage.
#[tokio::test]
async fn changing_an_object_without_effect_warns() {
    let server = server();
    let http = http(&server);
    let path = "/apis/apps/v1/namespaces/default/statefulsets/s?fieldManager=me";
    let apply = "application/apply-patch+yaml";
    let merge = "application/merge-patch+json";
    let mut set = workload("s");
    set["apiVersion"] = "apps/v1".into();
    set["kind"] = "StatefulSet".into();
    assert_eq!(write(&http, "PATCH", path, apply, &set).await.len(), 1);
    let scale = json!({"spec": {"replicas": 3}});
    assert_eq!(write(&http, "PATCH", path, merge, &scale).await.len(), 1);
    // A change that requests nothing new does not warn.
    assert_eq!(write(&http, "PATCH", path, merge, &scale).await.len(), 0);
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    assert_eq!(write(&http, "PATCH", path, merge, &label).await.len(), 0);
}

/// Proves objects/no-silent-storage.
#[tokio::test]
async fn scaling_an_object_without_effect_warns() {
    let server = server();
    let http = http(&server);
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let path = format!("{sets}/s/scale?fieldManager=me");
    http.post(sets, &workload("s")).await;
    let scale = |replicas: i32| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "s", "namespace": "default"}, "spec": {"replicas": replicas}})
    };
    let put = write(&http, "PUT", &path, "application/json", &scale(2)).await;
    let merge = "application/merge-patch+json";
    let patched = write(&http, "PATCH", &path, merge, &scale(3)).await;
    let apply = format!("{path}&force=true");
    let media = "application/apply-patch+yaml";
    let applied = write(&http, "PATCH", &apply, media, &scale(4)).await;
    for warnings in [put, patched, applied] {
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("the StatefulSet is stored"));
    }
}

/// Proves objects/no-silent-storage.
#[tokio::test]
async fn service_without_an_endpoints_controller_warns() {
    let server = server();
    let http = http(&server);
    let path = "/api/v1/namespaces/default/services";
    let json = "application/json";
    let service = |name: &str, selector: Value| {
        json!({"metadata": {"name": name},
            "spec": {"selector": selector, "ports": [{"port": 80}]}})
    };
    let selecting = service("a", json!({"app": "a"}));
    let message =
        "the Service is stored and has no effect: no controller writes its EndpointSlices here";
    assert_eq!(
        write(&http, "POST", path, json, &selecting).await,
        [format!("299 - \"pintle: {message}\"")]
    );
    // Users write the endpoints of a Service without a selector; an `ExternalName` Service has
    // none.
    let manual = service("b", Value::Null);
    assert_eq!(write(&http, "POST", path, json, &manual).await, [""; 0]);
    let external = json!({"metadata": {"name": "c"},
        "spec": {"type": "ExternalName", "externalName": "example.com", "selector": {"a": "b"}}});
    assert_eq!(write(&http, "POST", path, json, &external).await, [""; 0]);
    let _registration = server.register_controller("", "services");
    let selecting = service("d", json!({"app": "d"}));
    assert_eq!(write(&http, "POST", path, json, &selecting).await, [""; 0]);
}

/// Proves objects/no-silent-storage.
#[tokio::test]
async fn registered_controller_suppresses_the_warning() {
    let server = server();
    let http = http(&server);
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let json = "application/json";
    let first = server.register_controller("apps", "statefulsets");
    let second = server.register_controller("apps", "statefulsets");
    assert_eq!(
        write(&http, "POST", path, json, &workload("a")).await.len(),
        0
    );
    drop(first);
    assert_eq!(
        write(&http, "POST", path, json, &workload("b")).await.len(),
        0
    );
    drop(second);
    assert_eq!(
        write(&http, "POST", path, json, &workload("c")).await.len(),
        1
    );
}

/// Proves objects/admission.
#[tokio::test]
async fn account_that_newly_limits_its_secrets_warns() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let enforce = "kubernetes.io/enforce-mountable-secrets";
    let mut account = json!({"metadata": {"name": "a", "annotations": {enforce: "true"}}});
    let media = "application/json";
    let warned = write(&http, "POST", accounts, media, &account).await;
    let why = format!(
        "299 - \"metadata.annotations[{enforce}]: deprecated in v1.32+; prefer separate namespaces \
         to isolate access to mounted secrets\""
    );
    assert_eq!(warned, [why]);
    account["metadata"]["annotations"][enforce] = "false".into();
    let one = format!("{accounts}/a");
    let again = write(&http, "PUT", &one, media, &account).await;
    assert!(again.is_empty(), "{again:?}");
}
