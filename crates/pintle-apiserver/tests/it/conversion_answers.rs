//! Responses of conversion webhooks, and the limits on them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, WebhookTarget};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, DEFINITIONS, Http, config_map, http, server, webhooks::answer};

const V1: &str = "/apis/example.com/v1/namespaces/default/hosts";
const V2: &str = "/apis/example.com/v2/namespaces/default/hosts";
const WHAT: &str = "conversion webhook for example.com/v1, Kind=Host";

/// Returns a CRD with `spec.address` in both versions, of which v1 is stored.
fn definition(reviews: &[&str]) -> Value {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"address": {"type": "string"}}}}}}})
    };
    json!({"metadata": {"name": "hosts.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"},
        "versions": [version("v1", true), version("v2", false)],
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": reviews,
            "clientConfig": {"service": {"namespace": "n", "name": "hook"}}}}}})
}

fn host(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Host", "metadata": {"name": name,
        "labels": {"a": "1"}, "finalizers": ["example.com/keep"]}, "spec": {"address": "x"}})
}

/// Creates the CRD and the hosts.
async fn prepare(http: &Http, reviews: &[&str], names: &[&str]) {
    let (code, status) = http.post(DEFINITIONS, &definition(reviews)).await;
    assert_eq!(code, 201, "{status}");
    for name in names {
        let (code, status) = http.post(V1, &host(name)).await;
        assert_eq!(code, 201, "{status}");
    }
}

/// Registers a converter that changes the version and lets `change` do the rest.
fn convert(
    server: &ApiServer,
    change: impl Fn(usize, &mut Value) + Send + Sync + 'static,
) -> pintle_apiserver::WebhookRegistration {
    let change = Arc::new(change);
    server.register_converter("hosts.example.com", move |request| {
        let change = Arc::clone(&change);
        async move {
            let to = request.desired_api_version().to_owned();
            let objects = request.into_objects().into_iter().enumerate();
            let objects = objects.map(|(i, mut object)| {
                object["apiVersion"] = to.clone().into();
                change(i, &mut object);
                object
            });
            Ok(objects.collect())
        }
    })
}

/// Corrupts a converted object.
type Change = fn(&mut Value);

/// Proves conversion/errors.
#[tokio::test(start_paused = true)]
async fn converted_object_must_be_the_same_one() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &["a", "b"]).await;
    let changes: [(Change, &str, &str); 11] = [
        (
            |object| object["kind"] = "Other".into(),
            "object",
            "invalid kind (expected Host, received Other)",
        ),
        (
            |object| object["metadata"]["namespace"] = "other".into(),
            "object",
            "must have the same namespace: default != other",
        ),
        (
            |object| object["metadata"]["uid"] = "other".into(),
            "object",
            "must have the same UID: ",
        ),
        (
            |object| *object = json!(1),
            "object",
            "an object is expected",
        ),
        (
            |object| object["metadata"] = Value::Null,
            "object",
            "must have the same name: ",
        ),
        (
            |object| object["metadata"]["labels"] = json!({"-x": "y"}),
            "metadata",
            "metadata.labels: Invalid value: \"-x\": ",
        ),
        (
            |object| object["metadata"]["labels"] = json!({"x": "-y"}),
            "metadata",
            "metadata.labels: Invalid value: \"-y\": ",
        ),
        (
            |object| object["metadata"]["annotations"] = json!([]),
            "metadata",
            "invalid metadata.annotations of type []interface {} in converted object",
        ),
        (
            |object| object["metadata"]["annotations"] = json!({"x": 1}),
            "metadata",
            "metadata.annotations[x] must be a string, but is int64 in converted object",
        ),
        (
            |object| object["metadata"]["annotations"] = json!({"-x": "y"}),
            "metadata",
            "metadata.annotation: Invalid value: \"-x\": ",
        ),
        (
            |object| object["metadata"]["annotations"] = json!({"x": "y".repeat(256 * 1024)}),
            "metadata",
            "metadata.annotation: Too long: may not be more than 262144 bytes",
        ),
    ];
    for (change, what, why) in changes {
        let converter = convert(&server, move |i, object| {
            if i == 1 {
                change(object);
            }
        });
        let (code, status) = http.get(V2).await;
        assert_eq!(code, 500);
        let start = match what {
            "object" => format!("{WHAT} returned invalid converted object at index 1: {why}"),
            _ => format!("{WHAT} returned invalid metadata in object at index 1: {why}"),
        };
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with(&start), "{message}");
        drop(converter);
    }
}

/// Proves conversion/errors.
#[tokio::test(start_paused = true)]
async fn conversion_changes_no_metadata_but_labels_and_annotations() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &["a"]).await;
    let converter = convert(&server, |_, object| {
        let metadata = &mut object["metadata"];
        metadata["labels"] = json!({"b": "2"});
        metadata["annotations"] = json!({"Example.com/x": "y"});
        metadata["finalizers"] = json!([]);
        metadata["resourceVersion"] = "1".into();
        metadata["generation"] = 9.into();
        object["spec"]["unknown"] = 1.into();
    });
    let (code, shown) = http.get(&format!("{V2}/a")).await;
    assert_eq!(code, 200, "{shown}");
    let (_, stored) = http.get(&format!("{V1}/a")).await;
    let mut expected = stored["metadata"].clone();
    expected["labels"] = json!({"b": "2"});
    expected["annotations"] = json!({"Example.com/x": "y"});
    let mut metadata = shown["metadata"].clone();
    for metadata in [&mut metadata, &mut expected] {
        metadata.as_object_mut().unwrap().remove("managedFields");
    }
    assert_eq!(metadata, expected);
    assert_eq!(shown["spec"], json!({"address": "x"}), "the schema prunes");
    drop(converter);
    // Labels and annotations that a conversion omits are gone.
    let _converter = convert(&server, |_, object| {
        object["metadata"].as_object_mut().unwrap().remove("labels");
    });
    let (_, shown) = http.get(&format!("{V2}/a")).await;
    assert!(shown["metadata"]["labels"].is_null(), "{shown}");
}

/// Makes the CRD's webhook call `respond` with the review.
fn route(server: &ApiServer, respond: impl Fn(Value) -> Value + Clone + Send + Sync + 'static) {
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let respond = respond.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let asked = serde_json::from_slice(&body).unwrap();
            let response: Response<Full<Bytes>> = answer(&respond(asked));
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    server.route_webhooks("n", "hook", WebhookTarget::service(service));
}

/// Returns a valid review: the objects in the desired version.
fn honest(asked: &Value) -> Value {
    let to = &asked["request"]["desiredAPIVersion"];
    let mut objects = asked["request"]["objects"].clone();
    for object in objects.as_array_mut().unwrap() {
        object["apiVersion"] = to.clone();
    }
    json!({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": {
        "uid": asked["request"]["uid"], "convertedObjects": objects,
        "result": {"status": "Success"}}})
}

/// Proves conversion/errors.
#[tokio::test(start_paused = true)]
async fn conversion_review_is_verified() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &["a"]).await;
    let lie = Arc::new(Mutex::new(json!({})));
    let current = Arc::clone(&lie);
    route(&server, move |asked| {
        let mut review = honest(&asked);
        let lie = current.lock().unwrap().clone();
        for (pointer, value) in lie.as_object().unwrap() {
            *review.pointer_mut(pointer).unwrap() = value.clone();
        }
        review
    });
    for (change, why) in [
        (
            json!({"/response/uid": "x"}),
            "failed: expected response.uid=",
        ),
        (
            json!({"/kind": "Other"}),
            "failed: expected webhook response of apiextensions.k8s.io/v1, \
             Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Other",
        ),
        (json!({"/response": null}), "failed: no response provided"),
        (
            json!({"/response/result": {"status": "Failure"}}),
            "failed: response.result.status was 'Failure', not 'Success'",
        ),
        (
            json!({"/response/result": {"status": "Failure", "message": "why"}}),
            "failed: why",
        ),
    ] {
        *lie.lock().unwrap() = change;
        let (code, status) = http.get(&format!("{V2}/a")).await;
        let message = status["message"].as_str().unwrap();
        assert_eq!(code, 500);
        assert!(message.starts_with(&format!("{WHAT} {why}")), "{message}");
    }
    *lie.lock().unwrap() = json!({});
    assert_eq!(http.get(&format!("{V2}/a")).await.0, 200);
}

/// Proves conversion/errors.
#[tokio::test(start_paused = true)]
async fn older_conversion_review_needs_no_uid() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v9", "v1beta1", "v1"], &["a"]).await;
    route(&server, |asked| {
        assert_eq!(asked["apiVersion"], "apiextensions.k8s.io/v1beta1");
        let response = honest(&asked)["response"].clone();
        json!({"response": {"convertedObjects": response["convertedObjects"],
            "result": response["result"]}})
    });
    assert_eq!(http.get(&format!("{V2}/a")).await.0, 200);
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn large_lists_are_converted_in_pieces() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &[]).await;
    for i in 0..501 {
        http.post(V1, &host(&format!("h{i:03}"))).await;
    }
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&sizes);
    let _converter = server.register_converter("hosts.example.com", move |request| {
        let to = request.desired_api_version().to_owned();
        let mut objects = request.into_objects();
        record.lock().unwrap().push(objects.len());
        for object in &mut objects {
            object["apiVersion"] = to.clone().into();
        }
        async { Ok(objects) }
    });
    let (_, list) = http.get(V2).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 501);
    assert_eq!(*sizes.lock().unwrap(), [500, 1]);
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn changing_the_converter_invalidates_its_cache() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &["a"]).await;
    let address = async || {
        let (_, shown) = http.get(&format!("{V2}/a")).await;
        shown["spec"]["address"].clone()
    };
    let _old = convert(&server, |_, object| {
        object["spec"]["address"] = "old".into();
    });
    assert_eq!(address().await, "old");
    let new = convert(&server, |_, object| {
        object["spec"]["address"] = "new".into();
    });
    assert_eq!(address().await, "new");
    drop(new);
    assert_eq!(address().await, "old");
}

/// Proves conversion/errors, admission/timeout.
#[tokio::test(start_paused = true)]
async fn slow_converter_times_out_and_stalls_nothing_else() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &["a"]).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let _converter = server.register_converter("hosts.example.com", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            Ok(Vec::new())
        }
    });
    let start = tokio::time::Instant::now();
    let mut stored = http
        .watch(&format!("{V1}?watch=true&resourceVersion=0"))
        .await;
    let path = format!("{V2}/a");
    let others = async {
        assert_eq!(http.post(CONFIG_MAPS, &config_map("m")).await.0, 201);
        assert_eq!(http.get(&format!("{V1}/a")).await.0, 200);
        http.post(V1, &host("b")).await;
        assert_eq!(stored.take(2).await, ["ADDED a", "ADDED b"]);
        start.elapsed()
    };
    let ((code, status), waited) = tokio::join!(http.get(&path), others);
    assert_eq!(
        waited,
        Duration::ZERO,
        "a watch of the stored version continues"
    );
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        format!("{WHAT} failed: context deadline exceeded")
    );
    // The number of concurrent calls is limited, no matter how many readers there are.
    calls.store(0, Ordering::SeqCst);
    let reads = (0..100).map(|_| http.get(&path));
    let codes = futures::future::join_all(reads).await;
    assert!(codes.iter().all(|(code, _)| *code == 500));
    assert_eq!(calls.load(Ordering::SeqCst), 64);
}

/// Each call stays within its timeout, but a large list needs several.
///
/// Proves admission/timeout.
#[tokio::test(start_paused = true)]
async fn list_through_a_slow_converter_has_a_deadline() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &[]).await;
    for i in 0..1501 {
        http.post(V1, &host(&format!("h{i:04}"))).await;
    }
    let _converter = server.register_converter("hosts.example.com", |request| async move {
        tokio::time::sleep(Duration::from_secs(25)).await;
        let to = request.desired_api_version().to_owned();
        let mut objects = request.into_objects();
        for object in &mut objects {
            object["apiVersion"] = to.clone().into();
        }
        Ok(objects)
    });
    let start = tokio::time::Instant::now();
    let (code, status) = http.get(&format!("{V2}?timeout=10s")).await;
    assert_eq!((code, start.elapsed().as_secs()), (504, 10), "{status}");
    let start = tokio::time::Instant::now();
    let (code, _) = http.get(V2).await;
    assert_eq!((code, start.elapsed().as_secs()), (504, 60));
    assert_eq!(http.get(&format!("{V2}?timeout=soon")).await.0, 400);
    // A watch has no deadline, and objects that were converted before are not converted again.
    let start = tokio::time::Instant::now();
    let path = format!("{V2}?watch=true&resourceVersion=0&timeout=10s");
    let mut watch = http.watch(&path).await;
    assert_eq!(watch.take(1).await, ["ADDED h0000"]);
    assert_eq!(start.elapsed().as_secs(), 50);
}

/// Proves conversion/reads.
#[tokio::test(start_paused = true)]
async fn watch_filters_by_labels_in_the_version_of_the_request() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &["a"]).await;
    // In v2 the label is the address.
    let _converter = convert(&server, |_, object| {
        let address = object["spec"]["address"].clone();
        object["metadata"]["labels"] = json!({"address": address});
    });
    let path = format!("{V2}?watch=true&resourceVersion=0&labelSelector=address%3Dx");
    let mut watch = http.watch(&path).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
    let other = |address: &str| json!({"spec": {"address": address}});
    http.merge(&format!("{V1}/a"), &other("y")).await;
    assert_eq!(watch.take(1).await, ["DELETED a"], "it no longer matches");
    http.merge(&format!("{V1}/a"), &other("x")).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
}

/// Proves conversion/storage.
#[tokio::test(start_paused = true)]
async fn fields_that_the_storage_version_lacks_are_not_stored() {
    let server = server();
    let http = http(&server);
    prepare(&http, &["v1"], &[]).await;
    let _converter = convert(&server, |_, object| object["spec"]["extra"] = "x".into());
    let mut host = host("a");
    host["apiVersion"] = "example.com/v2".into();
    let (code, status) = http.post(V2, &host).await;
    assert_eq!(code, 201, "{status}");
    // The value is missing even after the schema gets the field.
    let mut definition = definition(&["v1"]);
    let versions = &mut definition["spec"]["versions"];
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
        json!({"type": "string"});
    let changed = json!({"spec": {"versions": definition["spec"]["versions"]}});
    let path = format!("{DEFINITIONS}/hosts.example.com");
    assert_eq!(http.merge(&path, &changed).await.0, 200);
    let (_, stored) = http.get(&format!("{V1}/a")).await;
    assert_eq!(stored["spec"], json!({"address": "x"}));
}
