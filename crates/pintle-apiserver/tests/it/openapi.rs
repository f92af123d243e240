//! OpenAPI v2, which kubectl falls back to.

use crate::support::*;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// The `Accept` header of client-go, and the content type it gets.
const REQUESTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

async fn fetch(http: &Http, accept: &str, etag: &str) -> (u16, HeaderMap, Bytes) {
    let request = Request::get("/openapi/v2")
        .header("accept", accept)
        .header("if-none-match", etag)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = http.send(request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, body)
}

async fn document(http: &Http) -> Value {
    let (code, headers, body) = fetch(http, "application/json", "").await;
    assert_eq!(
        (code, &headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    serde_json::from_slice(&body).unwrap()
}

/// Splits a protobuf message into fields. Supports varints, doubles and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                return number;
            }
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                let before = bytes;
                varint(&mut bytes);
                let taken = before.len() - bytes.len();
                fields.push((key >> 3, &before[..taken]));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).unwrap(),
            other => panic!("wire type {other}"),
        };
        let (field, rest) = bytes.split_at(length);
        fields.push((key >> 3, field));
        bytes = rest;
    }
    fields
}

fn field(bytes: &[u8], number: u64) -> &[u8] {
    let found = fields(bytes).into_iter().find(|(at, _)| *at == number);
    found.unwrap_or_else(|| panic!("no field {number}")).1
}

/// Returns the value of a name/value pair in field `number`.
fn named<'a>(bytes: &'a [u8], number: u64, name: &str) -> &'a [u8] {
    let pairs = fields(bytes).into_iter().filter(|(at, _)| *at == number);
    let mut pairs = pairs.filter(|(_, pair)| field(pair, 1) == name.as_bytes());
    field(pairs.next().unwrap_or_else(|| panic!("no {name}")).1, 2)
}

/// Returns an extension, which is encoded as YAML.
fn extension(bytes: &[u8], number: u64, name: &str) -> Value {
    serde_json::from_slice(field(named(bytes, number, name), 2)).unwrap()
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_v2_contains_what_kubectl_reads() {
    let server = server();
    let http = http(&server);
    let document = document(&http).await;
    assert_eq!(document["swagger"], "2.0");
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    let validates = json!({"$ref": "#/parameters/fieldValidation"});
    assert!(patch["parameters"].as_array().unwrap().contains(&validates));
    assert_eq!(document["parameters"]["fieldValidation"]["in"], "query");
    let pod = &document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(pod["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(
        pod["items"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Container"
    );
    let list = &document["definitions"]["io.k8s.api.core.v1.ConfigMapList"];
    assert_eq!(
        list["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "ConfigMapList"}])
    );
    let port = &document["definitions"]["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!(port, &json!({"type": "string", "format": "int-or-string"}));
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_v2_references_resolve() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let document = document(&http).await;
    let mut open = vec![&document];
    let mut count = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                    assert!(!map.contains_key("type"), "{reference} next to a type");
                    count += 1;
                }
                open.extend(map.values());
            }
            Value::Array(list) => open.extend(list),
            _ => {}
        }
    }
    assert!(count > 1000, "{count} references");
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_v2_is_served_as_protobuf() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let (code, headers, body) = fetch(&http, REQUESTED, "").await;
    assert_eq!(
        (code, &headers["content-type"]),
        (200, &PROTOBUF.parse().unwrap())
    );
    assert_eq!(field(&body, 1), b"2.0");
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let patch = field(named(field(&body, 8), 2, path), 8);
    assert_eq!(
        extension(patch, 13, "x-kubernetes-group-version-kind"),
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let parameters = fields(patch).into_iter().filter(|(at, _)| *at == 8);
    let mut references = parameters.filter_map(|(_, item)| {
        let reference = fields(item).into_iter().find(|(at, _)| *at == 2)?;
        String::from_utf8(field(reference.1, 1).to_vec()).ok()
    });
    assert!(references.any(|name| name == "#/parameters/fieldValidation"));
    let parameter = named(field(&body, 10), 1, "fieldValidation");
    assert_eq!(field(field(field(parameter, 2), 3), 4), b"fieldValidation");

    let definitions = field(&body, 9);
    let spec = named(definitions, 1, "io.k8s.api.core.v1.PodSpec");
    let containers = named(field(spec, 25), 1, "containers");
    assert_eq!(
        extension(containers, 31, "x-kubernetes-patch-merge-key"),
        "name"
    );
    assert_eq!(field(field(containers, 22), 1), b"array");
    let item = field(field(containers, 23), 1);
    assert_eq!(
        field(item, 1),
        b"#/definitions/io.k8s.api.core.v1.Container"
    );
    let foo = named(definitions, 1, "com.example.v1.Foo");
    assert_eq!(
        extension(foo, 31, "x-kubernetes-group-version-kind"),
        json!([{"group": "example.com", "version": "v1", "kind": "Foo"}])
    );
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_v2_follows_crds() {
    let server = server();
    let http = http(&server);
    let (_, headers, _) = fetch(&http, REQUESTED, "").await;
    let tag = headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(fetch(&http, REQUESTED, &tag).await.0, 304);
    assert_eq!(fetch(&http, "application/json", &tag).await.0, 304);
    let name = "com.example.v1.Foo";
    assert_eq!(document(&http).await["definitions"].get(name), None);

    let mut definition = foo_definition();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let properties = definition.pointer_mut(schema).unwrap();
    properties["port"] = json!({"x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}]});
    properties["note"] = json!({"type": "string", "nullable": true});
    let (code, response) = http.post(DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{response}");
    let (code, headers, _) = fetch(&http, REQUESTED, &tag).await;
    assert_eq!(code, 200);
    assert_ne!(headers["etag"], tag);
    let schema = document(&http).await["definitions"][name].clone();
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["replicas"]["maximum"], 10);
    assert_eq!(spec["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(spec["note"], json!({}));
    let meta = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(schema["properties"]["metadata"]["$ref"], meta);

    http.delete(&format!("{DEFINITIONS}/foos.example.com"))
        .await;
    assert_eq!(document(&http).await["definitions"].get(name), None);
    assert_eq!(
        fetch(&http, REQUESTED, &tag).await.0,
        304,
        "same as before the CRD"
    );
}

/// Proves openapi/documents.
#[tokio::test]
async fn openapi_v2_rejects_other_content_types() {
    let server = server();
    let http = http(&server);
    assert_eq!(fetch(&http, "image/png", "").await.0, 406);
    let (code, headers, _) = fetch(&http, "image/png, */*", "").await;
    assert_eq!(
        (code, &headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
}
