//! Object headers: skimming an object finds the same metadata as decoding it.

#![no_main]

use k8s_openapi::api::core::v1::Pod;
use libfuzzer_sys::fuzz_target;
use pintle::cache::Reader;
use pintle_fuzz::keys_are_distinct;

fuzz_target!(|input: &[u8]| {
    let Ok(object) = Reader::<Pod>::new().read(input) else {
        return;
    };
    assert!(std::str::from_utf8(object.bytes()).is_ok());
    let _ = object.get();
    if !keys_are_distinct(input) {
        return;
    }
    let Ok(metadata) = object.metadata() else {
        return;
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    assert_eq!(text(&metadata.name), object.key().name());
    assert_eq!(text(&metadata.uid), object.uid());
    assert_eq!(text(&metadata.resource_version), object.resource_version());
    assert_eq!(
        metadata.deletion_timestamp.is_some(),
        object.is_being_deleted()
    );
    let labels = metadata.labels.unwrap_or_default();
    assert_eq!(labels.len(), object.labels().len());
    for (key, value) in &labels {
        assert_eq!(object.labels().get(key), Some(value.as_str()));
    }
    assert!(metadata.managed_fields.is_none(), "managedFields must be dropped");
    // Reading is idempotent.
    let again = Reader::<Pod>::new().read(object.bytes());
    assert_eq!(again.expect("an object must be readable from its own bytes").bytes(), object.bytes());
});
