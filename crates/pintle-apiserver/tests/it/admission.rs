//! Admission: webhooks in this process, and which writes they see.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use pintle_apiserver::{
    AdmissionRequest, AdmissionResponse, ApiServer, Webhook, WebhookRegistration,
};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, FOOS, Http, config_map, foo, foo_definition, http, server,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

type Seen = Arc<Mutex<Vec<AdmissionRequest>>>;

/// Registers a validating webhook that records every request and allows it.
fn observe(server: &ApiServer, resources: &'static str) -> (Seen, WebhookRegistration) {
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let webhook = Webhook::validating("observer.example.com", move |request| {
        record.lock().unwrap().push(request);
        async { AdmissionResponse::allow() }
    })
    .rule(["*"], ["*"], ["*"], [resources]);
    (seen, server.register_webhook(&webhook).unwrap())
}

/// Returns the requests as `OPERATION resource/subresource Kind name`, and forgets them.
fn lines(seen: &Seen) -> Vec<String> {
    let mut seen = seen.lock().unwrap();
    let lines = seen.iter().map(|request| {
        let sub = request.subresource();
        let slash = if sub.is_empty() { "" } else { "/" };
        let kind = request.as_value()["kind"]["kind"].as_str().unwrap();
        let (operation, resource) = (request.operation(), request.resource());
        format!(
            "{operation} {resource}{slash}{sub} {kind} {}",
            request.name()
        )
    });
    let lines = lines.collect();
    seen.clear();
    lines
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x"}]}}}})
}

fn label(value: &str) -> Value {
    json!({"op": "add", "path": "/metadata/labels", "value": {"by": value}})
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn every_write_of_an_object_is_admitted() {
    let server = server();
    let http = http(&server);
    let (seen, _webhook) = observe(&server, "*/*");

    http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(lines(&seen), ["CREATE configmaps ConfigMap a"]);
    let one = format!("{CONFIG_MAPS}/a");
    http.put(
        &one,
        &json!({"metadata": {"name": "a"}, "data": {"k": "2"}}),
    )
    .await;
    http.merge(&one, &json!({"data": {"k": "3"}})).await;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
        "data": {"other": "x"}});
    let apply = "application/apply-patch+yaml";
    http.raw(
        "PATCH",
        &format!("{one}?fieldManager=m"),
        apply,
        applied.to_string(),
    )
    .await;
    assert_eq!(lines(&seen), ["UPDATE configmaps ConfigMap a"; 3]);
    let fresh = applied.to_string().replace("\"a\"", "\"b\"");
    let path = format!("{CONFIG_MAPS}/b?fieldManager=m");
    assert_eq!(http.raw("PATCH", &path, apply, fresh).await.0, 201);
    assert_eq!(lines(&seen), ["CREATE configmaps ConfigMap b"]);
    http.delete(&one).await;
    assert_eq!(lines(&seen), ["DELETE configmaps ConfigMap a"]);
    http.post(CONFIG_MAPS, &config_map("c")).await;
    lines(&seen);
    http.delete(CONFIG_MAPS).await;
    assert_eq!(
        lines(&seen),
        ["DELETE configmaps ConfigMap "; 2],
        "the review of a collection names no object"
    );
    let generated = json!({"metadata": {"generateName": "g-"}});
    let (_, created) = http.post(CONFIG_MAPS, &generated).await;
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        lines(&seen),
        [format!("CREATE configmaps ConfigMap {name}")]
    );
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn subresources_are_admitted_with_their_own_kind() {
    let server = server();
    let http = http(&server);
    http.post(PODS, &pod("p")).await;
    http.post(DEPLOYMENTS, &deployment("d")).await;
    http.post(
        "/api/v1/namespaces/default/serviceaccounts",
        &json!({"metadata": {"name": "s"}}),
    )
    .await;
    let (seen, _webhook) = observe(&server, "*/*");

    http.merge(
        &format!("{PODS}/p/status"),
        &json!({"status": {"reason": "x"}}),
    )
    .await;
    assert_eq!(lines(&seen), ["UPDATE pods/status Pod p"]);
    let (code, _) = http
        .merge(
            &format!("{DEPLOYMENTS}/d/scale"),
            &json!({"spec": {"replicas": 3}}),
        )
        .await;
    assert_eq!(code, 200);
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].object()["spec"], json!({"replicas": 3}));
        assert_eq!(seen[0].old_object()["spec"], json!({"replicas": 1}));
        assert_eq!(seen[0].object()["apiVersion"], "autoscaling/v1");
        assert_eq!(seen[0].as_value()["requestSubResource"], "scale");
    }
    assert_eq!(lines(&seen), ["UPDATE deployments/scale Scale d"]);
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "node"}});
    assert_eq!(
        http.post(&format!("{PODS}/p/binding"), &binding).await.0,
        201
    );
    assert_eq!(lines(&seen), ["CREATE pods/binding Binding p"]);
    let token = "/api/v1/namespaces/default/serviceaccounts/s/token";
    assert_eq!(http.post(token, &json!({"spec": {}})).await.0, 201);
    assert_eq!(
        lines(&seen),
        ["CREATE serviceaccounts/token TokenRequest s"]
    );
    // The connection is not served, but policies for it are evaluated.
    let exec = format!("{PODS}/p/exec?command=ls&stdout=true");
    assert_eq!(http.post(&exec, &json!({})).await.0, 501);
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].object()["command"], json!(["ls"]));
    }
    assert_eq!(lines(&seen), ["CONNECT pods/exec PodExecOptions p"]);
    // The deletion behind an eviction is not admitted again.
    let eviction = json!({"metadata": {"name": "p"}});
    assert_eq!(
        http.post(&format!("{PODS}/p/eviction"), &eviction).await.0,
        201
    );
    assert_eq!(lines(&seen), ["CREATE pods/eviction Eviction p"]);
    assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
}

/// Proves admission/request.
#[tokio::test(start_paused = true)]
async fn review_describes_the_write() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let (seen, _webhook) = observe(&server, "configmaps");
    let path = format!("{CONFIG_MAPS}/a?dryRun=All&fieldManager=me");
    http.merge(&path, &json!({"data": {"k": "new"}})).await;
    let request = seen.lock().unwrap().remove(0);
    assert!(request.is_dry_run());
    assert_eq!(request.user(), "kubernetes-admin");
    assert_eq!(request.namespace(), "default");
    assert_eq!(request.object()["data"]["k"], "new");
    assert_eq!(request.old_object()["data"]["k"], "v");
    let value = request.as_value();
    assert_eq!(value["object"]["kind"], "ConfigMap");
    assert_eq!(
        value["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(value["requestResource"]["resource"], "configmaps");
    assert_eq!(
        value["userInfo"]["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!(
        value["options"],
        json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
            "fieldManager": "me"})
    );
    http.delete_with(
        &format!("{CONFIG_MAPS}/a"),
        &json!({"gracePeriodSeconds": 0}),
    )
    .await;
    let request = seen.lock().unwrap().remove(0);
    assert_eq!(request.object(), &Value::Null);
    assert_eq!(request.old_object()["data"]["k"], "v");
    assert_eq!(request.as_value()["options"]["gracePeriodSeconds"], 0);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
        .await;
    assert!(lines(&seen).is_empty(), "the rule names config maps only");
}

/// Proves admission/refusal.
#[tokio::test(start_paused = true)]
async fn denied_write_is_not_stored() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::validating("strict.example.com", |request| async move {
        match request.object()["data"]["k"].as_str() {
            Some("plain") => AdmissionResponse::deny(""),
            Some("coded") => AdmissionResponse::deny("not that")
                .code(422)
                .reason("Invalid"),
            _ => AdmissionResponse::deny("no").warning("careful"),
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let registration = server.register_webhook(&webhook).unwrap();
    let mut map = config_map("a");
    let (code, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!(code, 400, "{status}");
    let denied = "admission webhook \"strict.example.com\" denied the request";
    assert_eq!(status["message"], format!("{denied}: no"));
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
    map["data"]["k"] = "plain".into();
    let (_, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!(status["message"], format!("{denied} without explanation"));
    map["data"]["k"] = "coded".into();
    let (code, status) = http.post(CONFIG_MAPS, &map).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(status["message"], format!("{denied}: not that"));
    drop(registration);
    assert_eq!(http.post(CONFIG_MAPS, &map).await.0, 201);
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn patched_object_is_decoded_and_validated() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let patch = Arc::new(Mutex::new(json!([])));
    let current = Arc::clone(&patch);
    let webhook = Webhook::mutating("patch.example.com", move |_| {
        let patch = current.lock().unwrap().clone();
        async { AdmissionResponse::allow().patch(patch) }
    })
    .rule(["CREATE"], ["*"], ["*"], ["foos", "pods"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let set = |value: Value| *patch.lock().unwrap() = value;

    set(json!([label("webhook"), {"op": "add", "path": "/spec/unknown", "value": 1}]));
    let (code, created) = http.post(FOOS, &foo("a")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["metadata"]["labels"], json!({"by": "webhook"}));
    assert_eq!(
        created["spec"],
        json!({"deploymentName": "a", "replicas": 1})
    );
    // The schema has the last word.
    set(json!([{"op": "replace", "path": "/spec/replicas", "value": 11}]));
    let (code, status) = http.post(FOOS, &foo("b")).await;
    assert_eq!(code, 422, "{status}");
    // Built-in kinds get the defaults of what was added.
    set(json!([{"op": "add", "path": "/spec/containers/-",
        "value": {"name": "sidecar", "image": "proxy:1"}}]));
    let (code, created) = http.post(PODS, &pod("p")).await;
    assert_eq!(code, 201, "{created}");
    let sidecar = &created["spec"]["containers"][1];
    assert_eq!(sidecar["imagePullPolicy"], "IfNotPresent");
    set(json!([{"op": "replace", "path": "/spec/missing/path", "value": 1}]));
    let (code, status) = http.post(PODS, &pod("q")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    set(json!([{"op": "add", "path": "/spec/containers", "value": "none"}]));
    assert_eq!(http.post(PODS, &pod("q")).await.0, 500);
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn mutated_scale_changes_the_object_behind_it() {
    let server = server();
    let http = http(&server);
    http.post(DEPLOYMENTS, &deployment("d")).await;
    let webhook = Webhook::mutating("scale.example.com", |_| async {
        let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]);
        AdmissionResponse::allow().patch(patch)
    })
    .rule(["UPDATE"], ["apps"], ["v1"], ["deployments/scale"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let path = format!("{DEPLOYMENTS}/d");
    let (_, scale) = http
        .merge(
            &format!("{path}/scale"),
            &json!({"spec": {"replicas": 100}}),
        )
        .await;
    assert_eq!(scale["spec"]["replicas"], 2);
    assert_eq!(http.get(&path).await.1["spec"]["replicas"], 2);
}

/// Returns a mutating webhook that appends its name to an annotation, and counts its calls.
fn appending(name: &'static str, calls: &Arc<AtomicUsize>) -> Webhook {
    let calls = Arc::clone(calls);
    Webhook::mutating(format!("{name}.example.com"), move |request| {
        calls.fetch_add(1, Ordering::SeqCst);
        let before = request.object()["metadata"]["annotations"]["trace"].as_str();
        let trace = format!("{}{name}", before.unwrap_or_default());
        async move {
            let patch = json!([{"op": "add", "path": "/metadata/annotations",
                "value": {"trace": trace}}]);
            AdmissionResponse::allow().patch(patch)
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
}

/// Proves admission/reinvocation.
#[tokio::test(start_paused = true)]
async fn webhook_is_reinvoked_once_if_a_later_one_changes_the_object() {
    let server = server();
    let http = http(&server);
    let (first, second, third) = (Arc::default(), Arc::default(), Arc::default());
    let if_needed = || json!("IfNeeded");
    let _a =
        server.register_webhook(&appending("a", &first).field("reinvocationPolicy", if_needed()));
    let _b = server.register_webhook(&appending("b", &second));
    let _c =
        server.register_webhook(&appending("c", &third).field("reinvocationPolicy", if_needed()));
    let (_, created) = http.post(CONFIG_MAPS, &config_map("m")).await;
    // `a` runs again after `b` and `c`; `c` after the second run of `a`; `b` did not ask for it.
    assert_eq!(created["metadata"]["annotations"]["trace"], "abcac");
    let calls = [&first, &second, &third].map(|calls| calls.load(Ordering::SeqCst));
    assert_eq!(calls, [2, 1, 2]);
}

/// Proves admission/failure-policy.
#[tokio::test(start_paused = true)]
async fn failing_webhook_refuses_or_is_ignored() {
    let server = server();
    let http = http(&server);
    let panicking = |name: &str| {
        Webhook::validating(name, |_| async { panic!("oops") }).rule(
            ["CREATE"],
            [""],
            ["v1"],
            ["configmaps"],
        )
    };
    let registration = server
        .register_webhook(&panicking("panics.example.com"))
        .unwrap();
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert_eq!(
        status["message"],
        "Internal error occurred: failed calling webhook \"panics.example.com\": failed to call \
         webhook: the webhook panicked"
    );
    drop(registration);
    let ignored = panicking("ignored.example.com").ignore_failures();
    let _webhook = server.register_webhook(&ignored).unwrap();
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn slow_webhook_times_out_and_blocks_no_other_request() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::validating("slow.example.com", |_| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        AdmissionResponse::allow()
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .timeout(Duration::from_secs(3));
    let _webhook = server.register_webhook(&webhook).unwrap();
    let start = tokio::time::Instant::now();
    let map = config_map("a");
    let slow = http.post(CONFIG_MAPS, &map);
    let other = async {
        let mut watch = http
            .watch("/api/v1/namespaces/default/secrets?watch=true")
            .await;
        let secret = json!({"metadata": {"name": "s"}});
        let (code, _) = http
            .post("/api/v1/namespaces/default/secrets", &secret)
            .await;
        assert_eq!(
            (code, watch.take(1).await),
            (201, vec!["ADDED s".to_owned()])
        );
        start.elapsed()
    };
    let ((code, status), others) = tokio::join!(slow, other);
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "Internal error occurred: failed calling webhook \"slow.example.com\": failed to call \
         webhook: context deadline exceeded"
    );
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(others, Duration::ZERO);
}

/// A webhook that writes what it is called for would call itself forever. The limit of concurrent
/// calls and the timeout end that.
///
/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn webhook_that_calls_itself_ends() {
    let server = server();
    let depth = Arc::new(AtomicUsize::new(0));
    let (service, count) = (server.service(), Arc::clone(&depth));
    let webhook = Webhook::validating("loop.example.com", move |_| {
        let (service, count) = (service.clone(), Arc::clone(&count));
        async move {
            let name = format!("n{}", count.fetch_add(1, Ordering::SeqCst));
            let request = Request::post(CONFIG_MAPS)
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(config_map(&name).to_string())))
                .unwrap();
            let response = tower::ServiceExt::oneshot(service, request).await.unwrap();
            match response.status().as_u16() {
                201 => AdmissionResponse::allow(),
                code => AdmissionResponse::deny(format!("inner write: {code}")),
            }
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .timeout(Duration::from_secs(1));
    let registration = server.register_webhook(&webhook).unwrap();
    let http = http(&server);
    let start = tokio::time::Instant::now();
    let map = config_map("a");
    let others = async {
        let secrets = "/api/v1/namespaces/default/secrets";
        let mut watch = http.watch(&format!("{secrets}?watch=true")).await;
        for i in 0..20 {
            let name = format!("s{i}");
            let (code, _) = http
                .post(secrets, &json!({"metadata": {"name": name}}))
                .await;
            assert_eq!(code, 201);
            assert_eq!(watch.take(1).await, [format!("ADDED {name}")]);
        }
        start.elapsed()
    };
    let ((code, _), waited) = tokio::join!(http.post(CONFIG_MAPS, &map), others);
    assert!(code >= 400, "{code}");
    assert_eq!(waited, Duration::ZERO, "no other request waits for it");
    let depth = depth.load(Ordering::SeqCst);
    assert!((10..=64).contains(&depth), "{depth}");
    drop(registration);
}

/// Proves admission/dry-run.
#[tokio::test(start_paused = true)]
async fn dry_run_skips_no_webhook_with_side_effects() {
    let server = server();
    let http = http(&server);
    // In the API only `None` and `NoneOnDryRun` can be stored, so an old one is simulated.
    let webhook = Webhook::validating("effects.example.com", |_| async {
        AdmissionResponse::allow()
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let refused = server.register_webhook(&webhook.field("sideEffects", json!("Some")));
    let error = refused.unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid webhook: sideEffects: Unsupported value: \"Some\": supported values: \"None\", \
         \"NoneOnDryRun\""
    );
    let (seen, _webhook) = observe(&server, "configmaps");
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    assert_eq!(http.post(&path, &config_map("a")).await.0, 201);
    assert!(seen.lock().unwrap()[0].is_dry_run());
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
}

/// Writes a config map under each variation and returns which of them the webhook saw.
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

/// Proves admission/builder.
#[tokio::test(start_paused = true)]
async fn webhook_of_the_builder_is_there_from_the_start() {
    let webhook = Webhook::validating("built.example.com", |_| async {
        AdmissionResponse::deny("built in")
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let server = ApiServer::builder().webhook(&webhook).unwrap().build();
    let (code, status) = http(&server).post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 400, "{status}");
    let short = Webhook::validating("short", |_| async { AdmissionResponse::allow() });
    let error = ApiServer::builder().webhook(&short).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid webhook: name: Invalid value: \"short\": should be a domain with at least three \
         segments separated by dots"
    );
}
