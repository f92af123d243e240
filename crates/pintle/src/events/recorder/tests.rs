use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::*;
use crate::cache::Reader;

/// Proves events/name-and-fields.
#[test]
fn cached_and_typed_objects_have_the_same_reference() {
    let json = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7" },
    });
    let typed: Pod = serde_json::from_value(json.clone()).expect("a pod");
    let cached = Reader::<Pod>::new()
        .read(json.to_string().as_bytes())
        .expect("a pod");
    assert_eq!(cached.reference(), typed.reference());
    assert_eq!(typed.reference().resource_version.as_deref(), Some("7"));
}
