//! Limits on the cost of a request: nesting, size, CEL rules, and the history retained for watches.

use crate::support::*;
use http_body_util::{BodyExt as _, Full};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Returns a CRD whose instances may hold anything.
fn open_definition() -> Value {
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition
}

/// Nests `levels` containers around `leaf`; every `nth` is a list, the others are objects.
fn nested(levels: usize, nth: usize, leaf: &Value) -> Value {
    (1..=levels).fold(leaf.clone(), |inner, level| {
        if level % nth == 0 {
            json!([inner])
        } else {
            json!({ "x": inner })
        }
    })
}

/// Proves errors/depth.
#[tokio::test(start_paused = true)]
async fn every_stored_object_can_be_read_again() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &open_definition()).await;
    let mut rejected = 0;
    let leaves = [json!({}), json!([]), json!(1)];
    // Fields of objects are tracked individually in managedFields, which nests too; lists are not.
    let shapes = leaves
        .iter()
        .flat_map(|leaf| [1, 2, usize::MAX].map(|nth| (leaf, nth)));
    for (leaf, nth) in shapes {
        for levels in 118..=129 {
            let value = nested(levels, nth, leaf);
            let whole = json!({"apiVersion": "example.com/v1", "kind": "Foo",
                "metadata": {"name": "a"}, "spec": {"replicas": 1}, "deep": value});
            let apply = format!("{FOOS}/a?fieldManager=me&force=true");
            let add = json!([{"op": "add", "path": "/deep", "value": value}]);
            let merge = json!({"deep": value});
            for (method, path, kind, body) in [
                ("POST", FOOS, "application/json", &whole),
                ("POST", FOOS, "application/yaml", &whole),
                ("PUT", &format!("{FOOS}/a"), "application/json", &whole),
                (
                    "PATCH",
                    &format!("{FOOS}/a"),
                    "application/json-patch+json",
                    &add,
                ),
                (
                    "PATCH",
                    &format!("{FOOS}/a"),
                    "application/merge-patch+json",
                    &merge,
                ),
                ("PATCH", &apply, "application/apply-patch+yaml", &whole),
            ] {
                if method != "POST" {
                    let (code, before) = http.post(FOOS, &foo("a")).await;
                    assert_eq!(code, 201, "{before}");
                }
                let mut body = body.clone();
                if method == "PUT" {
                    let (_, stored) = http.get(&format!("{FOOS}/a")).await;
                    body["metadata"] = stored["metadata"].clone();
                }
                let what = format!("{method} {kind} of {levels} levels");
                let (code, response) = http.raw(method, path, kind, body.to_string()).await;
                // A later write decodes the stored object.
                let label = json!({"metadata": {"labels": {"seen": "yes"}}});
                http.merge(&format!("{FOOS}/a"), &label).await;
                let (found, stored) = http.get(&format!("{FOOS}/a")).await;
                if code < 300 {
                    assert_eq!(stored["metadata"]["labels"]["seen"], "yes", "{what}");
                    assert_eq!(stored["deep"], value, "{what}");
                    assert_eq!(stored["spec"]["replicas"], 1, "{what}");
                } else {
                    rejected += 1;
                    assert!((400..500).contains(&code), "{what}: {code} {response}");
                    let message = response["message"].as_str().unwrap().to_lowercase();
                    let reasons = ["nest", "deep", "depth", "recursion"];
                    let says_why = reasons.iter().any(|word| message.contains(word));
                    assert!(says_why, "{what}: {message}");
                    let existed = method != "POST";
                    assert_eq!(found, if existed { 200 } else { 404 }, "{what}");
                    assert!(
                        !existed || stored["spec"]["replicas"] == 1,
                        "{what}: {stored}"
                    );
                    assert_eq!(stored.get("deep"), None, "{what}");
                }
                http.delete(&format!("{FOOS}/a")).await;
            }
        }
    }
    assert!(rejected > 0, "the limit is outside the tested range");
}

/// Proves errors/depth.
#[tokio::test]
async fn too_deep_patch_gets_a_reason() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &open_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let deeper = [
        json!({"op": "add", "path": "/outer", "value": {}}),
        json!({"op": "move", "from": "/deep", "path": "/outer/deep"}),
        json!({"op": "move", "from": "/outer", "path": "/deep"}),
    ];
    let mut patch = vec![json!({"op": "add", "path": "/deep", "value": {}})];
    (0..130).for_each(|_| patch.extend(deeper.clone()));
    let (path, media) = (format!("{FOOS}/a"), "application/json-patch+json");
    let body = Value::from(patch).to_string();
    let (code, status) = http.raw("PATCH", &path, media, body).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let why = "the patched object nests deeper than 127 levels";
    assert_eq!(status["message"], why);
    // An operation that does not apply gets the message of kube-apiserver.
    let missing = json!([{"op": "remove", "path": "/none"}]).to_string();
    let (code, status) = http.raw("PATCH", &path, media, missing).await;
    assert_eq!(code, 422);
    let why = "the server rejected our request due to an error in our request";
    assert_eq!(status["message"], why);
}

/// Returns a CRD with one CEL rule on `spec`.
fn with_rule(rule: &str) -> Value {
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
        json!([{"rule": rule, "message": "no"}]);
    definition
}

/// Proves errors/depth.
#[tokio::test(start_paused = true)]
async fn cel_rules_cannot_overflow_the_stack() {
    let server = server();
    let http = http(&server);
    // Each rule is: first, before (repeated), between, behind (repeated), last.
    let shapes = [
        ("sum", ["1", "+1", " > 0", "", ""]),
        ("relation", ["true", " == true", "", "", ""]),
        ("product", ["1", " * 1", " > 0", "", ""]),
        ("select", ["has(dyn(self).a", ".a", ".a)", "", ""]),
        ("call", ["'a'", ".trim()", " == 'a'", "", ""]),
        ("index", ["dyn(self)", "[0]", " == 1", "", ""]),
        ("and", ["true", " && true", "", "", ""]),
        ("or", ["false", " || false", " || true", "", ""]),
        ("not", ["", "!", "true", "", ""]),
        ("minus", ["", "- ", "1 < 2", "", ""]),
        ("ternary", ["", "true ? true : ", "true", "", ""]),
        ("parentheses", ["", "(", "true", ")", ""]),
        ("lists", ["", "[", "1", "]", " != []"]),
        ("maps", ["", "{1:", "1", "}", " != {}"]),
        ("calls", ["", "size([", "1", "])", " == 1"]),
        ("macros", ["", "[1].all(x, ", "true", ")", ""]),
    ];
    for (shape, [first, before, between, behind, last]) in &shapes {
        let rule = |times: usize| {
            let (before, behind) = (before.repeat(times), behind.repeat(times));
            format!("{first}{before}{between}{behind}{last}")
        };
        for times in [40, 240, 300, 40_000] {
            let (code, response) = http.post(DEFINITIONS, &with_rule(&rule(times))).await;
            if code == 422 {
                let field = response["details"]["causes"][0]["field"].as_str().unwrap();
                assert!(
                    field.ends_with("[spec].x-kubernetes-validations[0].rule"),
                    "{shape} {times}: {field}"
                );
            } else {
                assert_eq!(code, 201, "{shape} {times}");
                // An accepted rule can be evaluated.
                let (code, response) = http.post(FOOS, &foo("a")).await;
                assert!(matches!(code, 201 | 422), "{shape} {times}: {response}");
                http.delete(&format!("{DEFINITIONS}/foos.example.com"))
                    .await;
            }
            if times <= 40 {
                assert_eq!(code, 201, "{shape} {times}: {response}");
            }
            if times >= 40_000 && !matches!(*shape, "not" | "minus") {
                assert_eq!(code, 422, "{shape} {times}");
            }
        }
    }
    // Logical operators nest in a balanced tree, however many there are.
    let rule = format!("true{}", " && true".repeat(2_000));
    assert_eq!(http.post(DEFINITIONS, &with_rule(&rule)).await.0, 201);
    assert_eq!(http.post(FOOS, &foo("a")).await.0, 201);
}

/// Proves errors/depth.
#[tokio::test(start_paused = true)]
async fn cel_rule_over_a_limit_names_the_limit() {
    let server = server();
    let http = http(&server);
    for (rule, why) in [
        (
            format!("1{} > 0", "+1".repeat(300)),
            "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded: 250",
        ),
        (
            format!("true{}", " || true".repeat(20_000)),
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 160004, limit 100000",
        ),
    ] {
        let (code, response) = http.post(DEFINITIONS, &with_rule(&rule)).await;
        assert_eq!(code, 422);
        let cause = &response["details"]["causes"][0];
        let message = cause["message"].as_str().unwrap();
        assert!(
            message.ends_with(why),
            "{}",
            &message[message.len() - 200..]
        );
    }
}

/// Proves watch/expired.
#[tokio::test(start_paused = true)]
async fn slow_watcher_expires_but_fast_one_continues() {
    let server = ApiServer::builder()
        .seed(1)
        .history_bytes(64 * 1024)
        .build();
    let http = http(&server);
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"k": "x".repeat(10_000)}})
    };
    http.post(SECRETS, &secret("first")).await;
    http.post(CONFIG_MAPS, &config_map("small")).await;
    let path = format!(
        "{SECRETS}?watch=true&resourceVersion={}",
        server.resource_version()
    );
    let (mut slow, mut fast) = (http.watch(&path).await, http.watch(&path).await);
    for i in 0..20 {
        let name = format!("s{i}");
        assert_eq!(http.post(SECRETS, &secret(&name)).await.0, 201);
        assert_eq!(fast.take(1).await, [format!("ADDED {name}")]);
    }
    let event = slow.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(slow.next().await, None);
    // A new list works.
    let (_, list) = http.get(SECRETS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 21);
    // An object larger than the whole history still reaches current watchers.
    let mut large = secret("large");
    large["stringData"]["k"] = "x".repeat(200_000).into();
    http.post(SECRETS, &large).await;
    assert_eq!(fast.take(1).await, ["ADDED large"]);
}

/// Proves watch/expired.
#[tokio::test(start_paused = true)]
async fn watcher_that_leaves_initial_state_unread_expires() {
    let server = ApiServer::builder().seed(1).history(10).build();
    let http = http(&server);
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"k": "x".repeat(50_000)}})
    };
    for i in 0..8 {
        http.post(SECRETS, &secret(&format!("s{i}"))).await;
    }
    let mut watch = http.watch(&format!("{SECRETS}?watch=true")).await;
    assert_eq!(watch.take(1).await, ["ADDED s0"]);
    for i in 0..20 {
        http.merge(
            &format!("{SECRETS}/s0"),
            &json!({"data": {"n": i.to_string()}}),
        )
        .await;
        http.post(SECRETS, &secret(&format!("t{i}"))).await;
    }
    let mut added = 1;
    let event = loop {
        let event = watch.next().await.unwrap();
        if event["type"] != "ADDED" {
            break event;
        }
        added += 1;
    };
    assert!(added < 8, "the rest of the initial state was sent: {added}");
    assert_eq!(event["object"]["code"], 410, "{event}");
    assert_eq!(watch.next().await, None);
}

/// Proves wire/json.
#[tokio::test(start_paused = true)]
async fn pretty_response_is_sent_in_small_frames() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &open_definition()).await;
    let mut object = foo("a");
    object["deep"] = nested(100, usize::MAX, &json!(vec![1; 20_000]));
    let (code, stored) = http.post(FOOS, &object).await;
    assert_eq!(code, 201, "{stored}");
    for path in [format!("{FOOS}/a"), FOOS.to_owned()] {
        let (_, expected) = http.get(&path).await;
        let request = http::Request::get(format!("{path}?pretty=true"))
            .body(Full::default())
            .unwrap();
        let mut body = http.send(request).await.into_body();
        let (mut text, mut largest) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            largest = largest.max(data.len());
            text.extend_from_slice(&data);
        }
        assert!(text.len() > 4_000_000, "{path}: {}", text.len());
        assert!(largest < 1_000_000, "{path}: {largest}");
        let indented = serde_json::to_vec_pretty(&expected).unwrap();
        assert_eq!(text.len(), indented.len(), "{path}");
        let read: Value = serde_json::from_slice(&text).unwrap();
        assert!(read == expected, "{path}");
    }
}

/// Returns an object with about this many encoded bytes.
fn sized(name: &str, bytes: usize) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name},
        "spec": {"text": "x".repeat(bytes)}})
}

/// Proves wire/size-limits.
#[tokio::test(start_paused = true)]
async fn objects_over_the_etcd_limit_are_rejected() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &open_definition()).await;
    assert_eq!(http.post(FOOS, &sized("fits", 1_500_000)).await.0, 201);
    let large = sized("large", 1_600_000);
    let (code, status) = http.post(FOOS, &large).await;
    assert_eq!(code, 500);
    assert_eq!(status["message"], "etcdserver: request is too large");
    assert_eq!(status["reason"], Value::Null);
    assert_eq!(http.get(&format!("{FOOS}/large")).await.0, 404);
    let (code, status) = http.post(FOOS, &sized("huge", 2_200_000)).await;
    assert_eq!(code, 500);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ("
        ) && message.ends_with(" vs. 2097152)"),
        "{message}"
    );
    // The limit also applies to updates.
    let path = format!("{FOOS}/fits");
    let grow = json!({"spec": {"more": "x".repeat(100_000)}});
    for body in [&large["spec"], &grow["spec"]] {
        let (code, status) = http.merge(&path, &json!({ "spec": body })).await;
        assert_eq!((code, status["code"].as_u64()), (500, Some(500)));
    }
    let (_, stored) = http.get(&path).await;
    assert_eq!(stored["spec"]["text"].as_str().unwrap().len(), 1_500_000);
    assert_eq!(stored["spec"].get("more"), None);
    assert_eq!(http.post(FOOS, &sized("body", 3_200_000)).await.0, 413);
}

/// Proves wire/size-limits.
#[tokio::test(start_paused = true)]
async fn oversized_managed_fields_are_dropped() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &open_definition()).await;
    // Many short fields, whose managedFields are larger than the fields.
    let spec: serde_json::Map<String, Value> = (0..60_000)
        .map(|i| (format!("field{i}"), 1.into()))
        .collect();
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": "a"}, "spec": spec});
    let (code, stored) = http.post(FOOS, &object).await;
    assert_eq!(code, 201);
    assert_eq!(stored["metadata"].get("managedFields"), None);
    assert_eq!(stored["spec"], object["spec"]);
}
