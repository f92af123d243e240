//! CRDs and objects that try to exhaust memory or time. Without limits these tests would run for
//! minutes or exhaust memory.

use crate::support::*;
use serde_json::{Map, Value, json};

/// Returns a CRD with the property `spec.a`.
fn with(property: Value) -> Value {
    let mut definition = foo_definition();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    definition.pointer_mut(spec).unwrap()["a"] = property;
    definition
}

/// Returns a Foo with the value `spec.a`.
fn valued(value: Value) -> Value {
    let mut object = foo("a");
    object["spec"]["a"] = value;
    object
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// Proves errors/depth.
#[tokio::test]
async fn nested_alternatives_are_checked_once() {
    for (keyword, code) in [("anyOf", 201), ("oneOf", 201), ("allOf", 422), ("not", 201)] {
        let server = server();
        let http = http(&server);
        let mut property = json!({ "minLength": 3 });
        for _ in 0..26 {
            property = match keyword {
                "not" => json!({ "not": property }),
                _ => json!({ keyword: [property, { "maxLength": 0 }] }),
            };
        }
        property["type"] = "string".into();
        assert_eq!(http.post(DEFINITIONS, &with(property)).await.0, 201);
        let (found, status) = http.post(FOOS, &valued(json!("abc"))).await;
        assert_eq!(found, code, "{keyword}: {status}");
        let (found, status) = http.post(FOOS, &valued(json!("ab"))).await;
        assert_eq!(found, 422, "{keyword}: {status}");
    }
}

/// Proves errors/depth.
#[tokio::test]
async fn defaults_cannot_multiply_without_limit() {
    let large = json!({ "type": "array", "items": { "type": "object", "properties": {
        "text": { "type": "string", "default": "x".repeat(100_000) } } } });
    let mut doubling = json!({ "type": "object" });
    for _ in 0..28 {
        doubling = json!({ "type": "object", "properties": {
            "list": { "type": "array", "default": [{}, {}], "items": doubling } } });
    }
    for (property, value) in [
        (large, json!(vec![json!({}); 50_000])),
        (doubling, json!({})),
    ] {
        let server = server();
        let http = http(&server);
        assert_eq!(http.post(DEFINITIONS, &with(property)).await.0, 201);
        let (code, status) = http.post(FOOS, &valued(value)).await;
        assert_eq!(
            (code, &status["reason"]),
            (413, &json!("RequestEntityTooLarge"))
        );
        assert_eq!(message(&status), "the defaults of the object are too large");
    }
}

/// A default that is added later also applies to stored objects.
///
/// Proves errors/depth.
#[tokio::test]
async fn defaults_cannot_inflate_stored_objects_without_limit() {
    let server = server();
    let http = http(&server);
    let with_default = |text: Option<String>| {
        with(
            json!({ "type": "array", "items": { "type": "object", "properties": {
            "text": { "type": "string", "default": text } } } }),
        )
    };
    assert_eq!(http.post(DEFINITIONS, &with_default(None)).await.0, 201);
    let object = valued(json!(vec![json!({}); 50_000]));
    assert_eq!(http.post(FOOS, &object).await.0, 201);
    let changed = with_default(Some("x".repeat(100_000)));
    let path = format!("{DEFINITIONS}/foos.example.com");
    let versions = json!({ "spec": { "versions": changed["spec"]["versions"] } });
    assert_eq!(http.merge(&path, &versions).await.0, 200);
    let (code, read) = http.get(&format!("{FOOS}/a")).await;
    assert_eq!(code, 200);
    let items = read["spec"]["a"].as_array().unwrap();
    let filled = items.iter().filter(|item| item["text"].is_string()).count();
    assert!((30..40).contains(&filled), "{filled}");
}

/// Proves errors/depth.
#[tokio::test]
async fn number_of_versions_is_limited() {
    let server = server();
    let http = http(&server);
    let with_versions = |count: usize| {
        let mut definition = foo_definition();
        let versions = definition["spec"]["versions"].as_array_mut().unwrap();
        for name in names("v1alpha", count - 1) {
            versions.push(
                json!({ "name": name.replace("alpha", "alpha1"), "served": true,
                "storage": false, "schema": { "openAPIV3Schema": {
                    "type": "object", "description": name } } }),
            );
        }
        definition
    };
    let (code, status) = http.post(DEFINITIONS, &with_versions(12_000)).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        ["spec.versions: Too many: 12000: must have at most 500 items"]
    );
    assert_eq!(http.post(DEFINITIONS, &with_versions(60)).await.0, 201);
    assert_eq!(http.post(FOOS, &foo("a")).await.0, 201);
}

/// Proves errors/depth.
#[tokio::test]
async fn long_lists_in_crds_are_checked_in_linear_time() {
    let server = server();
    let http = http(&server);
    let keys = names("k", 8_000);
    let text = json!({ "type": "string" });
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.clone(), text.clone())).collect();
    let keyed = |keys: &[String], required: &[String]| {
        with(
            json!({ "type": "array", "maxItems": 1, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": keys,
            "x-kubernetes-validations": [{ "rule": "size(self) < 2" }],
            "items": { "type": "object", "properties": properties, "required": required } }),
        )
    };
    let mut review = names("w", 30_000);
    review.push("v1".to_owned());
    let mut webhook = foo_definition();
    webhook["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
        "clientConfig": { "url": "https://example.com/convert" },
        "conversionReviewVersions": review } });
    let mut short = foo_definition();
    short["spec"]["names"]["shortNames"] = names("s", 20_000).into();
    let mut absent = names("absent", 8_000);
    absent.push("k0".to_owned());
    for (case, definition, expected) in [
        ("keys", keyed(&keys, &keys), 201),
        ("absent keys", keyed(&absent, &[]), 422),
        ("review versions", webhook, 201),
        ("short names", short, 201),
    ] {
        let (code, status) = http.post(DEFINITIONS, &definition).await;
        assert_eq!(code, expected, "{case}: {:.200}", message(&status));
        assert!(message(&status).len() < 4_000_000, "{case}");
        http.delete(&format!("{DEFINITIONS}/foos.example.com"))
            .await;
    }
}

/// Proves errors/depth.
#[tokio::test]
async fn huge_enums_and_patterns_have_short_messages() {
    let server = server();
    let http = http(&server);
    let property =
        json!({ "type": "array", "items": { "type": "string", "enum": names("e", 10_000) } });
    assert_eq!(http.post(DEFINITIONS, &with(property)).await.0, 201);
    let (code, status) = http.post(FOOS, &valued(json!(vec!["x"; 5_000]))).await;
    assert_eq!(code, 422);
    assert!(message(&status).len() < 4_000_000);
    for pattern in ["(a{1000}){1000}", "((a{100}){100}){100}", "\\pL{1,1000}"] {
        let definition = with(json!({ "type": "string", "pattern": pattern }));
        let (code, status) = http.post(DEFINITIONS, &definition).await;
        assert_eq!(code, 422, "{pattern}");
        let why = "must be a valid regular expression, but isn't";
        assert!(message(&status).contains(why), "{}", message(&status));
    }
}

/// Proves errors/depth.
#[tokio::test]
async fn growing_expressions_are_rejected_or_run_out_of_budget() {
    let server = server();
    let http = http(&server);
    let large = valued(json!("a".repeat(100_000)));
    for expression in [
        "'%.1000000000f'.format([1.0])",
        "'%s%s%s%s%s%s%s%s'.format([self, self, self, self, self, self, self, self])",
        "self.replace('a', self)",
        "self.replace('', self)",
        "lists.range(1000).map(x, self).join('')",
        "self.split('').map(x, self).join('')",
        "self + self + self + self + self + self + self + self",
        "self.findAll('').join(self)",
        "strings.quote(self + self)",
    ] {
        let definition = with(json!({ "type": "string", "maxLength": 100_000,
            "x-kubernetes-validations": [
                { "rule": "self == 'b'", "messageExpression": expression, "message": "no" }] }));
        let (code, status) = http.post(DEFINITIONS, &definition).await;
        if code == 422 {
            let why = message(&status);
            assert!(why.contains("cost exceeds budget"), "{expression}: {why}");
            continue;
        }
        assert_eq!(code, 201, "{expression}");
        let (code, status) = http.post(FOOS, &large).await;
        assert_eq!(code, 422, "{expression}");
        assert!(message(&status).len() < 110_000, "{expression}");
        http.delete(&format!("{DEFINITIONS}/foos.example.com"))
            .await;
    }
}

/// kube-apiserver accepts schemas of about 5,000 objects, as many as 10,000 levels of JSON hold.
///
/// Proves errors/depth.
#[tokio::test]
async fn deep_crds_are_refused_in_every_encoding() {
    let server = server();
    let http = http(&server);
    assert_eq!(
        http.post(DEFINITIONS, &with(json!({ "type": "string" })))
            .await
            .0,
        201
    );
    let text = with(json!("HERE")).to_string();
    let path = format!("{DEFINITIONS}/foos.example.com");
    let apply = format!("{path}?fieldManager=me&force=true");
    let value = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a";
    for (open, close) in [
        (r#"{"type":"object","properties":{"a":"#, "}}"),
        (r#"{"type":"array","items":"#, "}"),
        (r#"{"type":"object","additionalProperties":"#, "}"),
        (r#"{"not":"#, "}"),
        (r#"{"allOf":["#, "]}"),
        (r#"{"type":"object","default":{"a":"#, "}}"),
    ] {
        for levels in [200, 10_000, 50_000] {
            let deep = format!(
                "{}{{\"type\":\"string\"}}{}",
                open.repeat(levels),
                close.repeat(levels)
            );
            let whole = text.replace("\"HERE\"", &deep);
            let patch = format!(r#"[{{"op":"replace","path":"{value}","value":{deep}}}]"#);
            for (method, path, kind, body) in [
                ("POST", DEFINITIONS, "application/json", &whole),
                ("POST", DEFINITIONS, "application/yaml", &whole),
                ("PUT", path.as_str(), "application/json", &whole),
                ("PATCH", &path, "application/merge-patch+json", &whole),
                ("PATCH", &path, "application/json-patch+json", &patch),
                ("PATCH", &apply, "application/apply-patch+yaml", &whole),
            ] {
                if body.len() > 2_500_000 {
                    continue;
                }
                let (code, status) = http.raw(method, path, kind, body.clone()).await;
                let why = message(&status).to_lowercase();
                let says_why = ["depth", "deep", "nest", "recursion", "budget"]
                    .iter()
                    .any(|word| why.contains(word));
                assert!(
                    (400..500).contains(&code) && says_why && why.len() < 10_000,
                    "{method} {kind} {open} {levels}: {code} {why:.300}"
                );
            }
        }
    }
    assert_eq!(http.get(&path).await.0, 200);
}
