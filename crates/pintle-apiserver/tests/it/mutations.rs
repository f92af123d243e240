//! Property tests with damaged copies of requests that clients really send: no request makes the
//! server panic, a rejected one stores nothing, and every stored object can be read and written
//! back.

use crate::support::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

/// Method, path, content type, body.
type Real = (&'static str, &'static str, &'static str, Value);

fn full_deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "volumes": [{"name": "v", "configMap": {"name": "c"}}],
                "containers": [{"name": "main", "image": "nginx:1",
                    "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}],
                    "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                    "livenessProbe": {"httpGet": {"port": "http", "path": "/"}}}]}}},
    })
}

/// Requests of kubectl and typed clients.
fn real_requests() -> Vec<Real> {
    let json = "application/json";
    let strategic = "application/strategic-merge-patch+json";
    let merge = "application/merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let web = "/apis/apps/v1/namespaces/default/deployments/web";
    let applied = "/apis/apps/v1/namespaces/default/deployments/web?fieldManager=m&force=true";
    let pods = "/api/v1/namespaces/default/pods";
    vec![
        ("POST", DEPLOYMENTS, json, full_deployment()),
        ("PUT", web, json, full_deployment()),
        ("PATCH", applied, apply, full_deployment()),
        ("POST", DEFINITIONS, json, foo_definition()),
        ("POST", FOOS, json, foo("b")),
        (
            "PATCH",
            "/apis/example.com/v1/namespaces/default/foos/a?fieldManager=m&force=true",
            apply,
            foo("a"),
        ),
        (
            "PATCH",
            web,
            strategic,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/f"]},
                "spec": {"template": {"spec": {
                    "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
                    "containers": [{"name": "side", "image": "s"}, {"name": "main", "image": "m",
                        "env": [{"name": "A", "$patch": "delete"}],
                        "resources": {"$patch": "replace", "limits": {"cpu": 1}}}]}},
                    "strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        ),
        (
            "PATCH",
            web,
            "application/json-patch+json",
            json!([{"op": "test", "path": "/spec/replicas", "value": 2},
                {"op": "copy", "from": "/metadata/labels", "path": "/spec/template/metadata/labels"},
                {"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"},
                {"op": "replace", "path": "/spec/replicas", "value": 3}]),
        ),
        (
            "PATCH",
            web,
            merge,
            json!({"spec": {"replicas": 3, "paused": null}}),
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/default/deployments/web/scale",
            merge,
            json!({"spec": {"replicas": 5}}),
        ),
        (
            "PUT",
            "/apis/apps/v1/namespaces/default/deployments/web/status",
            json,
            json!({"metadata": {"name": "web"}, "status": {"replicas": 1,
                "conditions": [{"type": "Available", "status": "True"}]}}),
        ),
        (
            "DELETE",
            web,
            json,
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground",
                "preconditions": {"uid": "x"}, "gracePeriodSeconds": 0, "dryRun": ["All"]}),
        ),
        (
            "POST",
            pods,
            json,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json,
            json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
        (
            "POST",
            "/api/v1/namespaces/default/services",
            json,
            json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort",
                "ports": [{"port": 80, "targetPort": "http", "nodePort": 30080}]}}),
        ),
    ]
}

/// A way to damage one value in a body.
#[derive(Debug, Clone)]
enum Damage {
    Replace(Value),
    Remove,
    /// Repeats a list item, or a key of an object with this value.
    Twice(Value),
    Rename(String),
}

/// Marks a duplicate key until the body is encoded: a `Value` cannot hold duplicates, text can.
const AGAIN: &str = "\u{1}again";

/// Encodes a damaged body.
fn text(body: &Value) -> String {
    body.to_string().replace("\\u0001again\"", "\"")
}

fn damage() -> impl Strategy<Value = Damage> {
    let odd = prop::sample::select(vec![
        json!(null),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(true),
        json!(""),
        json!("0"),
        json!("\u{0}\u{feff}é"),
        json!("x".repeat(300)),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"": {"": null}}),
        json!([null, 1, "a", {"name": null}]),
        json!({"$patch": "delete"}),
        json!({"$patch": "replace", "name": "x"}),
        json!("99999999999999999999Gi"),
        json!("9999-99-99T99:99:99Z"),
    ]);
    let name = prop::sample::select(vec![
        "",
        "name",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/x",
        "f:a",
        "a/b~",
    ]);
    prop_oneof![
        4 => odd.clone().prop_map(Damage::Replace),
        2 => Just(Damage::Remove),
        2 => odd.prop_map(Damage::Twice),
        1 => name.prop_map(|name| Damage::Rename(name.to_owned())),
    ]
}

/// Collects JSON pointers to all parts of a value.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{at}/{key}"), out);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

fn damage_at(body: &mut Value, place: Index, damage: Damage) {
    let mut all = Vec::new();
    places(body, "", &mut all);
    let place = all[place.index(all.len())].clone();
    if let Damage::Replace(value) = damage {
        *body.pointer_mut(&place).unwrap() = value;
        return;
    }
    let Some((parent, key)) = place.rsplit_once('/') else {
        return;
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    match body.pointer_mut(parent) {
        Some(Value::Array(items)) => {
            let index: usize = key.parse().unwrap();
            let item = items.remove(index);
            if matches!(damage, Damage::Twice(_)) {
                items.extend([item.clone(), item]);
            }
        }
        Some(Value::Object(map)) => match damage {
            Damage::Twice(value) => {
                map.insert(format!("{key}{AGAIN}"), value);
            }
            Damage::Rename(name) => {
                let value = map.remove(&key).unwrap();
                map.insert(name, value);
            }
            _ => {
                map.remove(&key);
            }
        },
        _ => {}
    }
}

/// Sends a body with a duplicate key. Checks that it is reported as requested, and that the
/// response is the same as without it.
async fn send_duplicate(method: &str, path: &str, content_type: &str, body: Value, place: Index) {
    let mut all = Vec::new();
    places(&body, "", &mut all);
    all.retain(|at| {
        body.pointer(at.rsplit_once('/').map_or("", |(parent, _)| parent))
            .is_some_and(Value::is_object)
    });
    all.retain(|at| !at.is_empty());
    let at = all[place.index(all.len())].clone();
    let (parent, key) = at.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/").replace("~0", "~");
    let mut doubled = body.clone();
    let value = body.pointer(&at).unwrap().clone();
    let map = doubled
        .pointer_mut(parent)
        .unwrap()
        .as_object_mut()
        .unwrap();
    map.insert(format!("{key}{AGAIN}"), value);
    let doubled = text(&doubled);
    let mut stored = Vec::new();
    for (validation, sent) in [
        ("Ignore", &body.to_string()),
        ("Ignore", &doubled),
        ("Warn", &doubled),
        ("Strict", &doubled),
    ] {
        let server = prepared(method).await;
        let http = http(&server);
        let before = server.resource_version();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?fieldValidation={validation}"))
            .header("content-type", content_type)
            .body(Full::new(Bytes::from(sent.clone())))
            .unwrap();
        let response = http.send(request).await;
        let code = response.status().as_u16();
        let warnings: Vec<String> = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        let reported = if content_type == "application/yaml" {
            format!("key {key:?} already set in map")
        } else {
            "duplicate field ".to_owned()
        };
        match validation {
            "Strict" => {
                assert_eq!(code, 400, "{doubled}");
                assert!(
                    answer["message"].as_str().unwrap().contains(&reported),
                    "{answer}"
                );
                assert_eq!(server.resource_version(), before);
            }
            "Warn" => {
                let reported = warnings
                    .iter()
                    .any(|warning| warning.replace('\\', "").contains(&reported));
                assert!(reported, "{warnings:?} {doubled}");
                stored.push((code, answer));
            }
            _ => {
                assert!(
                    !warnings.iter().any(|warning| warning.contains(&reported)),
                    "{warnings:?}"
                );
                stored.push((code, answer));
            }
        }
    }
    assert_eq!(stored[0], stored[1], "{doubled}");
    assert_eq!(stored[0], stored[2], "{doubled}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// Builds a server with the objects the requests refer to.
async fn prepared(method: &str) -> pintle_apiserver::ApiServer {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    if method != "POST" {
        assert_eq!(http.post(DEPLOYMENTS, &full_deployment()).await.0, 201);
    }
    server
}

/// Sends a damaged request and checks its effect.
async fn send(method: &str, path: &str, content_type: &str, body: Vec<u8>) {
    let server = prepared(method).await;
    let http = http(&server);
    let before = server.resource_version();
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = http.send(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("panicked"), "{method} {path}: {text}");
    if code >= 400 {
        let status: Value = serde_json::from_slice(&bytes).expect("an error is a Status");
        assert_eq!(status["kind"], "Status");
        assert_eq!(server.resource_version(), before, "{code} {text}");
    }
    for path in [
        DEPLOYMENTS,
        FOOS,
        DEFINITIONS,
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/services",
    ] {
        let (code, list) = http.get(path).await;
        if code == 404 {
            continue;
        }
        for item in list["items"].as_array().expect("a list") {
            // A stored object can be written back unchanged.
            let name = item["metadata"]["name"].as_str().unwrap();
            let stored = server.resource_version();
            let (code, answer) = http.put(&format!("{path}/{name}"), item).await;
            assert_eq!(code, 200, "{item} {answer}");
            assert_eq!(server.resource_version(), stored, "{item} {answer}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // Proves errors/status-reasons.
    #[test]
    fn damaged_json_and_patches_are_handled(
        request in prop::sample::select(real_requests()),
        damages in prop::collection::vec((any::<Index>(), damage()), 1..4),
    ) {
        let (method, path, content_type, mut body) = request;
        for (place, damage) in damages {
            damage_at(&mut body, place, damage);
        }
        runtime().block_on(send(method, path, content_type, text(&body).into_bytes()));
    }

    // Proves errors/status-reasons, objects/field-validation.
    #[test]
    fn duplicate_keys_are_reported(
        request in prop::sample::select(real_requests()),
        place in any::<Index>(),
        yaml in any::<bool>(),
    ) {
        let (method, path, content_type, body) = request;
        let object = matches!(method, "POST" | "PUT") && !path.contains("reviews");
        prop_assume!(object && content_type == "application/json");
        let content_type = if yaml { "application/yaml" } else { content_type };
        runtime().block_on(send_duplicate(method, path, content_type, body, place));
    }

    // Proves errors/status-reasons.
    #[test]
    fn damaged_text_is_handled(
        request in prop::sample::select(real_requests()),
        yaml in any::<bool>(),
        at in any::<Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..4),
        cut in any::<bool>(),
    ) {
        let (method, path, content_type, body) = request;
        let mut text = body.to_string().into_bytes();
        let at = at.index(text.len());
        if cut {
            text.truncate(at);
        }
        text.splice(at..at, bytes);
        let yaml = yaml && content_type == "application/json";
        let content_type = if yaml { "application/yaml" } else { content_type };
        runtime().block_on(send(method, path, content_type, text));
    }

    // Proves errors/status-reasons, wire/formats.
    #[test]
    fn damaged_protobuf_is_handled(
        which in prop::sample::select(vec![
            ("deployment", DEPLOYMENTS),
            ("customresourcedefinition", DEFINITIONS),
            ("selfsubjectaccessreview", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ]),
        flips in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<Index>()),
    ) {
        let (file, path) = which;
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/protobuf");
        let mut body = std::fs::read(format!("{folder}/{file}.pb")).unwrap();
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        let kind = "application/vnd.kubernetes.protobuf";
        runtime().block_on(send("POST", path, kind, body));
    }
}
