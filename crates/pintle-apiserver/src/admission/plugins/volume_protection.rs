//! `StorageObjectInUseProtection`: a finalizer keeps volumes and claims while they are in use.

use serde_json::{Value, json};

use crate::{
    admission::{Plugin, Request},
    api::{Api, ApiError},
    meta::{self, Tree},
};

/// The kinds that are protected, each with its finalizer.
const PROTECTED: [(&str, &str); 2] = [
    ("persistentvolumes", "kubernetes.io/pv-protection"),
    ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
];

/// Adds the finalizers that the controllers of volume protection remove.
#[derive(Debug)]
pub(crate) struct VolumeProtection;

fn finalizer(request: &Request<'_>) -> Option<&'static str> {
    let mut protected = PROTECTED.iter();
    let (_, finalizer) = protected.find(|(plural, _)| request.creates("", plural))?;
    Some(finalizer)
}

impl Plugin for VolumeProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        finalizer(request).is_some()
    }

    fn mutate(&self, _: &Api, request: &Request<'_>, object: &mut Tree) -> Result<(), ApiError> {
        let Some(finalizer) = finalizer(request) else {
            return Ok(());
        };
        let all = meta::metadata(object).entry("finalizers");
        let all = all.or_insert(Value::Null);
        match all {
            Value::Array(all) if all.iter().any(|other| other == finalizer) => {}
            Value::Array(all) => all.push(finalizer.into()),
            all => *all = json!([finalizer]),
        }
        Ok(())
    }
}
