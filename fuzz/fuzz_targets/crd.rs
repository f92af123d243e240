//! CRDs with schemas and CEL rules, and objects validated against them.
//!
//! The input is JSON: `{"schema": …, "object": …}`. If the CRD is accepted, the object is sent to
//! it, and then the CRD is deleted.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pintle_fuzz::Server;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

static SERVER: LazyLock<Server> = LazyLock::new(Server::new);

fuzz_target!(|input: &[u8]| {
    let Ok(Value::Object(mut input)) = serde_json::from_slice(input) else {
        return;
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": input.remove("schema")}}],
        },
    });
    let body = definition.to_string();
    let (code, _) = SERVER.send("POST", DEFINITIONS, "application/json", body.as_bytes());
    if code != 201 {
        return;
    }
    let mut object = input.remove("object").unwrap_or_default();
    if let Value::Object(object) = &mut object {
        object.insert("apiVersion".into(), json!("example.com/v1"));
        object.insert("kind".into(), json!("Foo"));
        object.insert("metadata".into(), json!({"name": "foo"}));
    }
    let foos = "/apis/example.com/v1/namespaces/default/foos?dryRun=All";
    SERVER.send(
        "POST",
        foos,
        "application/json",
        object.to_string().as_bytes(),
    );
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (code, response) = SERVER.send("DELETE", &path, "application/json", b"");
    assert_eq!(code, 200, "{}", String::from_utf8_lossy(&response));
});
