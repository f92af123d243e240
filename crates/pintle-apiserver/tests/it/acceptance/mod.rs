//! The flows of Kubernetes' end-to-end tests for admission webhooks, with their webhook program as
//! a service in this process.

mod auth;
mod quotas;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, WebhookTarget};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, Http, PODS, QUOTAS, config_map, created, http, pod, quota, server,
    webhooks::{answer, patch, review},
};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

fn refuse(why: &str) -> Value {
    json!({"allowed": false, "status": {"message": why}})
}

fn allow() -> Value {
    json!({"allowed": true})
}

/// Adds the next stage to data that the previous stage has marked.
fn staged(data: &Value) -> Value {
    for (before, next) in [("start", "stage-1"), ("stage-1", "stage-2")] {
        let (before, next) = (format!("mutation-{before}"), format!("mutation-{next}"));
        if data[&before] == "yes" && data[&next].is_null() {
            let path = format!("/data/{next}");
            return patch(&json!([{"op": "add", "path": path, "value": "yes"}]));
        }
    }
    allow()
}

/// Returns the response of the webhook program.
async fn respond(path: &str, request: &Value) -> Value {
    let (object, old) = (&request["object"], &request["oldObject"]);
    match path {
        "/pods" => {
            let names = object["spec"]["containers"].as_array().unwrap().iter();
            let mut why = Vec::new();
            if names.clone().any(|container| container["name"] == "hang") {
                std::future::pending::<()>().await;
            }
            if names.clone().any(|container| container["name"] == "bad") {
                why.push("the pod contains unwanted container name");
            }
            if object["metadata"]["labels"]["bad"] == "yes" {
                why.push("the pod contains unwanted label");
            }
            if why.is_empty() {
                allow()
            } else {
                refuse(&why.join("; "))
            }
        }
        "/data" if object["data"]["test"] == "disallow" => refuse("unwanted data"),
        "/data" if old["data"]["test"] == "nondeletable" && object.is_null() => {
            refuse("cannot be deleted")
        }
        "/attach" if request["name"] == "closed" => refuse("attaching is not allowed"),
        "/crds" if object["metadata"]["labels"]["test"] == "disallow" => refuse("unwanted label"),
        "/stages" => staged(&object["data"]),
        "/init" => patch(&json!([{"op": "add", "path": "/spec/initContainers",
            "value": [{"name": "added", "image": "x"}]}])),
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            allow()
        }
        "/deny" => refuse("never"),
        "/label" => patch(&json!([{"op": "add", "path": "/metadata/labels",
            "value": {"added": "yes"}}])),
        _ => allow(),
    }
}

/// Starts a server that reaches the webhook program under the Service `system/program`.
fn with_program() -> ApiServer {
    let server = server();
    let service = tower::service_fn(|request: Request<Full<Bytes>>| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let response = respond(&path, &asked["request"]).await;
        Ok::<Response<Full<Bytes>>, std::convert::Infallible>(answer(&review(&asked, response)))
    });
    server.route_webhooks("system", "program", WebhookTarget::service(service));
    server
}

/// Returns a webhook; `on` is `OPERATION group/resource`, or several operations with commas.
fn hook(name: &str, path: &str, on: &str) -> Value {
    let (operations, resource) = on.split_once(' ').unwrap();
    let (group, resource) = resource.split_once('/').unwrap();
    let operations: Vec<&str> = operations.split(',').collect();
    json!({"name": format!("{name}.example.com"), "sideEffects": "None",
        "admissionReviewVersions": ["v1", "v1beta1"],
        "clientConfig": {"service": {"namespace": "system", "name": "program", "path": path}},
        "rules": [{"operations": operations, "apiGroups": [group], "apiVersions": ["*"],
            "resources": [resource]}]})
}

fn configuration(name: &str, webhooks: &[Value]) -> Value {
    json!({"metadata": {"name": name, "labels": {"suite": "acceptance"}}, "webhooks": webhooks})
}

/// Returns the webhook's message from the response to a denied write.
fn denied((code, status): (u16, Value)) -> String {
    assert_eq!(code, 400, "{status}");
    let message = status["message"].as_str().unwrap();
    let (_, why) = message.split_once(" denied the request: ").expect(message);
    why.to_owned()
}

fn data(name: &str, key: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {key: value}})
}

/// Returns a CRD of Tests with these properties of `data`. The first of the versions is stored.
fn definition(versions: &[&str], properties: &Value) -> Value {
    let mut data = json!({"type": "object", "properties": properties});
    if properties.is_null() {
        data = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let versions = versions.iter().enumerate().map(|(i, name)| {
        json!({"name": name, "served": true, "storage": i == 0, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"data": data}}}})
    });
    json!({"metadata": {"name": "tests.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "tests", "kind": "Test"},
        "versions": versions.collect::<Vec<_>>()}})
}

fn tests(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/tests")
}

fn test(version: &str, name: &str, key: &str, value: &str) -> Value {
    let mut test = data(name, key, value);
    test["apiVersion"] = format!("example.com/{version}").into();
    test["kind"] = "Test".into();
    test
}

#[tokio::test]
async fn webhook_resources_are_in_discovery_documents() {
    let server = server();
    let http = http(&server);
    let (_, groups) = http.get("/apis").await;
    let groups = groups["groups"].as_array().unwrap();
    let named = |group: &&Value| group["name"] == "admissionregistration.k8s.io";
    let group = groups.iter().find(named).unwrap();
    let has_v1 = |group: &Value| {
        let mut versions = group["versions"].as_array().unwrap().iter();
        versions.any(|version| version["version"] == "v1")
    };
    let (_, alone) = http.get("/apis/admissionregistration.k8s.io").await;
    assert!(has_v1(group) && has_v1(&alone));
    let (_, resources) = http.get(GROUP).await;
    let resources = resources["resources"].as_array().unwrap();
    for plural in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ] {
        assert!(resources.iter().any(|resource| resource["name"] == plural));
    }
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn webhook_denies_pods_and_config_maps() {
    let server = with_program();
    let http = http(&server);
    let mut maps = hook("maps", "/data", "CREATE,UPDATE,DELETE /configmaps");
    maps["namespaceSelector"] = json!({"matchExpressions":
        [{"key": "skips", "operator": "NotIn", "values": ["webhooks"]}]});
    let hooks = [hook("pods", "/pods", "CREATE /pods"), maps];
    created(&http, VALIDATING, &configuration("c", &hooks)).await;
    let mut bad = pod("p");
    bad["spec"]["containers"][0]["name"] = "bad".into();
    bad["metadata"]["labels"] = json!({"bad": "yes"});
    assert_eq!(
        denied(http.post(PODS, &bad).await),
        "the pod contains unwanted container name; the pod contains unwanted label"
    );
    let mut hanging = pod("p");
    hanging["spec"]["containers"][0]["name"] = "hang".into();
    let (code, status) = http.post(PODS, &hanging).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(
        message.contains("webhook") && message.contains("deadline"),
        "{message}"
    );
    assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
    let bad = data("m", "test", "disallow");
    assert_eq!(denied(http.post(CONFIG_MAPS, &bad).await), "unwanted data");
    created(&http, CONFIG_MAPS, &data("m", "admit", "this")).await;
    let one = format!("{CONFIG_MAPS}/m");
    assert_eq!(denied(http.put(&one, &bad).await), "unwanted data");
    assert_eq!(denied(http.merge(&one, &bad).await), "unwanted data");
    let skipping = json!({"metadata": {"name": "skipping", "labels": {"skips": "webhooks"}}});
    created(&http, "/api/v1/namespaces", &skipping).await;
    created(&http, "/api/v1/namespaces/skipping/configmaps", &bad).await;
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn webhook_denies_attaching_custom_resources_and_crds() {
    let server = with_program();
    let http = http(&server);
    created(&http, PODS, &pod("closed")).await;
    let hooks = [
        hook("attach", "/attach", "CONNECT /pods/attach"),
        hook("tests", "/data", "CREATE,UPDATE,DELETE example.com/tests"),
        hook(
            "crds",
            "/crds",
            "CREATE apiextensions.k8s.io/customresourcedefinitions",
        ),
    ];
    created(&http, VALIDATING, &configuration("c", &hooks)).await;
    let attach = format!("{PODS}/closed/attach?container=c&stdin=true");
    let attached = http.post(&attach, &json!({})).await;
    assert_eq!(denied(attached), "attaching is not allowed");

    let mut labelled = definition(&["v1"], &Value::Null);
    labelled["metadata"]["labels"] = json!({"test": "disallow"});
    let refused = http.post(DEFINITIONS, &labelled).await;
    assert_eq!(denied(refused), "unwanted label");
    created(&http, DEFINITIONS, &definition(&["v1"], &Value::Null)).await;
    let path = tests("v1");
    let bad = test("v1", "a", "test", "disallow");
    assert_eq!(denied(http.post(&path, &bad).await), "unwanted data");
    created(&http, &path, &test("v1", "b", "test", "nondeletable")).await;
    let one = format!("{path}/b");
    let change = |value: &str| json!({"data": {"test": value}});
    let refused = http.merge(&one, &change("disallow")).await;
    assert_eq!(denied(refused), "unwanted data");
    assert_eq!(denied(http.delete(&one).await), "cannot be deleted");
    assert_eq!(http.merge(&one, &change("allow")).await.0, 200);
    assert_eq!(http.delete(&one).await.0, 200);
}

/// Proves admission/failure-policy.
#[tokio::test]
async fn webhook_that_cannot_be_called_fails_closed() {
    let server = server();
    let http = http(&server);
    let mut closed = hook("closed", "/data", "CREATE /configmaps");
    closed["namespaceSelector"] = json!({"matchLabels": {"closed": "yes"}});
    created(&http, VALIDATING, &configuration("c", &[closed])).await;
    let namespace = json!({"metadata": {"name": "closed", "labels": {"closed": "yes"}}});
    created(&http, "/api/v1/namespaces", &namespace).await;
    let path = "/api/v1/namespaces/closed/configmaps";
    let (code, status) = http.post(path, &config_map("a")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    created(&http, CONFIG_MAPS, &config_map("a")).await;
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn webhooks_mutate_in_order_and_defaults_follow() {
    let server = with_program();
    let http = http(&server);
    let hooks = [
        hook("one", "/stages", "CREATE,UPDATE */*"),
        hook("two", "/stages", "CREATE,UPDATE */*"),
        hook("init", "/init", "CREATE /pods"),
    ];
    created(&http, MUTATING, &configuration("c", &hooks)).await;
    let map = created(&http, CONFIG_MAPS, &data("m", "mutation-start", "yes")).await;
    let both =
        json!({"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"});
    assert_eq!(map["data"], both);
    let pod = created(&http, PODS, &pod("p")).await;
    let added = &pod["spec"]["initContainers"][0];
    assert_eq!(
        (&added["name"], &added["terminationMessagePolicy"]),
        (&json!("added"), &json!("File"))
    );

    // Custom resources are mutated, and can be patched after the storage version changes.
    created(&http, DEFINITIONS, &definition(&["v1", "v2"], &Value::Null)).await;
    let sent = test("v1", "a", "mutation-start", "yes");
    let stored = created(&http, &tests("v1"), &sent).await;
    assert_eq!(stored["data"], both);
    let switch = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
    let path = format!("{DEFINITIONS}/tests.example.com");
    let media = "application/json-patch+json";
    let (code, status) = http.raw("PATCH", &path, media, switch.to_string()).await;
    assert_eq!(code, 200, "{status}");
    let one = format!("{}/a", tests("v1"));
    let (code, patched) = http.merge(&one, &json!({"data": {"dummy": "test"}})).await;
    assert_eq!((code, &patched["data"]["dummy"]), (200, &json!("test")));
    assert_eq!(http.delete(&path).await.0, 200);

    // Fields that the schema does not know are pruned.
    let text = json!({"type": "string"});
    let known = json!({"mutation-start": text, "mutation-stage-1": text});
    created(&http, DEFINITIONS, &definition(&["v1"], &known)).await;
    let pruned = created(&http, &tests("v1"), &sent).await;
    let one = json!({"mutation-start": "yes", "mutation-stage-1": "yes"});
    assert_eq!(pruned["data"], one);
}

/// Proves admission/exempt.
#[tokio::test(start_paused = true)]
async fn webhooks_for_configurations_are_never_called() {
    let server = with_program();
    let http = http(&server);
    let all = "admissionregistration.k8s.io/*";
    let deny = hook("deny", "/deny", &format!("DELETE {all}"));
    let label = hook("label", "/label", &format!("CREATE {all}"));
    created(&http, VALIDATING, &configuration("blocks", &[deny])).await;
    created(&http, MUTATING, &configuration("blocks", &[label])).await;
    for path in [VALIDATING, MUTATING] {
        let hook = hook("dummy", "", "CREATE /invalid");
        let stored = created(&http, path, &configuration("dummy", &[hook])).await;
        assert_eq!(stored["metadata"]["labels"], json!({"suite": "acceptance"}));
        assert_eq!(http.delete(&format!("{path}/dummy")).await.0, 200);
    }
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn webhook_timeouts_are_honored() {
    let server = with_program();
    let http = http(&server);
    for (policy, timeout, code, seconds) in [
        ("Fail", json!(1), 500, 1),
        ("Ignore", json!(1), 201, 1),
        ("Fail", json!(10), 201, 5),
        ("Fail", Value::Null, 201, 5),
    ] {
        let mut slow = hook("slow", "/slow", "CREATE /configmaps");
        slow["failurePolicy"] = policy.into();
        slow["timeoutSeconds"] = timeout.clone();
        created(&http, VALIDATING, &configuration("c", &[slow])).await;
        let start = tokio::time::Instant::now();
        let (found, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(
            (found, start.elapsed().as_secs()),
            (code, seconds),
            "{policy} {timeout}: {status}"
        );
        http.delete(&format!("{CONFIG_MAPS}/a")).await;
        assert_eq!(http.delete(&format!("{VALIDATING}/c")).await.0, 200);
    }
}

/// Proves webhook-calls/https.
#[tokio::test(start_paused = true)]
async fn changed_configurations_apply_immediately() {
    let server = with_program();
    let http = http(&server);
    let bad = data("m", "test", "disallow");
    let start = data("m", "mutation-start", "yes");
    let deny = configuration("c", &[hook("deny", "/data", "CREATE /configmaps")]);
    let stage = configuration("c", &[hook("stage", "/stages", "CREATE /configmaps")]);
    created(&http, VALIDATING, &deny).await;
    created(&http, MUTATING, &stage).await;
    let try_both = async || {
        let denied = http.post(CONFIG_MAPS, &bad).await.0 == 400;
        http.delete(&format!("{CONFIG_MAPS}/m")).await;
        let (_, stored) = http.post(CONFIG_MAPS, &start).await;
        http.delete(&format!("{CONFIG_MAPS}/m")).await;
        (denied, stored["data"]["mutation-stage-1"] == "yes")
    };
    assert_eq!(try_both().await, (true, true));
    for path in [VALIDATING, MUTATING] {
        let one = format!("{path}/c");
        let (_, mut stored) = http.get(&one).await;
        stored["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
        assert_eq!(http.put(&one, &stored).await.0, 200);
    }
    assert_eq!(try_both().await, (false, false));
    let create = json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations",
        "value": ["CREATE"]}]);
    for path in [VALIDATING, MUTATING] {
        let media = "application/json-patch+json";
        let one = format!("{path}/c");
        let (code, _) = http.raw("PATCH", &one, media, create.to_string()).await;
        assert_eq!(code, 200);
    }
    assert_eq!(try_both().await, (true, true));

    // Deleting a collection removes all of its configurations.
    for i in 0..10 {
        let mut more = deny.clone();
        more["metadata"]["name"] = format!("more-{i}").into();
        created(&http, VALIDATING, &more).await;
        more["webhooks"] = stage["webhooks"].clone();
        created(&http, MUTATING, &more).await;
    }
    for path in [VALIDATING, MUTATING] {
        let selected = format!("{path}?labelSelector=suite%3Dacceptance");
        let (_, list) = http.get(&selected).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 11);
        assert_eq!(http.delete(&selected).await.0, 200);
    }
    assert_eq!(try_both().await, (false, false));
}

/// Proves admission/matching, admission/configuration.
#[tokio::test(start_paused = true)]
async fn match_conditions_are_stored_checked_and_applied() {
    let server = with_program();
    let http = http(&server);
    let condition = |expression: &str| json!([{"name": "c", "expression": expression}]);
    for (path, program) in [(VALIDATING, "/data"), (MUTATING, "/stages")] {
        let mut hook = hook("c", program, "CREATE /configmaps");
        hook["matchConditions"] = condition("... [] bad expression");
        let (code, status) = http.post(path, &configuration("c", &[hook.clone()])).await;
        assert_eq!(code, 422, "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("compilation failed"), "{message}");
        hook["matchConditions"] = condition("true");
        created(&http, path, &configuration("c", &[hook])).await;
        let one = format!("{path}/c");
        let (_, mut stored) = http.get(&one).await;
        let skips = condition("object.metadata.name != 'skip-me'");
        stored["webhooks"][0]["matchConditions"] = skips.clone();
        assert_eq!(http.put(&one, &stored).await.0, 200);
        let (_, stored) = http.get(&one).await;
        assert_eq!(stored["webhooks"][0]["matchConditions"], skips);
    }
    let map = created(&http, CONFIG_MAPS, &data("m", "mutation-start", "yes")).await;
    assert_eq!(map["data"]["mutation-stage-1"], "yes");
    let skipped = created(
        &http,
        CONFIG_MAPS,
        &data("skip-me", "mutation-start", "yes"),
    )
    .await;
    assert_eq!(skipped["data"], json!({"mutation-start": "yes"}));
}
