//! Request bodies: encodings, and unknown and duplicate fields.

use crate::support::*;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

/// Proves wire/formats.
#[tokio::test]
async fn protobuf_bodies_are_decoded() {
    let server = server();
    let http = http(&server);
    // ConfigMap "a" with one entry.
    let body: &[u8] = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
    let (code, made) = http
        .raw(
            "POST",
            CONFIG_MAPS,
            "application/vnd.kubernetes.protobuf",
            body,
        )
        .await;
    assert_eq!((code, &made["data"]), (201, &json!({"k": "v"})), "{made}");
    let (code, _) = http
        .raw(
            "POST",
            CONFIG_MAPS,
            "application/vnd.kubernetes.protobuf",
            "k8s\0nonsense",
        )
        .await;
    assert_eq!(code, 400);
}

/// Proves objects/field-validation, objects/types, wire/json.
#[tokio::test]
async fn unknown_fields_of_built_in_kinds_are_reported() {
    let server = server();
    let http = http(&server);
    let mut object = config_map("a");
    object["data"]["n"] = 1.into();
    let (code, status) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    let mut object = config_map("a");
    object["colour"] = "red".into();
    object["metadata"]["creationTimestamp"] = serde_json::Value::Null;
    assert_eq!(
        http.post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &object)
            .await
            .0,
        400
    );
    let (code, made) = http.post(CONFIG_MAPS, &object).await;
    assert_eq!((code, made.get("colour")), (201, None));
}

/// Proves wire/formats.
#[tokio::test]
async fn custom_resources_reject_protobuf() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let kind = "application/vnd.kubernetes.protobuf";
    let body = &b"k8s\0\x0a\x15\x0a\x0eexample.com/v1\x12\x03Foo\x12\x05\x0a\x03\x0a\x01a"[..];
    let (code, status) = http.raw("POST", FOOS, kind, body).await;
    assert_eq!(
        (code, &status["reason"]),
        (415, &json!("UnsupportedMediaType"))
    );
}

/// Proves objects/field-validation, wire/warnings.
#[tokio::test]
async fn patch_reports_duplicate_keys() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: '1'\n  k: '2'\n";
    for (kind, body, expected, strict) in [
        (
            "merge-patch+json",
            r#"{"data":{"k":"1","k":"2"}}"#,
            r#"duplicate field \"data.k\""#,
            422,
        ),
        (
            "strategic-merge-patch+json",
            r#"{"data":{"k":"1","k":"2"}}"#,
            r#"duplicate field \"data.k\""#,
            422,
        ),
        (
            "json-patch+json",
            r#"[{"op":"add","op":"add","path":"/data/k","value":"2"}]"#,
            r#"json patch duplicate field \"[0].op\""#,
            422,
        ),
        (
            "apply-patch+yaml",
            yaml,
            r#"line 6: key \"k\" already set in map"#,
            400,
        ),
    ] {
        let ask = |validation: &str| {
            let manager = "fieldManager=m&dryRun=All&force=true";
            let manager = if kind.starts_with("apply") {
                manager
            } else {
                "dryRun=All"
            };
            http::Request::patch(format!(
                "{CONFIG_MAPS}/a?{manager}&fieldValidation={validation}"
            ))
            .header("content-type", format!("application/{kind}"))
            .body(Full::new(Bytes::from(body)))
            .unwrap()
        };
        let response = http.send(ask("Warn")).await;
        assert_eq!(response.status(), 200, "{kind}");
        let warning = response.headers()["warning"].to_str().unwrap();
        assert_eq!(warning, format!("299 - \"{expected}\""));
        assert_eq!(http.send(ask("Strict")).await.status(), strict, "{kind}");
        let response = http.send(ask("Ignore")).await;
        assert!(!response.headers().contains_key("warning"), "{kind}");
    }
}

/// Proves wire/warnings.
#[tokio::test]
async fn warnings_about_unknown_fields_are_bounded() {
    let server = server();
    let http = http(&server);
    let mut definition = foo_definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object",
        "properties": {"spec": {"type": "object",
            "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer"}}}}}});
    assert_eq!(http.post(DEFINITIONS, &definition).await.0, 201);

    let fields: Vec<String> = (0..100_000).map(|i| format!("\"u{i}\":0")).collect();
    let (many, twice) = (fields.join(","), vec!["\"a\":0"; 1000].join(","));
    let long = "p".repeat(1 << 20);
    let of_map = |fields: &str| format!("{{\"metadata\":{{\"name\":\"a\"}},{fields}}}");
    let of_foo = |fields: &str| {
        let start = r#""apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"}"#;
        format!("{{{start},\"spec\":{{\"{long}\":{{{fields}}}}}}}")
    };
    let below = format!("{{\"metadata\":{{\"name\":\"a\",{many}}}}}");
    let cases = [
        ("many", CONFIG_MAPS, of_map(&many)),
        ("many below", CONFIG_MAPS, below),
        (
            "many, twice",
            CONFIG_MAPS,
            of_map(&format!("{many},{many}")),
        ),
        ("a long one", CONFIG_MAPS, of_map(&format!("\"{long}\":0"))),
        ("many in a long one", FOOS, of_foo(&many)),
        ("one in a long one, repeated", FOOS, of_foo(&twice)),
    ];
    for (case, path, body) in cases {
        let ask = |validation: &str| {
            http::Request::post(format!("{path}?dryRun=All&fieldValidation={validation}"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body.clone())))
                .unwrap()
        };
        let response = http.send(ask("Warn")).await;
        assert_eq!(response.status(), 201, "{case}");
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert!(
            (1..=80).contains(&warnings.len()),
            "{case}: {}",
            warnings.len()
        );
        let bytes: usize = warnings.iter().map(|warning| warning.len()).sum();
        // The warning texts, and the rest of each header.
        assert!(bytes < 4096 + 256 + 80 * 16, "{case}: {bytes}");

        let response = http.send(ask("Strict")).await;
        assert_eq!(response.status(), 400, "{case}");
        let refusal = response.into_body().collect().await.unwrap().to_bytes();
        let refusal: serde_json::Value = serde_json::from_slice(&refusal).unwrap();
        let message = refusal["message"].as_str().unwrap();
        let fields = message.matches(" field \"").count();
        assert!((1..=100).contains(&fields), "{case}: {fields}");
        assert!(message.len() < 100 * 4200, "{case}: {}", message.len());
    }
}
