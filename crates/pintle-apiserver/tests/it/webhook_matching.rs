//! Which writes a webhook is called for: rules, scopes, selectors and match conditions.

use std::sync::{Arc, Mutex};

use pintle_apiserver::{AdmissionResponse, ApiServer, Webhook, WebhookRegistration};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, DEPLOYMENTS, Http, PODS, config_map, http, server};

const NAMESPACES: &str = "/api/v1/namespaces";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// The calls of a webhook, as `OPERATION resource/subresource name`.
struct Calls {
    seen: Arc<Mutex<Vec<String>>>,
    _registration: WebhookRegistration,
}

impl Calls {
    /// Registers a validating webhook with these fields of a configuration.
    fn of(server: &ApiServer, fields: &Value) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let mut webhook = Webhook::validating("calls.example.com", move |request| {
            let sub = request.subresource();
            let slash = if sub.is_empty() { "" } else { "/" };
            let (operation, resource) = (request.operation(), request.resource());
            let line = format!("{operation} {resource}{slash}{sub} {}", request.name());
            record.lock().unwrap().push(line);
            async { AdmissionResponse::allow() }
        });
        for (name, value) in fields.as_object().unwrap() {
            webhook = webhook.field(name, value.clone());
        }
        Self {
            seen,
            _registration: server.register_webhook(&webhook).unwrap(),
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// Returns the rule for all operations on these resources of the core group.
fn rule(resources: &[&str]) -> Value {
    json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": resources}])
}

async fn ok(response: impl Future<Output = (u16, Value)>) -> Value {
    let (code, body) = response.await;
    assert!((200..300).contains(&code), "{code}: {body}");
    body
}

/// Makes writes that differ in operation, resource and scope.
async fn write_everything(http: &Http) {
    let containers = json!([{"name": "c", "image": "x"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector":
        {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": containers}}}});
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    ok(http.post(CONFIG_MAPS, &config_map("a"))).await;
    ok(http.merge(&format!("{CONFIG_MAPS}/a"), &label)).await;
    ok(http.delete(&format!("{CONFIG_MAPS}/a"))).await;
    ok(http.post(PODS, &pod)).await;
    let status = json!({"status": {"reason": "x"}});
    ok(http.merge(&format!("{PODS}/p/status"), &status)).await;
    ok(http.post(DEPLOYMENTS, &deployment)).await;
    let scale = json!({"spec": {"replicas": 3}});
    ok(http.merge(&format!("{DEPLOYMENTS}/d/scale"), &scale)).await;
    ok(http.post(NAMESPACES, &json!({"metadata": {"name": "n"}}))).await;
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    ok(http.post(CLUSTER_ROLES, &role)).await;
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn rules_name_operations_resources_and_scope() {
    let all = ["*"].as_slice();
    for (operations, group, version, resources, scope, expected) in [
        (
            ["CREATE"].as_slice(),
            "",
            "v1",
            ["configmaps"].as_slice(),
            "*",
            ["CREATE configmaps a"].as_slice(),
        ),
        (
            &["UPDATE", "DELETE"],
            "",
            "*",
            &["configmaps"],
            "*",
            &["UPDATE configmaps a", "DELETE configmaps a"],
        ),
        (all, "*", "*", &["pods"], "*", &["CREATE pods p"]),
        (
            all,
            "*",
            "*",
            &["pods/status"],
            "*",
            &["UPDATE pods/status p"],
        ),
        (
            all,
            "*",
            "*",
            &["pods/*"],
            "*",
            &["CREATE pods p", "UPDATE pods/status p"],
        ),
        (all, "apps", "*", &["*"], "*", &["CREATE deployments d"]),
        (all, "", "*", &["deployments"], "*", &[]),
        (all, "apps", "v2", &["deployments"], "*", &[]),
        (
            all,
            "*",
            "*",
            &["*/scale"],
            "*",
            &["UPDATE deployments/scale d"],
        ),
        (
            all,
            "*",
            "*",
            &["*"],
            "Cluster",
            &["CREATE namespaces n", "CREATE clusterroles r"],
        ),
        (
            all,
            "*",
            "*",
            &["*"],
            "Namespaced",
            &[
                "CREATE configmaps a",
                "UPDATE configmaps a",
                "DELETE configmaps a",
                "CREATE pods p",
                "CREATE deployments d",
            ],
        ),
    ] {
        let server = server();
        let rules = json!([{"operations": operations, "apiGroups": [group],
            "apiVersions": [version], "resources": resources, "scope": scope}]);
        let calls = Calls::of(&server, &json!({"rules": rules}));
        write_everything(&http(&server)).await;
        assert_eq!(calls.take(), expected, "{rules}");
    }
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn namespaces_are_selected_by_their_own_labels() {
    let server = server();
    let http = http(&server);
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["namespaces", "clusterroles"]}]);
    let selector = json!({"matchLabels": {"team": "blue"}});
    let calls = Calls::of(
        &server,
        &json!({"rules": rules, "namespaceSelector": selector}),
    );
    let namespace =
        |name: &str, team: &str| json!({"metadata": {"name": name, "labels": {"team": team}}});
    let team = |team: &str| json!({"metadata": {"labels": {"team": team}}});
    ok(http.post(NAMESPACES, &namespace("one", "blue"))).await;
    ok(http.post(NAMESPACES, &namespace("two", "red"))).await;
    assert_eq!(calls.take(), ["CREATE namespaces one"]);
    // Updates are selected by the new labels, deletes by the stored ones.
    ok(http.merge(&format!("{NAMESPACES}/one"), &team("red"))).await;
    ok(http.merge(&format!("{NAMESPACES}/two"), &team("blue"))).await;
    assert_eq!(calls.take(), ["UPDATE namespaces two"]);
    ok(http.delete(&format!("{NAMESPACES}/one"))).await;
    ok(http.delete(&format!("{NAMESPACES}/two"))).await;
    assert_eq!(calls.take(), ["DELETE namespaces two"]);
    // Other cluster-scoped objects have no namespace and are never exempt.
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    ok(http.post(CLUSTER_ROLES, &role)).await;
    assert_eq!(calls.take(), ["CREATE clusterroles r"]);
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn namespace_selector_needs_the_namespace_to_exist() {
    let server = server();
    let http = http(&server);
    let calls = Calls::of(
        &server,
        &json!({"rules": rule(&["pods/exec"]),
            "namespaceSelector": {"matchLabels": {"team": "blue"}}}),
    );
    // Nothing else looks up the namespace of a connect.
    let exec = "/api/v1/namespaces/missing/pods/p/exec?command=ls";
    let (code, status) = http.post(exec, &json!({})).await;
    assert_eq!(code, 404);
    assert_eq!(status["message"], "namespaces \"missing\" not found");
    // A webhook that does not match the connect does not need the namespace.
    let attach = "/api/v1/namespaces/missing/pods/p/attach";
    let (_, status) = http.post(attach, &json!({})).await;
    assert_eq!(status["message"], "pods \"p\" not found");
    assert!(calls.take().is_empty());
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn object_selector_considers_the_old_object() {
    let server = server();
    let http = http(&server);
    let rules = rule(&["configmaps"]);
    let front = json!({"matchLabels": {"tier": "front"}});
    let calls = Calls::of(&server, &json!({"rules": rules, "objectSelector": front}));
    let mut map = config_map("a");
    map["metadata"]["labels"] = json!({"tier": "front"});
    let path = format!("{CONFIG_MAPS}/a");
    ok(http.post(CONFIG_MAPS, &map)).await;
    ok(http.merge(&path, &json!({"metadata": {"labels": {"tier": "back"}}}))).await;
    assert_eq!(calls.take(), ["CREATE configmaps a", "UPDATE configmaps a"]);
    ok(http.merge(&path, &json!({"data": {"k": "w"}}))).await;
    assert!(calls.take().is_empty(), "neither object has the label");
    drop(calls);
    // A delete has no new object, which is not the same as one without labels.
    let absent = json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]});
    let calls = Calls::of(&server, &json!({"rules": rules, "objectSelector": absent}));
    ok(http.delete(&path)).await;
    assert!(calls.take().is_empty());
    ok(http.post(CONFIG_MAPS, &config_map("b"))).await;
    ok(http.delete(&format!("{CONFIG_MAPS}/b"))).await;
    assert_eq!(calls.take(), ["CREATE configmaps b", "DELETE configmaps b"]);
}

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn failing_condition_follows_the_failure_policy() {
    let server = server();
    let http = http(&server);
    let conditions = |expressions: &[&str]| -> Value {
        let entries = expressions.iter().enumerate();
        entries
            .map(|(i, expression)| json!({"name": format!("c{i}"), "expression": expression}))
            .collect()
    };
    let broken = "object.spec.replicas > 1";
    let other = "object.status.x == 1";
    let map = config_map("a");
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    for (expressions, errors) in [
        ([broken].as_slice(), 1),
        (&["true", broken], 1),
        (&[broken, other], 2),
        // A false condition takes precedence over errors in others.
        (&[broken, "false"], 0),
        (&["false", broken], 0),
    ] {
        let fields = |policy: &str| {
            json!({"rules": rule(&["configmaps"]), "failurePolicy": policy,
                "matchConditions": conditions(expressions)})
        };
        let calls = Calls::of(&server, &fields("Fail"));
        let (code, status) = http.post(&dry, &map).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert_eq!(code, if errors == 0 { 201 } else { 403 }, "{status}");
        assert_eq!(message.matches("' resulted in error: ").count(), errors);
        assert_eq!(message.contains(": [expression '"), errors > 1, "{message}");
        assert!(calls.take().is_empty(), "{expressions:?}");
        drop(calls);
        let calls = Calls::of(&server, &fields("Ignore"));
        ok(http.post(&dry, &map)).await;
        assert!(calls.take().is_empty(), "{expressions:?}");
    }
    for (expression, found) in [("1 + 1", "int"), ("object.data.k", "dyn")] {
        let number = Webhook::validating("number.example.com", |_| async {
            AdmissionResponse::allow()
        })
        .field("matchConditions", conditions(&[expression]));
        let error = server.register_webhook(&number).unwrap_err().to_string();
        let why = format!("must evaluate to bool but got {found}");
        assert!(error.ends_with(&why), "{error}");
    }
}

/// The number of keys at which one condition with three nested loops stays within its limit, but
/// four such conditions exceed their common limit.
const FITS: usize = 60;

/// Proves admission/matching.
#[tokio::test(start_paused = true)]
async fn condition_sees_both_objects_and_has_a_budget() {
    let server = server();
    let http = http(&server);
    let fields = |expressions: &[&str]| {
        let entries = expressions.iter().enumerate();
        let conditions: Value = entries
            .map(|(i, expression)| json!({"name": format!("c{i}"), "expression": expression}))
            .collect();
        json!({"rules": rule(&["configmaps"]), "matchConditions": conditions})
    };
    ok(http.post(CONFIG_MAPS, &config_map("a"))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let changes = "oldObject != null && oldObject.data.k != object.data.k";
    let calls = Calls::of(&server, &fields(&[changes]));
    ok(http.merge(&path, &json!({"metadata": {"labels": {"x": "y"}}}))).await;
    assert!(calls.take().is_empty());
    ok(http.merge(&path, &json!({"data": {"k": "w"}}))).await;
    assert_eq!(calls.take(), ["UPDATE configmaps a"]);
    drop(calls);

    let map = |keys: usize| {
        let data: Value = (0..keys).map(|i| (format!("k{i}"), json!("v"))).collect();
        json!({"metadata": {"name": "m"}, "data": data})
    };
    let d = "object.data";
    let cubic = format!("{d}.all(a, {d}.all(b, {d}.all(c, a != '')))");
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    let calls = Calls::of(&server, &fields(&[&cubic]));
    assert_eq!(
        http.post(&dry, &map(80)).await.0,
        403,
        "one condition is too expensive"
    );
    ok(http.post(&dry, &map(FITS))).await;
    assert_eq!(calls.take(), ["CREATE configmaps m"]);
    drop(calls);
    // Each of them fits, all together do not.
    let calls = Calls::of(&server, &fields(&[cubic.as_str(); 4]));
    assert_eq!(http.post(&dry, &map(FITS)).await.0, 403);
    assert!(calls.take().is_empty());
}
