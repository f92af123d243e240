//! The flows of Kubernetes' end-to-end tests for quotas that depend only on admission.

use super::*;

async fn used(http: &Http, resource: &str) -> String {
    let (_, quota) = http.get(&format!("{QUOTAS}/q")).await;
    let used = &quota["status"]["used"][resource];
    used.as_str().unwrap_or_default().to_owned()
}

/// Proves quota/enforced.
#[tokio::test]
async fn every_counted_kind_is_charged_and_limited() {
    let server = server();
    let http = http(&server);
    created(&http, DEFINITIONS, &definition(&["v1"], &Value::Null)).await;
    let core = "/api/v1/namespaces/default";
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let controller = json!({"spec": {"selector": {"a": "b"}, "template": template}});
    let set = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let service = json!({"spec": {"ports": [{"port": 80}]}});
    for (name, path, object) in [
        ("configmaps", format!("{core}/configmaps"), json!({})),
        ("secrets", format!("{core}/secrets"), json!({})),
        ("services", format!("{core}/services"), service),
        (
            "replicationcontrollers",
            format!("{core}/replicationcontrollers"),
            controller,
        ),
        (
            "count/replicasets.apps",
            "/apis/apps/v1/namespaces/default/replicasets".to_owned(),
            set,
        ),
        (
            "persistentvolumeclaims",
            format!("{core}/persistentvolumeclaims"),
            claim,
        ),
        ("pods", format!("{core}/pods"), pod("")),
        (
            "count/tests.example.com",
            tests("v1"),
            test("v1", "", "k", "v"),
        ),
    ] {
        quota(&http, "q", &json!({"hard": {name: "1"}})).await;
        let mut object = object;
        object["metadata"] = json!({"name": "one"});
        created(&http, &path, &object).await;
        assert_eq!(used(&http, name).await, "1", "{name}");
        object["metadata"]["name"] = "two".into();
        let (code, status) = http.post(&path, &object).await;
        assert_eq!(code, 403, "{name}");
        let message = status["message"].as_str().unwrap();
        let why =
            format!("exceeded quota: q, requested: {name}=1, used: {name}=1, limited: {name}=1");
        assert!(message.ends_with(&why), "{message}");
        assert_eq!(http.delete(&format!("{QUOTAS}/q")).await.0, 200);
    }
}

/// Proves quota/enforced.
#[tokio::test]
async fn scopes_of_priority_and_affinity_select_pods() {
    let server = server();
    let http = http(&server);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for (name, value) in [("one", 1), ("two", 2)] {
        created(
            &http,
            classes,
            &json!({"metadata": {"name": name}, "value": value}),
        )
        .await;
    }
    let with_class = |name: &str, class: &str| {
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    for (operator, values, in_scope, out_of_scope) in [
        ("In", json!(["one"]), Some("one"), Some("two")),
        ("NotIn", json!(["one"]), Some("two"), Some("one")),
        ("Exists", json!([]), Some("one"), None),
    ] {
        let selector = json!({"matchExpressions": [{"scopeName": "PriorityClass",
            "operator": operator, "values": values}]});
        quota(
            &http,
            "q",
            &json!({"hard": {"pods": "1"}, "scopeSelector": selector}),
        )
        .await;
        if let Some(class) = out_of_scope {
            for name in ["a", "b"] {
                created(&http, PODS, &with_class(name, class)).await;
            }
            assert_eq!(used(&http, "pods").await, "0", "{operator}");
        }
        let class = in_scope.unwrap();
        created(&http, PODS, &with_class("c", class)).await;
        assert_eq!(used(&http, "pods").await, "1", "{operator}");
        assert_eq!(http.post(PODS, &with_class("d", class)).await.0, 403);
        http.delete(PODS).await;
        http.delete(&format!("{QUOTAS}/q")).await;
    }
    let selector = json!({"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity",
        "operator": "Exists"}]});
    quota(
        &http,
        "q",
        &json!({"hard": {"pods": "1"}, "scopeSelector": selector}),
    )
    .await;
    let affine = |name: &str, term: Value| {
        let mut pod = pod(name);
        let mut term = term;
        term["topologyKey"] = "zone".into();
        pod["spec"]["affinity"] =
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        pod
    };
    let own = json!({"labelSelector": {"matchLabels": {"a": "b"}}});
    created(&http, PODS, &affine("own", own)).await;
    assert_eq!(used(&http, "pods").await, "0");
    let named = json!({"namespaces": ["other"]});
    created(&http, PODS, &affine("named", named)).await;
    assert_eq!(used(&http, "pods").await, "1");
    let selected = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
    assert_eq!(http.post(PODS, &affine("selected", selected)).await.0, 403);
}
