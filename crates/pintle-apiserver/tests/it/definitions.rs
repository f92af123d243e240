//! CRDs: which changes are allowed, how names are assigned, and what happens to open watches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::*;
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use pintle_apiserver::{ApiServer, Points, Write};
use serde_json::{Value, json};

const FOO_DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// Returns the fields an error names.
fn fields(status: &Value) -> Vec<&str> {
    let causes = status["details"]["causes"].as_array().unwrap();
    causes
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect()
}

/// Returns the status and reason of a condition.
fn condition(definition: &Value, kind: &str) -> (String, String) {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind);
    let found = found.unwrap_or_else(|| panic!("no condition {kind}: {definition}"));
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("status"), text("reason"))
}

/// Returns a CRD with the given plural and kind in the group `example.com`.
fn definition(plural: &str, kind: &str) -> Value {
    let mut definition = foo_definition();
    definition["metadata"]["name"] = format!("{plural}.example.com").into();
    definition["spec"]["names"] =
        json!({"plural": plural, "kind": kind, "singular": plural.trim_end_matches('s')});
    definition
}

/// Returns the Foo CRD with a second version; `storage` names the stored one.
fn two_versions(storage: &str) -> Value {
    let mut definition = foo_definition();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(second);
    for version in versions {
        version["storage"] = (version["name"] == storage).into();
    }
    definition
}

/// Proves crd/validated.
#[tokio::test(start_paused = true)]
async fn established_definition_keeps_scope_and_names() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    for (change, field, value) in [
        (
            json!({"spec": {"scope": "Cluster"}}),
            "spec.scope",
            "Cluster",
        ),
        (
            json!({"spec": {"names": {"kind": "Bar"}}}),
            "spec.names.kind",
            "Bar",
        ),
        (
            json!({"spec": {"group": "example.org"}}),
            "spec.group",
            "example.org",
        ),
        (
            json!({"spec": {"names": {"plural": "fools"}}}),
            "spec.names.plural",
            "fools",
        ),
    ] {
        let (code, status) = http.merge(FOO_DEFINITION, &change).await;
        assert_eq!(
            (code, &status["reason"]),
            (422, &json!("Invalid")),
            "{change}"
        );
        assert_eq!(fields(&status), [field]);
        let message = format!(
            "CustomResourceDefinition.apiextensions.k8s.io \"foos.example.com\" is invalid: \
             {field}: Invalid value: {value:?}: field is immutable"
        );
        assert_eq!(status["message"], message);
    }
    assert_eq!(http.get(&format!("{FOOS}/a")).await.0, 200);
    // Changes that do not affect stored objects are allowed.
    let change = json!({"spec": {"names": {"shortNames": ["f"], "singular": "fooo"}}});
    assert_eq!(http.merge(FOO_DEFINITION, &change).await.0, 200);
}

/// Proves crd/validated.
#[tokio::test(start_paused = true)]
async fn stored_version_cannot_leave_a_definition() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let both = two_versions("v2")["spec"]["versions"].clone();
    let (code, changed) = http
        .merge(FOO_DEFINITION, &json!({"spec": {"versions": both}}))
        .await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let second = json!({"spec": {"versions": [both[1]]}});
    let (code, status) = http.merge(FOO_DEFINITION, &second).await;
    assert_eq!(code, 422);
    assert_eq!(fields(&status), ["status.storedVersions[0]"]);
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, \
         and must remain in spec.versions until a storage migration ensures no data remains \
         persisted in v1 and removes v1 from status.storedVersions"
    );
    // Once a migration is recorded in the status, the version can be removed.
    let migrated = json!({"status": {"storedVersions": ["v2"]}});
    let (code, _) = http
        .merge(&format!("{FOO_DEFINITION}/status"), &migrated)
        .await;
    assert_eq!(code, 200);
    assert_eq!(http.merge(FOO_DEFINITION, &second).await.0, 200);
}

/// Proves watch/crd-deleted.
#[tokio::test(start_paused = true)]
async fn watches_end_when_their_definition_changes() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &two_versions("v1")).await;
    http.post(FOOS, &foo("a")).await;
    let second = FOOS.replace("/v1/", "/v2/");
    let start = tokio::time::Instant::now();
    let mut watches = Vec::new();
    for path in [FOOS, &second] {
        let mut watch = http.watch(&format!("{path}?watch=true")).await;
        assert_eq!(watch.take(1).await, ["ADDED a"]);
        watches.push(watch);
    }
    // Changes of the metadata do not affect the objects.
    let note = json!({"metadata": {"annotations": {"note": "x"}}});
    assert_eq!(http.merge(FOO_DEFINITION, &note).await.0, 200);
    http.post(FOOS, &foo("b")).await;
    for watch in &mut watches {
        assert_eq!(watch.take(1).await, ["ADDED b"]);
    }
    // The first version gets a default, the second one is no longer served.
    let mut versions = two_versions("v1")["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["colour"] =
        json!({"type": "string", "default": "red"});
    versions[1]["served"] = false.into();
    let (code, _) = http
        .merge(FOO_DEFINITION, &json!({"spec": {"versions": versions}}))
        .await;
    assert_eq!(code, 200);
    for watch in &mut watches {
        assert_eq!(watch.next().await, None);
    }
    assert!(
        start.elapsed() < Duration::from_mins(1),
        "watches end immediately"
    );
    assert_eq!(http.watch(&format!("{second}?watch=true")).await.code, 404);
    let mut watch = http.watch(&format!("{FOOS}?watch=true")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["spec"]["colour"], "red");
}

/// Proves watch/crd-deleted.
#[tokio::test(start_paused = true)]
async fn watch_resumes_after_its_definition_changed() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let seen = server.resource_version();
    let change = json!({"spec": {"names": {"categories": ["all"]}}});
    assert_eq!(http.merge(FOO_DEFINITION, &change).await.0, 200);
    http.post(FOOS, &foo("b")).await;
    let path = format!("{FOOS}?watch=true&resourceVersion={seen}");
    assert_eq!(http.watch(&path).await.take(1).await, ["ADDED b"]);
}

/// Proves crd/names.
#[tokio::test(start_paused = true)]
async fn freed_names_go_to_a_waiting_definition() {
    let server = server();
    let http = http(&server);
    let waiting = format!("{DEFINITIONS}/foes.example.com");
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(DEFINITIONS, &definition("foes", "Foo")).await;
    let (_, refused) = http.get(&waiting).await;
    let expected = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(
        condition(&refused, "NamesAccepted"),
        expected("False", "ListKindConflict")
    );
    assert_eq!(
        condition(&refused, "Established"),
        expected("False", "NotAccepted")
    );
    // It gets the names that are free.
    assert_eq!(refused["status"]["acceptedNames"]["plural"], "foes");
    let foes = "/apis/example.com/v1/namespaces/default/foes";
    assert_eq!(http.get(foes).await.0, 404);
    http.delete(FOO_DEFINITION).await;
    let (_, accepted) = http.get(&waiting).await;
    assert_eq!(
        condition(&accepted, "NamesAccepted"),
        expected("True", "NoConflicts")
    );
    assert_eq!(
        condition(&accepted, "Established"),
        expected("True", "InitialNamesAccepted")
    );
    assert_eq!(http.get(foes).await.0, 200);
    // Now the Foo CRD has to wait.
    http.post(DEFINITIONS, &foo_definition()).await;
    let (_, refused) = http.get(FOO_DEFINITION).await;
    assert_eq!(condition(&refused, "NamesAccepted").0, "False");
}

/// Proves crd/names.
#[tokio::test(start_paused = true)]
async fn definition_keeps_its_accepted_names_while_it_waits() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let mut other = definition("bars", "Bar");
    other["spec"]["names"]["shortNames"] = json!(["ba"]);
    http.post(DEFINITIONS, &other).await;
    let bars = format!("{DEFINITIONS}/bars.example.com");
    let short_names = async || {
        let (_, list) = http.get("/apis/example.com/v1").await;
        let resources = list["resources"].as_array().unwrap();
        let bars = resources.iter().find(|resource| resource["name"] == "bars");
        bars.unwrap()["shortNames"].clone()
    };
    let change = json!({"spec": {"names": {"shortNames": ["fo"]}}});
    assert_eq!(http.merge(&bars, &change).await.0, 200);
    let (_, changed) = http.get(&bars).await;
    assert_eq!(condition(&changed, "NamesAccepted").1, "ShortNamesConflict");
    assert_eq!(condition(&changed, "Established").0, "True");
    assert_eq!(short_names().await, json!(["ba"]));
    // The name becomes free without a delete.
    let change = json!({"spec": {"names": {"shortNames": ["f"]}}});
    assert_eq!(http.merge(FOO_DEFINITION, &change).await.0, 200);
    let (_, changed) = http.get(&bars).await;
    assert_eq!(condition(&changed, "NamesAccepted").0, "True");
    assert_eq!(short_names().await, json!(["fo"]));
}

/// A hook that creates a rival CRD just before the names of the first one are stored.
#[derive(Clone, Default)]
struct Rival {
    server: Arc<Mutex<Option<ApiServer>>>,
    commits: Arc<AtomicUsize>,
}

impl Points for Rival {
    fn before_commit(&self, write: &Write<'_>) {
        let first = write.name == "foos.example.com";
        if first && self.commits.fetch_add(1, Ordering::SeqCst) == 1 {
            let server = self.server.lock().take().unwrap();
            let rival = definition("foes", "Foo");
            let http = http(&server);
            let made = http.post(DEFINITIONS, &rival).now_or_never();
            assert_eq!(made.unwrap().0, 201);
        }
    }
}

/// Proves crd/names.
#[tokio::test(start_paused = true)]
async fn concurrent_definitions_never_share_a_name() {
    let rival = Rival::default();
    let server = ApiServer::builder().points(rival.clone()).build();
    *rival.server.lock() = Some(server.clone());
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    assert!(rival.server.lock().is_none(), "the rival was created");
    let waiting = format!("{DEFINITIONS}/foes.example.com");
    let (_, first) = http.get(FOO_DEFINITION).await;
    let (_, second) = http.get(&waiting).await;
    assert_eq!(condition(&first, "NamesAccepted").0, "True");
    assert_eq!(condition(&second, "NamesAccepted").0, "False");
    http.delete(FOO_DEFINITION).await;
    let (_, second) = http.get(&waiting).await;
    assert_eq!(condition(&second, "NamesAccepted").0, "True");
}

/// A hook that races with the commit of accepted names: another CRD requests the short name, then
/// the first one drops it.
#[derive(Clone, Default)]
struct Withdrawal {
    server: Arc<Mutex<Option<ApiServer>>>,
    commits: Arc<AtomicUsize>,
}

impl Points for Withdrawal {
    fn before_commit(&self, write: &Write<'_>) {
        let first = write.name == "foos.example.com";
        if first && self.commits.fetch_add(1, Ordering::SeqCst) == 1 {
            let server = self.server.lock().take().unwrap();
            let http = http(&server);
            let mut other = definition("bars", "Bar");
            other["spec"]["names"]["shortNames"] = json!(["fo"]);
            let made = http.post(DEFINITIONS, &other).now_or_never();
            assert_eq!(made.unwrap().0, 201);
            let bars = format!("{DEFINITIONS}/bars.example.com");
            let (_, refused) = http.get(&bars).now_or_never().unwrap();
            assert_eq!(condition(&refused, "NamesAccepted").1, "ShortNamesConflict");
            let change = json!({"spec": {"names": {"shortNames": ["f"]}}});
            let changed = http.merge(FOO_DEFINITION, &change).now_or_never();
            assert_eq!(changed.unwrap().0, 200);
        }
    }
}

/// Proves crd/names.
#[tokio::test(start_paused = true)]
async fn name_dropped_in_a_lost_race_is_reassigned() {
    let withdrawal = Withdrawal::default();
    let server = ApiServer::builder().points(withdrawal.clone()).build();
    *withdrawal.server.lock() = Some(server.clone());
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    assert!(withdrawal.server.lock().is_none(), "the race happened");
    let (_, first) = http.get(FOO_DEFINITION).await;
    assert_eq!(first["status"]["acceptedNames"]["shortNames"], json!(["f"]));
    assert_eq!(condition(&first, "NamesAccepted").0, "True");
    let (_, other) = http.get(&format!("{DEFINITIONS}/bars.example.com")).await;
    assert_eq!(
        other["status"]["acceptedNames"]["shortNames"],
        json!(["fo"])
    );
    assert_eq!(condition(&other, "NamesAccepted").0, "True");
}

/// Sends a request and returns the status code and the `Warning` headers.
async fn warnings(http: &Http, method: &str, path: &str, body: &Value) -> (u16, Vec<String>) {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, kind)
        .body(Full::new(body))
        .unwrap();
    let response = http.send(request).await;
    let all = response.headers().get_all(header::WARNING);
    let texts = all
        .iter()
        .map(|text| String::from_utf8(text.as_bytes().to_vec()).unwrap());
    let told = (response.status().as_u16(), texts.collect());
    if !path.contains("watch=") {
        response.into_body().collect().await.unwrap();
    }
    told
}

/// Proves wire/warnings.
#[tokio::test(start_paused = true)]
async fn deprecated_version_warns_in_every_response() {
    let server = server();
    let http = http(&server);
    let mut two = two_versions("v2");
    two["spec"]["versions"][0]["deprecated"] = true.into();
    assert_eq!(http.post(DEFINITIONS, &two).await.0, 201);
    let expected = ["299 - \"example.com/v1 Foo is deprecated; use example.com/v2 Foo\""];
    let one = format!("{FOOS}/a");
    let status = format!("{one}/status");
    let watch = format!("{FOOS}?watch=true");
    let patch = json!({"spec": {"replicas": 2}});
    for (method, path, body, code) in [
        ("POST", FOOS, &foo("a"), 201),
        ("POST", FOOS, &foo("a"), 409),
        ("GET", &one, &Value::Null, 200),
        ("GET", FOOS, &Value::Null, 200),
        ("GET", &watch, &Value::Null, 200),
        ("GET", &status, &Value::Null, 200),
        ("PATCH", &one, &patch, 200),
        ("PUT", FOOS, &foo("a"), 405),
        ("DELETE", &one, &Value::Null, 200),
        ("DELETE", &one, &Value::Null, 404),
        ("DELETE", FOOS, &Value::Null, 200),
    ] {
        let told = warnings(&http, method, path, body).await;
        assert_eq!(
            told,
            (code, expected.map(str::to_owned).to_vec()),
            "{method} {path}"
        );
    }
    let second = FOOS.replace("/v1/", "/v2/");
    let (_, none) = warnings(&http, "GET", &second, &Value::Null).await;
    assert_eq!(none, Vec::<String>::new());
    // A custom warning, with characters outside ASCII.
    two["spec"]["versions"][0]["deprecationWarning"] = "go to \"v2\" – soon".into();
    let change = json!({"spec": two["spec"]});
    assert_eq!(http.merge(FOO_DEFINITION, &change).await.0, 200);
    let (_, told) = warnings(&http, "GET", FOOS, &Value::Null).await;
    assert_eq!(told, ["299 - \"go to \\\"v2\\\" – soon\""]);
}

/// Proves crd/validated.
#[tokio::test(start_paused = true)]
async fn deprecation_warning_is_validated() {
    let server = server();
    let http = http(&server);
    for (deprecated, text, why) in [
        (
            false,
            "x".to_owned(),
            "can only be set for deprecated versions",
        ),
        (true, String::new(), "must not be an empty string"),
        (true, "x".repeat(257), "must be <= 256 characters long"),
        (
            true,
            "a\tb".to_owned(),
            "must only contain printable UTF-8 characters; non-printable character found at index 1",
        ),
        (
            true,
            "é\u{200b}".to_owned(),
            "must only contain printable UTF-8 characters; non-printable character found at index 2",
        ),
        (
            true,
            "a\u{a0}b".to_owned(),
            "must only contain printable UTF-8 characters; non-printable character found at index 1",
        ),
    ] {
        let mut definition = foo_definition();
        definition["spec"]["versions"][0]["deprecated"] = deprecated.into();
        definition["spec"]["versions"][0]["deprecationWarning"] = text.into();
        let (code, status) = http.post(DEFINITIONS, &definition).await;
        assert_eq!(code, 422);
        assert_eq!(fields(&status), ["spec.versions[0].deprecationWarning"]);
        let message = status["message"].as_str().unwrap();
        assert!(message.ends_with(why), "{message}");
    }
}

/// Proves crd/validated.
#[tokio::test]
async fn definition_waits_for_valid_certificates_of_its_webhook() {
    let server = server();
    let http = http(&server);
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = certificate.cert.pem();
    let malformed = "-----BEGIN CERTIFICATE-----\nbm9wZQ==\n-----END CERTIFICATE-----\n";
    let key = "-----BEGIN PUBLIC KEY-----\nbm9wZQ==\n-----END PUBLIC KEY-----\n";
    let conversion = |bundle: &str| {
        let bundle = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bundle);
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://localhost/convert", "caBundle": bundle}}})
    };
    let changed = |bundle: &str| json!({"spec": {"conversion": conversion(bundle)}});
    let mut definition = two_versions("v1");
    definition["spec"]["conversion"] = conversion("\n");
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);
    let (_, waiting) = http.merge(FOO_DEFINITION, &changed("nope")).await;
    assert_eq!(
        condition(&waiting, "Established"),
        ("False".to_owned(), "InvalidCABundle".to_owned())
    );
    assert_eq!(http.get(FOOS).await.0, 404);

    let mixed = format!("{malformed}{key}{certificate}");
    assert_eq!(http.merge(FOO_DEFINITION, &changed(&mixed)).await.0, 200);
    let (_, established) = http.get(FOO_DEFINITION).await;
    assert_eq!(condition(&established, "Established").0, "True");
    assert_eq!(http.get(FOOS).await.0, 200);

    for (bundle, why) in [
        ("nope", "unable to parse bytes as PEM block"),
        (
            malformed,
            "failed to parse certificate: x509: malformed certificate",
        ),
        (key, "no valid certificate authority data seen"),
    ] {
        let changed = changed(bundle);
        let (code, status) = http.merge(FOO_DEFINITION, &changed).await;
        let sent = &changed["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
        assert_eq!(code, 422);
        assert_eq!(
            causes(&status),
            [format!(
                "spec.conversion.webhookClientConfig.caBundle: Invalid value: {sent}: unable to \
                 load root certificates: {why}"
            )]
        );
    }
    let without = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    assert_eq!(http.merge(FOO_DEFINITION, &without).await.0, 200);
}
