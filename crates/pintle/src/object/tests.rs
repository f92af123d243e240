use k8s_openapi::api::core::v1::Pod;
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::{Value, json};

use super::*;

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {"app": "a \"quoted\" \\ value"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": null,
            "generation": 3,
            "labels": {"app": "web", "tier": "front"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:x": {}}}}],
            "name": "web-0",
            "namespace": "default",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-n"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-rs",
                 "controller": true, "blockOwnerDeletion": true},
            ],
            "resourceVersion": "42",
            "uid": "u-1",
        },
        "spec": {"nodeName": "worker-1", "containers": [{"name": "c", "image": "}]\"{["}]},
    })
}

fn read(value: &Value) -> Object<Pod> {
    Reader::new().read(value.to_string().as_bytes()).unwrap()
}

#[test]
fn header_is_read_without_decoding() {
    let object = read(&pod());
    assert_eq!(object.key(), &ObjectKey::namespaced("default", "web-0"));
    assert_eq!((object.uid(), object.resource_version()), ("u-1", "42"));
    assert_eq!(object.generation(), Some(3));
    assert!(!object.is_being_deleted());
    let labels: Vec<_> = object.labels().iter().collect();
    assert_eq!(labels, [("app", "web"), ("tier", "front")]);
    let owner = object.controller_owner().unwrap();
    assert_eq!((owner.group(), owner.kind()), ("apps", "ReplicaSet"));
    assert_eq!((owner.name(), owner.uid()), ("web", "u-rs"));
    assert_eq!(object.owner_references().len(), 2);
    assert!(!object.owner_references()[0].is_controller());
}

#[test]
fn managed_fields_are_removed_at_any_position() {
    let fields = r#""managedFields":[{"a":"]}"}]"#;
    for (json, kept) in [
        (
            format!(r#"{{"metadata":{{{fields},"name":"a"}}}}"#),
            r#"{"metadata":{"name":"a"}}"#,
        ),
        (
            format!(r#"{{"metadata":{{"name":"a",{fields}}}}}"#),
            r#"{"metadata":{"name":"a"}}"#,
        ),
        (
            format!(r#" {{"metadata":{{"name":"a", {fields} , "uid":"u"}} }} "#),
            r#"{"metadata":{"name":"a",  "uid":"u"} }"#,
        ),
    ] {
        let object = Reader::<Pod>::new().read(json.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(object.bytes()).unwrap(), kept);
        assert!(object.metadata().unwrap().managed_fields.is_none());
        assert_eq!(object.get().unwrap().metadata.name.as_deref(), Some("a"));
        let whole = Reader::<Pod>::new()
            .keep_managed_fields(true)
            .read(json.as_bytes())
            .unwrap();
        assert_eq!(whole.bytes(), json.trim().as_bytes());
    }
    let object = read(&pod());
    assert_eq!(object.labels().get("tier"), Some("front"));
    let mut expected = pod();
    expected["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    assert_eq!(
        serde_json::from_slice::<Value>(object.bytes()).unwrap(),
        expected
    );
}

#[test]
fn annotations_are_decoded_on_demand() {
    let metadata = read(&pod()).metadata().unwrap();
    assert_eq!(
        metadata.annotations.unwrap()["app"],
        "a \"quoted\" \\ value"
    );
    assert_eq!(metadata.labels.unwrap()["app"], "web");
}

#[test]
fn escapes_in_the_header_are_resolved() {
    let json = r#"{"metadata":{"name":"\u0061\/b","uid":"u\n","labels":{"k\"":"v\\"}}}"#;
    let object = Reader::<Pod>::new().read(json.as_bytes()).unwrap();
    assert_eq!(object.key().name(), "a/b");
    assert_eq!(object.uid(), "u\n");
    assert_eq!(object.labels().get("k\""), Some("v\\"));
    assert_eq!(object.bytes(), json.as_bytes());
}

/// Proves cache/snapshot-reads.
#[test]
fn recent_view_is_shared_by_later_reads() {
    let object = read(&pod());
    let view = Arc::downgrade(&object.get().unwrap());
    let again = object.clone().get().unwrap();
    assert!(Arc::ptr_eq(&view.upgrade().unwrap(), &again));
}

#[test]
fn eager_reader_stores_the_view() {
    let object = Reader::<Pod>::new()
        .eager(true)
        .read(pod().to_string().as_bytes())
        .unwrap();
    let weak = Arc::downgrade(&object.get().unwrap());
    assert!(weak.upgrade().is_some());
}

#[test]
fn dynamic_and_metadata_only_objects_are_kinds() {
    let json = r#"{"metadata":{"name":"a"},"spec":{"size":3}}"#;
    let reader = Reader::<DynamicObject>::new().name_kind("example.com/v1", "Thing");
    let object = reader.read(json.as_bytes()).unwrap().get().unwrap();
    assert_eq!(object.types.as_ref().unwrap().kind, "Thing");
    assert_eq!(object.data["spec"]["size"], 3);
    let reader = Reader::<PartialObjectMeta<Pod>>::new();
    let object = reader.read(pod().to_string().as_bytes()).unwrap();
    assert_eq!(object.get().unwrap().metadata.uid.as_deref(), Some("u-1"));
    let empty = Reader::<DynamicObject>::new()
        .name_kind("v1", "X")
        .read(b"{ }");
    assert!(matches!(empty, Err(ReadError::NoMetadata)));
}

#[test]
fn type_is_added_only_where_it_is_missing() {
    let named = |json: &str| {
        let object = Reader::<DynamicObject>::new()
            .name_kind("v1", "Pod")
            .read(json.as_bytes());
        let object = object.unwrap();
        assert_eq!((object.uid(), object.labels().get("a")), ("u", Some("b")));
        String::from_utf8(object.bytes().to_vec()).unwrap()
    };
    let rest = r#""metadata":{"managedFields":[],"name":"a","uid":"u","labels":{"a":"b"}}}"#;
    let kept = r#""metadata":{"name":"a","uid":"u","labels":{"a":"b"}}}"#;
    let typed = format!(r#"{{"apiVersion":"v1","kind":"Pod",{kept}"#);
    assert_eq!(named(&format!("{{{rest}")), typed);
    assert_eq!(
        named(&format!(r#"{{"apiVersion":"v1","kind":"Pod",{rest}"#)),
        typed
    );
}

/// Proves fifo/transform.
#[test]
fn transform_runs_once_and_cannot_change_the_identity() {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = calls.clone();
    let reader = Reader::<Pod>::new().transform(move |value| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert!(value["metadata"]["managedFields"].is_null());
        let metadata = value["metadata"].as_object_mut().ok_or("no metadata")?;
        metadata.remove("resourceVersion");
        metadata.remove("uid");
        metadata.insert("name".into(), "other".into());
        metadata.insert("labels".into(), json!({"app": "changed"}));
        Ok(())
    });
    let object = reader.read(pod().to_string().as_bytes()).unwrap();
    assert_eq!(object.key().to_string(), "default/web-0");
    assert_eq!((object.uid(), object.resource_version()), ("u-1", "42"));
    assert_eq!(object.labels().get("app"), Some("changed"));
    assert_eq!(object.get().unwrap().metadata.resource_version, None);
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn transform_error_names_the_object() {
    let json = pod().to_string();
    let refusing = Reader::<Pod>::new().transform(|_| Err("not today".into()));
    let error = refusing.read(json.as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "transform of object default/web-0 failed: not today"
    );
    let panicking = Reader::<Pod>::new().transform(|_| panic!("oops"));
    let error = panicking.read(json.as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "transform of object default/web-0 failed: panicked: oops"
    );
}

#[test]
fn reader_reuses_a_known_object() {
    let held = read(&pod());
    let known = held.clone();
    let reader = Reader::<Pod>::new()
        .reuse(move |namespace, name| known.key().is(namespace, name).then(|| known.clone()));
    assert!(
        reader
            .read(pod().to_string().as_bytes())
            .unwrap()
            .ptr_eq(&held)
    );
    for field in ["uid", "resourceVersion"] {
        let mut other = pod();
        other["metadata"][field] = "other".into();
        assert!(
            !reader
                .read(other.to_string().as_bytes())
                .unwrap()
                .ptr_eq(&held)
        );
    }
}

/// Proves reflector/unreadable-object.
#[test]
fn malformed_object_is_a_typed_error_with_its_key() {
    let json = pod().to_string();
    let cut = json.len() - 10;
    let error = Reader::<Pod>::new()
        .read(&json.as_bytes()[..cut])
        .unwrap_err();
    assert_eq!(
        error.key(),
        Some(&ObjectKey::namespaced("default", "web-0"))
    );
    assert!(
        matches!(error, ReadError::Malformed { at, .. } if at == cut),
        "{error}"
    );

    let mut bytes = json.clone().into_bytes();
    bytes[20] = 0xff;
    assert!(matches!(
        Reader::<Pod>::new().read(&bytes),
        Err(ReadError::NotUtf8 { at: 20 })
    ));
    for (json, expected) in [
        ("{}", "object has no metadata"),
        (r#"{"metadata":null}"#, "object has no metadata"),
        (r#"{"metadata":{}}"#, "object has no name"),
        (r#"{"metadata":{"name":""}}"#, "object has no name"),
        ("", "object is not valid JSON: expected an object at byte 0"),
        (
            r#"{"metadata":{"name":"a","labels":{"b":1}}}"#,
            "object a is not valid JSON: expected a string at byte 38",
        ),
        (
            r#"{"metadata":{"name":"a"}} {}"#,
            "object a is not valid JSON: expected nothing after the object at byte 26",
        ),
        (
            r#"{"metadata":{"name":"a","generation":"x"}}"#,
            "object a is not valid JSON: expected an integer at byte 37",
        ),
    ] {
        assert_eq!(
            Reader::<Pod>::new()
                .read(json.as_bytes())
                .unwrap_err()
                .to_string(),
            expected
        );
    }
    // What the skim skips is reported on decoding, as an error of this object.
    let odd = Reader::<Pod>::new()
        .read(br#"{"metadata":{"name":"a"},"spec":{oops}}"#)
        .unwrap();
    assert_eq!(odd.get().unwrap_err().key().name(), "a");
    let wrong = Reader::<Pod>::new()
        .read(br#"{"metadata":{"name":"a"},"spec":7}"#)
        .unwrap();
    assert!(
        wrong
            .get()
            .unwrap_err()
            .to_string()
            .starts_with("cannot decode object a: ")
    );
}

#[test]
fn debug_output_omits_contents() {
    let text = format!("{:?}", read(&pod()));
    assert!(
        text.contains("web-0") && !text.contains("worker-1"),
        "{text}"
    );
}

/// Proves cache/memory-per-object.
#[test]
fn object_overhead_is_small() {
    let object = read(&pod());
    let body = &object.inner.body;
    let held = size_of::<Inner<Pod>>() + body.heap_size() + object.key().as_str().len();
    let more = held - object.bytes().len();
    assert!(more < 600, "{more} bytes of overhead");
}

mod properties {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_json;

    proptest! {
        // The header matches a full decode, and only `managedFields` are removed.
        #[test]
        fn skim_agrees_with_a_full_decode(
            labels in proptest::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
            name in ".{1,8}", uid in ".{0,8}", pretty in any::<bool>(),
            managed in any_json(), spec in any_json(), annotation in ".{0,30}",
        ) {
            let json = json!({
                "metadata": {
                    "annotations": {"x": annotation}, "labels": labels, "managedFields": managed,
                    "name": name, "uid": uid,
                },
                "spec": spec,
            });
            let text = if pretty {
                serde_json::to_string_pretty(&json).unwrap()
            } else {
                json.to_string()
            };
            let object = Reader::<DynamicObject>::new().read(text.as_bytes()).unwrap();
            prop_assert_eq!(object.key().name(), name.as_str());
            prop_assert_eq!(object.uid(), uid.as_str());
            let read: std::collections::BTreeMap<_, _> = object
                .labels().iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            prop_assert_eq!(read, labels);
            let mut expected = json;
            expected["metadata"].as_object_mut().unwrap().remove("managedFields");
            prop_assert_eq!(serde_json::from_slice::<Value>(object.bytes()).unwrap(), expected);
        }

        #[test]
        fn reader_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0usize..900, flip in 0usize..900, byte: u8) {
            let _ = Reader::<DynamicObject>::new().read(&bytes);
            let mut json = pod().to_string().into_bytes();
            let at = flip % json.len();
            json[at] = byte;
            json.truncate(cut.max(1));
            if let Ok(object) = Reader::<DynamicObject>::new().read(&json) {
                let _ = (object.get(), object.metadata(), format!("{:?}", object.labels()));
            }
        }
    }
}
