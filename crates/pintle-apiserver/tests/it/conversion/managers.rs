//! Field managers of custom resources that a webhook converts.

use pintle_apiserver::ApiServer;
use serde_json::{Value, json};

use super::{V1, V2, all, definition, nowhere, register, v1, v2};
use crate::support::{DEFINITIONS, Http, http, server};

const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.example.com";

async fn apply(http: &Http, path: &str, query: &str, config: &Value) -> (u16, Value) {
    let path = format!("{path}/a?{query}");
    http.raw(
        "PATCH",
        &path,
        "application/apply-patch+yaml",
        config.to_string(),
    )
    .await
}

/// Returns the managers as `manager@version spec-fields`, sorted.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let show = |entry: &Value| {
        let spec = entry["fieldsV1"]["f:spec"].as_object();
        let fields = spec.into_iter().flatten().map(|(name, _)| &name[2..]);
        let fields: Vec<&str> = fields.filter(|name| !name.is_empty()).collect();
        let version = entry["apiVersion"].as_str().unwrap();
        let version = version.strip_prefix("example.com/").unwrap();
        format!(
            "{}@{version} {}",
            entry["manager"].as_str().unwrap(),
            fields.join(",")
        )
    };
    let mut shown: Vec<String> = entries.into_iter().flatten().map(show).collect();
    shown.sort();
    shown
}

/// Makes v2 the storage version.
async fn store_v2(http: &Http) {
    let mut versions = definition(&nowhere())["spec"]["versions"].take();
    (versions[0]["storage"], versions[1]["storage"]) = (false.into(), true.into());
    let moved = json!({"spec": {"versions": versions}});
    assert_eq!(http.merge(DEFINITION, &moved).await.0, 200);
}

fn with_label(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"a": "b"});
    object
}

/// Proves apply/versions.
#[tokio::test(start_paused = true)]
async fn appliers_conflict_across_converted_versions() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let (_calls, _converter) = register(&server);
    let (code, _) = apply(&http, V1, "fieldManager=one", &with_label(v1("a", "h:1"))).await;
    assert_eq!(code, 201);

    let (code, status) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 2)).await;
    assert_eq!(code, 409, "{status}");
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "field": ".spec.address",
            "message": "conflict with \"one\""}]),
        "the field is named as in the manager's version"
    );
    // Equal values are shared. Each manager keeps its version, whichever version is read.
    let (code, shared) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 1)).await;
    assert_eq!(code, 200, "{shared}");
    let both = ["one@v1 address", "two@v2 host,port"];
    assert_eq!(managers(&shared), both);
    assert_eq!(managers(&http.get(&format!("{V1}/a")).await.1), both);
    // The other direction.
    let (code, status) = apply(&http, V1, "fieldManager=one", &v1("a", "h:3")).await;
    assert_eq!(code, 409, "{status}");
    let causes = &status["details"]["causes"];
    assert_eq!(causes[0]["field"], ".spec.port", "{causes}");
    assert_eq!(causes.as_array().unwrap().len(), 1, "the host is the same");
    let forced = with_label(v1("a", "h:3"));
    let (code, forced) = apply(&http, V1, "fieldManager=one&force=true", &forced).await;
    assert_eq!(code, 200);
    assert_eq!(managers(&forced), ["one@v1 address", "two@v2 host"]);

    // An applier that moves to another version loses what it no longer applies.
    let (code, moved) = apply(&http, V2, "fieldManager=one", &v2("a", "h", 3)).await;
    assert_eq!(code, 200, "{moved}");
    assert_eq!(moved["metadata"].get("labels"), None, "{moved}");
    assert_eq!(moved["spec"], json!({"host": "h", "port": 3}));
    assert_eq!(managers(&moved), ["one@v2 host,port", "two@v2 host"]);
}

/// Proves apply/versions.
#[tokio::test(start_paused = true)]
async fn repeated_apply_in_converted_versions_changes_nothing() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let (_calls, _converter) = register(&server);
    apply(&http, V1, "fieldManager=one", &with_label(v1("a", "h:1"))).await;
    let (_, first) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 1)).await;
    let (code, again) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 1)).await;
    assert_eq!((code, &again), (200, &first));
    let (code, again) = apply(&http, V1, "fieldManager=one", &with_label(v1("a", "h:1"))).await;
    assert_eq!(code, 200);
    assert_eq!(again["metadata"], first["metadata"]);
}

/// Proves apply/versions.
#[tokio::test(start_paused = true)]
async fn update_takes_fields_over_across_converted_versions() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let (_calls, _converter) = register(&server);
    apply(&http, V1, "fieldManager=one", &with_label(v1("a", "h:1"))).await;
    let port = json!({"spec": {"port": 2}});
    let (code, now) = http.merge(&format!("{V2}/a?fieldManager=two"), &port).await;
    assert_eq!(code, 200, "{now}");
    assert_eq!(managers(&now), ["one@v1 ", "two@v2 port"]);
    let (code, now) = apply(&http, V2, "fieldManager=three", &v2("a", "h", 2)).await;
    assert_eq!((code, managers(&now).len()), (200, 3), "{now}");
}

/// Proves apply/versions.
#[tokio::test(start_paused = true)]
async fn managers_of_removed_versions_are_dropped() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let (_calls, _converter) = register(&server);
    apply(&http, V1, "fieldManager=one", &v1("a", "h:1")).await;
    store_v2(&http).await;
    let (_, now) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 1)).await;
    assert_eq!(managers(&now), ["one@v1 address", "two@v2 host,port"]);
    let stored = json!({"status": {"storedVersions": ["v2"]}});
    http.merge(&format!("{DEFINITION}/status"), &stored).await;
    let (_, definition) = http.get(DEFINITION).await;
    let versions = json!({"spec": {"versions": [definition["spec"]["versions"][1]]}});
    assert_eq!(http.merge(DEFINITION, &versions).await.0, 200);

    let (code, now) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 2)).await;
    assert_eq!(code, 200, "{now}");
    assert_eq!(managers(&now), ["two@v2 host,port"]);
}

/// Stores a Host in v2 that is managed in v1.
async fn managed_in_v1(server: &ApiServer) -> Http {
    let http = http(server);
    http.post(DEFINITIONS, &definition(&nowhere())).await;
    let (_calls, _converter) = register(server);
    store_v2(&http).await;
    let (code, _) = apply(&http, V1, "fieldManager=one", &v1("a", "h:1")).await;
    assert_eq!(code, 201);
    http
}

/// Proves apply/versions.
#[tokio::test(start_paused = true)]
async fn apply_fails_if_managers_cannot_be_converted() {
    let server = server();
    let http = managed_in_v1(&server).await;
    let _converter = server.register_converter("hosts.example.com", |request| async move {
        match request.desired_api_version() {
            "example.com/v1" => Err("cannot".to_owned()),
            _ => Ok(all(request)),
        }
    });
    let (code, status) = apply(&http, V2, "fieldManager=two", &v2("a", "h", 2)).await;
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "conversion webhook for example.com/v2, Kind=Host failed: cannot"
    );
    // Any other write drops the managers, as in Kubernetes.
    let port = json!({"spec": {"port": 2}});
    let (code, now) = http.merge(&format!("{V2}/a"), &port).await;
    assert_eq!((code, &now["spec"]["port"]), (200, &json!(2)));
    assert_eq!(now["metadata"].get("managedFields"), None);
}
