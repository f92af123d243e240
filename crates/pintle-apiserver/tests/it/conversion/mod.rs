//! Conversion webhooks: custom resources in every served version.

mod managers;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use pintle_apiserver::{ApiServer, ConversionRequest, WebhookRegistration};
use serde_json::{Value, json};

use crate::support::{
    DEFINITIONS, QUOTAS, http, quota, server,
    webhooks::{WebhookServer, answer},
};

const V1: &str = "/apis/example.com/v1/namespaces/default/hosts";
const V2: &str = "/apis/example.com/v2/namespaces/default/hosts";

/// Returns a CRD with `spec.address` (`host:port`) in v1 and `spec.host` and `spec.port` in v2. v1
/// is stored.
fn definition(client: &Value) -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        json!({"name": name, "served": true, "storage": storage,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}})
    };
    let text = json!({"type": "string"});
    json!({"metadata": {"name": "hosts.example.com"}, "spec": {
    "group": "example.com", "scope": "Namespaced",
    "names": {"plural": "hosts", "kind": "Host"},
    "conversion": {"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": client}},
    "versions": [
        version("v1", true, json!({"address": text})),
        version("v2", false, json!({"host": text, "port": {"type": "integer"}})),
    ]}})
}

fn nowhere() -> Value {
    json!({"service": {"namespace": "n", "name": "missing"}})
}

fn v1(name: &str, address: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Host", "metadata": {"name": name},
        "spec": {"address": address}})
}

fn v2(name: &str, host: &str, port: i64) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Host", "metadata": {"name": name},
        "spec": {"host": host, "port": port}})
}

/// Converts a Host.
fn converted(mut object: Value, to: &str) -> Value {
    object["apiVersion"] = to.into();
    let spec = &object["spec"];
    object["spec"] = if to.ends_with("v2") {
        let address = spec["address"].as_str().unwrap_or(":0");
        let (host, port) = address.split_once(':').unwrap_or((address, "0"));
        json!({"host": host, "port": port.parse::<i64>().unwrap()})
    } else {
        json!({"address": format!("{}:{}", spec["host"].as_str().unwrap_or(""), spec["port"])})
    };
    object
}

fn all(request: ConversionRequest) -> Vec<Value> {
    let to = request.desired_api_version().to_owned();
    let objects = request.into_objects().into_iter();
    objects.map(|object| converted(object, &to)).collect()
}

/// Converts Hosts in this process and counts the calls.
fn register(server: &ApiServer) -> (Arc<AtomicUsize>, WebhookRegistration) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let registration = server.register_converter("hosts.example.com", move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(all(request)) }
    });
    (calls, registration)
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn every_verb_works_in_every_version() {
    let server = server();
    let http = http(&server);
    let (code, created) = http.post(DEFINITIONS, &definition(&nowhere())).await;
    assert_eq!(code, 201, "{created}");
    let (_calls, _converter) = register(&server);
    let (code, created) = http.post(V2, &v2("a", "one", 80)).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(
        (&created["apiVersion"], &created["spec"]),
        (
            &json!("example.com/v2"),
            &json!({"host": "one", "port": 80})
        )
    );
    let (_, read) = http.get(&format!("{V1}/a")).await;
    assert_eq!(read["apiVersion"], "example.com/v1");
    assert_eq!(read["spec"], json!({"address": "one:80"}));
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        assert_eq!(
            read["metadata"][field], created["metadata"][field],
            "{field}"
        );
    }
    // PUT, merge patch, JSON patch, apply and status, all in the version of the path.
    let mut next = http.get(&format!("{V2}/a")).await.1;
    next["spec"]["port"] = 81.into();
    let (code, updated) = http.put(&format!("{V2}/a"), &next).await;
    assert_eq!((code, &updated["spec"]["port"]), (200, &json!(81)));
    assert_eq!(updated["metadata"]["generation"], 2);
    let (_, patched) = http
        .merge(&format!("{V2}/a"), &json!({"spec": {"host": "two"}}))
        .await;
    assert_eq!(patched["spec"], json!({"host": "two", "port": 81}));
    let operations = json!([{"op": "replace", "path": "/spec/address", "value": "three:82"}]);
    let (_, patched) = http
        .raw(
            "PATCH",
            &format!("{V1}/a"),
            "application/json-patch+json",
            operations.to_string(),
        )
        .await;
    assert_eq!(patched["spec"]["address"], "three:82");
    let applied = v2("a", "four", 82).to_string();
    let (code, patched) = http
        .raw(
            "PATCH",
            &format!("{V2}/a?fieldManager=m&force=true"),
            "application/apply-patch+yaml",
            applied,
        )
        .await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(patched["spec"], json!({"host": "four", "port": 82}));
    let (code, status) = http
        .merge(
            &format!("{V2}/a/status"),
            &json!({"status": {"ready": true}}),
        )
        .await;
    assert_eq!(code, 200, "{status}");
    assert_eq!(
        (&status["spec"]["host"], &status["status"]["ready"]),
        (&json!("four"), &json!(true))
    );
    let (code, _) = http.delete(&format!("{V2}/a")).await;
    assert_eq!(code, 200);
    assert_eq!(http.get(&format!("{V1}/a")).await.0, 404);
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn lists_and_watches_show_the_version_of_the_request() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let (calls, _converter) = register(&server);
    for name in ["a", "b", "c"] {
        http.post(V1, &v1(name, &format!("{name}:1"))).await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0, "v1 is stored");
    let (_, list) = http.get(V2).await;
    let hosts: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["spec"]["host"])
        .collect();
    assert_eq!(hosts, ["a", "b", "c"]);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a list is one call");
    http.get(V2).await;
    assert_eq!(
        calls.load(Ordering::SeqCst),
        1,
        "converted objects are cached"
    );
    let (_, page) = http.get(&format!("{V2}?limit=2")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let (_, found) = http
        .get(&format!("{V2}?fieldSelector=metadata.name%3Db"))
        .await;
    assert_eq!(found["items"][0]["spec"]["host"], "b");

    let mut watch = http.watch(&format!("{V2}?watch=true")).await;
    assert_eq!(watch.take(3).await, ["ADDED a", "ADDED b", "ADDED c"]);
    http.merge(&format!("{V1}/a"), &json!({"spec": {"address": "new:9"}}))
        .await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["apiVersion"], "example.com/v2");
    assert_eq!(event["object"]["spec"], json!({"host": "new", "port": 9}));
    http.delete(&format!("{V1}/a")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["host"]),
        (&json!("DELETED"), &json!("new"))
    );
}

/// Proves conversion/storage.
#[tokio::test(start_paused = true)]
async fn object_is_converted_from_the_version_it_was_stored_in() {
    let server = server();
    let http = http(&server);
    let mut definition = definition(&nowhere());
    http.post(DEFINITIONS, &definition).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let _converter = server.register_converter("hosts.example.com", move |request| {
        let from = request.objects()[0]["apiVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        let step = format!("{from} -> {}", request.desired_api_version());
        record
            .lock()
            .unwrap()
            .push(step.replace("example.com/", ""));
        async { Ok(all(request)) }
    });
    let steps = || std::mem::take(&mut *seen.lock().unwrap());
    http.post(V1, &v1("old", "h:1")).await;
    let versions = &mut definition["spec"]["versions"];
    (versions[0]["storage"], versions[1]["storage"]) = (false.into(), true.into());
    let path = format!("{DEFINITIONS}/hosts.example.com");
    let moved = json!({"spec": {"versions": definition["spec"]["versions"]}});
    let (_, moved) = http.merge(&path, &moved).await;
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));

    let (_, old) = http.get(&format!("{V1}/old")).await;
    assert_eq!(old["spec"]["address"], "h:1");
    assert!(steps().is_empty(), "still stored as v1");
    let (_, as_v2) = http.get(&format!("{V2}/old")).await;
    assert_eq!(as_v2["spec"]["host"], "h");
    assert_eq!(steps(), ["v1 -> v2"]);
    // Writing it back without a change migrates it.
    let (code, migrated) = http.put(&format!("{V2}/old"), &as_v2).await;
    assert_eq!(code, 200, "{migrated}");
    assert_ne!(
        migrated["metadata"]["resourceVersion"],
        as_v2["metadata"]["resourceVersion"]
    );
    assert_eq!(migrated["metadata"]["generation"], 1);
    steps();
    http.get(&format!("{V2}/old")).await;
    assert!(steps().is_empty(), "now stored as v2");
    let (_, again) = http.put(&format!("{V2}/old"), &migrated).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        migrated["metadata"]["resourceVersion"]
    );
    // Ignore the conversions that compared fields managed in v1.
    steps();
    let (_, old) = http.get(&format!("{V1}/old")).await;
    assert_eq!(old["spec"]["address"], "h:1");
    assert_eq!(steps(), ["v2 -> v1"]);
    let done = json!({"status": {"storedVersions": ["v2"]}});
    assert_eq!(http.merge(&format!("{path}/status"), &done).await.0, 200);
}

/// A converter that returns an invalid response.
type Lie = fn(Vec<Value>) -> Result<Vec<Value>, String>;

/// Proves conversion/errors.
#[tokio::test(start_paused = true)]
async fn invalid_conversion_gets_upstream_error() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    http.post(V1, &v1("a", "h:1")).await;
    let what = "conversion webhook for example.com/v1, Kind=Host";
    let (code, status) = http.get(&format!("{V2}/a")).await;
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        format!(
            "{what} failed: Post \"https://missing.n.svc:443/?timeout=30s\": service \
            \"missing\" not found"
        )
    );
    let lies: [(Lie, &str); 6] = [
        (|_| Err("cannot".into()), "failed: cannot"),
        (|_| Ok(Vec::new()), "returned 0 objects, expected 1"),
        (
            |mut objects| {
                objects[0]["apiVersion"] = "example.com/v3".into();
                Ok(objects)
            },
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, \
             received example.com/v3)",
        ),
        (
            |mut objects| {
                objects[0]["metadata"]["name"] = "b".into();
                Ok(objects)
            },
            "returned invalid object: must have the same name: a != b",
        ),
        (
            |mut objects| {
                objects[0]["metadata"]["labels"] = json!({"x": 1});
                Ok(objects)
            },
            "returned invalid metadata: metadata.labels[x] must be a string, but is int64 in \
             converted object",
        ),
        (|_| panic!("oops"), "failed: the webhook panicked"),
    ];
    for (lie, why) in lies {
        let converter = server.register_converter("hosts.example.com", move |request| async move {
            lie(all(request))
        });
        let (code, status) = http.get(&format!("{V2}/a")).await;
        assert_eq!(
            (code, &status["message"]),
            (500, &json!(format!("{what} {why}")))
        );
        let (code, _) = http.get(V2).await;
        assert_eq!(code, 500);
        drop(converter);
    }
    // A write that cannot be converted is not stored; reading the stored version needs no webhook.
    assert_eq!(http.post(V2, &v2("b", "h", 1)).await.0, 500);
    let (_, list) = http.get(V1).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    // A watch ends with the error.
    let (_calls, converter) = register(&server);
    let mut watch = http.watch(&format!("{V2}?watch=true")).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
    drop(converter);
    http.post(V1, &v1("c", "h:1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(500))
    );
    assert!(watch.next().await.is_none());
}

/// Proves webhook-calls/https.
#[tokio::test]
async fn webhook_converts_over_https() {
    let webhook = WebhookServer::start(&["127.0.0.1"], |_, asked| {
        let to = asked["request"]["desiredAPIVersion"].as_str().unwrap();
        let objects = asked["request"]["objects"].as_array().unwrap().iter();
        let objects: Vec<Value> = objects.map(|o| converted(o.clone(), to)).collect();
        answer(
            &json!({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": {
            "uid": asked["request"]["uid"], "convertedObjects": objects,
            "result": {"status": "Success"}}}),
        )
    })
    .await;
    let server = server();
    let http = http(&server);
    let (code, created) = http
        .post(DEFINITIONS, &definition(&webhook.url("/convert")))
        .await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(http.post(V2, &v2("a", "h", 1)).await.0, 201);
    assert_eq!(
        http.get(&format!("{V1}/a")).await.1["spec"]["address"],
        "h:1"
    );
    let (_, table) = http.get(&format!("{V2}/a")).await;
    assert_eq!(table["spec"]["host"], "h");
}

/// Proves admission/configuration.
#[tokio::test(start_paused = true)]
async fn incomplete_conversion_is_rejected() {
    let server = server();
    let http = http(&server);
    let mut definition = definition(&json!({}));
    definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = json!(["v9"]);
    let (code, status) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 422);
    assert_eq!(
        crate::support::causes(&status),
        [
            "spec.conversion.webhookClientConfig: Required value: exactly one of url or service \
             is required",
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v9\"]: must include at \
             least one of v1, v1beta1",
        ]
    );
}

/// Proves quota/enforced.
#[tokio::test(start_paused = true)]
async fn quota_is_charged_after_the_conversion() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let _converter = server.register_converter("hosts.example.com", |request| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(all(request))
    });
    let limit = "count/hosts.example.com";
    quota(&http, "q", &json!({"hard": {limit: "1"}})).await;
    let used = async || {
        let (_, quota) = http.get(&format!("{QUOTAS}/q")).await;
        quota["status"]["used"][limit].clone()
    };
    let later = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        (used().await, http.post(V2, &v2("b", "h", 2)).await)
    };
    let first = v2("a", "h", 1);
    let (first, (meanwhile, second)) = tokio::join!(http.post(V2, &first), later);
    assert_eq!(meanwhile, "0", "a controller would not find the object");
    assert_eq!(first.0, 201, "{}", first.1);
    assert_eq!(second.0, 403, "{}", second.1);
    assert_eq!(used().await, "1");
}
