//! Which webhooks a write calls: selectors, conditions and equivalent versions.

use super::*;

/// Creates the config maps and returns the names of those that the webhook saw.
async fn selected(http: &Http, seen: &Seen, objects: &[Value], path: &str) -> Vec<String> {
    for object in objects {
        let (code, status) = http.post(path, object).await;
        assert_eq!(code, 201, "{status}");
    }
    let mut seen = seen.lock().unwrap();
    let requests = seen.drain(..);
    requests.map(|request| request.name().to_owned()).collect()
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn selectors_and_conditions_decide_whether_a_webhook_is_called() {
    let server = server();
    let http = http(&server);
    let namespace = json!({"metadata": {"name": "blue", "labels": {"team": "blue"}}});
    http.post("/api/v1/namespaces", &namespace).await;
    let with_label = |name: &str, value: &str| {
        json!({"metadata": {"name": name,
        "labels": {"tier": value}}, "data": {"k": value}})
    };
    let objects = [with_label("one", "front"), with_label("two", "back")];
    let register = |field: &str, value: Value| {
        let seen = Seen::default();
        let record = Arc::clone(&seen);
        let webhook = Webhook::validating("matching.example.com", move |request| {
            record.lock().unwrap().push(request);
            async { AdmissionResponse::allow() }
        })
        .rule(["CREATE"], [""], ["v1"], ["configmaps"])
        .field(field, value);
        (seen, server.register_webhook(&webhook).unwrap())
    };
    let blue = "/api/v1/namespaces/blue/configmaps";

    let (seen, webhook) = register("objectSelector", json!({"matchLabels": {"tier": "front"}}));
    assert_eq!(selected(&http, &seen, &objects, CONFIG_MAPS).await, ["one"]);
    drop(webhook);
    let (seen, webhook) = register(
        "namespaceSelector",
        json!({"matchExpressions": [
        {"key": "team", "operator": "Exists"}]}),
    );
    assert_eq!(selected(&http, &seen, &objects, blue).await, ["one", "two"]);
    http.delete(CONFIG_MAPS).await;
    assert!(
        selected(&http, &seen, &objects, CONFIG_MAPS)
            .await
            .is_empty()
    );
    drop(webhook);
    http.delete(blue).await;
    let (seen, webhook) = register(
        "matchConditions",
        json!([
        {"name": "back", "expression": "object.data.k == 'back' && request.operation == 'CREATE'"},
        {"name": "user", "expression": "request.userInfo.username.startsWith('kubernetes')"}]),
    );
    assert_eq!(selected(&http, &seen, &objects, blue).await, ["two"]);
    drop(webhook);
    // A condition that cannot be evaluated counts as a failure of the webhook.
    let condition = json!([{"name": "broken", "expression": "object.spec.replicas > 1"}]);
    let (_, webhook) = register("matchConditions", condition);
    let (code, status) = http.post(blue, &with_label("three", "x")).await;
    assert_eq!(code, 403, "{status}");
    let message = status["message"].as_str().unwrap();
    let start = "configmaps \"three\" is forbidden: expression 'object.spec.replicas > 1' \
                 resulted in error: ";
    assert!(message.starts_with(start), "{message}");
    drop(webhook);
    let unknown = Webhook::validating("unknown.example.com", |_| async {
        AdmissionResponse::allow()
    })
    .field(
        "matchConditions",
        json!([{"name": "x", "expression": "self.x"}]),
    );
    assert!(server.register_webhook(&unknown).is_err());
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn equivalent_version_is_converted_for_the_webhook() {
    let server = server();
    let http = http(&server);
    let seen = Seen::default();
    let register = |policy: &str| {
        let record = Arc::clone(&seen);
        let webhook = Webhook::mutating("equivalent.example.com", move |request| {
            record.lock().unwrap().push(request);
            async {
                let patch = json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 5}]);
                AdmissionResponse::allow().patch(patch)
            }
        })
        .rule(
            ["CREATE"],
            ["autoscaling"],
            ["v1"],
            ["horizontalpodautoscalers"],
        )
        .field("matchPolicy", json!(policy));
        server.register_webhook(&webhook).unwrap()
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
    };
    let exact = register("Exact");
    assert_eq!(
        http.post(path, &autoscaler("a")).await.1["spec"]["maxReplicas"],
        3
    );
    assert!(seen.lock().unwrap().is_empty());
    drop(exact);
    let _equivalent = register("Equivalent");
    let (code, created) = http.post(path, &autoscaler("b")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["maxReplicas"], 5);
    assert_eq!(
        created["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        50
    );
    let request = seen.lock().unwrap().remove(0);
    let value = request.as_value();
    assert_eq!(value["object"]["apiVersion"], "autoscaling/v1");
    assert_eq!(
        value["object"]["spec"]["targetCPUUtilizationPercentage"],
        50
    );
    for (seen, own) in [("kind", "requestKind"), ("resource", "requestResource")] {
        let versions = (&value[seen]["version"], &value[own]["version"]);
        assert_eq!(versions, (&json!("v1"), &json!("v2")), "{seen}");
    }
}
