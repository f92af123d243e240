//! Remembers what the controller applied, to skip writes that would change nothing.
//!
//! Applying every child in every reconcile is correct but costs a request each time, and only the
//! server knows exactly what an apply would change.
//!
//! # What is compared
//!
//! After each apply the controller remembers two digests for the child: of the configuration it
//! sent, and of what the server stored in the fields that configuration names. The next time it
//! skips the write if both still hold:
//!
//! 1. The configuration is the one last applied. If it changed, even just by dropping a field, the
//!    controller has to apply, because only the server knows which fields to remove.
//! 2. In those fields, the cached child still has the values that the server stored after the last
//!    apply. Maps are compared by the keys the configuration names; lists and, in the `spec`, maps
//!    of scalars are compared as a whole. All other fields of the child are ignored. A child that
//!    has not changed at all since is not even decoded.
//!
//! When in doubt, the controller applies: the first time after a start (an earlier version may have
//! applied other fields), after another writer changed a list that the configuration names, and
//! after any change to a child whose configuration names write-only fields such as `stringData`.
//! Applying a configuration that changes nothing costs a request, but no new `resourceVersion` and
//! no event.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use parking_lot::Mutex;
use serde_json::Value;

use super::{children::Contents, own_writes::GroupKind};
use crate::{cache::ObjectKey, object::Header};

/// The last configuration that the controller applied to each child.
///
/// Holds at most twice as many records per kind as the cache holds objects, plus [`SLACK`].
#[derive(Default)]
pub(super) struct AppliedConfigurations {
    kinds: Mutex<BTreeMap<GroupKind, BTreeMap<ObjectKey, Record>>>,
}

/// How many records beyond twice the number of cached objects trigger the removal of stale ones.
const SLACK: usize = 64;

/// The configuration that was sent, and the result on the server.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The digest of the configuration.
    sent: u64,
    /// The digest of the stored fields that the configuration names.
    stored: Stored,
    /// The newest version known to have these fields.
    resource_version: String,
}

impl Record {
    pub(super) fn new(sent: u64, config: &Value, object: &Value, resource_version: &str) -> Self {
        Self {
            sent,
            stored: Stored::of(config, object),
            resource_version: resource_version.to_owned(),
        }
    }

    pub(super) fn of_cached(sent: u64, config: &Value, cached: &dyn Header) -> Option<Self> {
        let object = serde_json::from_slice(cached.bytes()).ok()?;
        Some(Self::new(sent, config, &object, cached.resource_version()))
    }
}

impl AppliedConfigurations {
    /// Forgets everything, because another replica may have applied since.
    pub(super) fn clear(&self) {
        self.kinds.lock().clear();
    }

    /// Returns whether `cached` still matches the result of the last apply of this configuration.
    pub(super) fn is_current(
        &self,
        kind: &GroupKind,
        cached: &dyn Header,
        digest: u64,
        config: &Value,
    ) -> bool {
        let key = cached.key();
        let record = |kinds: &BTreeMap<_, BTreeMap<_, Record>>| kinds.get(kind)?.get(key).cloned();
        let Some(record) = record(&self.kinds.lock()).filter(|record| record.sent == digest) else {
            return false;
        };
        if record.resource_version == cached.resource_version() {
            return true;
        }
        let Some(now) = Record::of_cached(digest, config, cached) else {
            return false;
        };
        if !now.stored.is_complete || now.stored != record.stored {
            return false;
        }
        // The next comparison with this version need not decode it.
        if let Some(records) = self.kinds.lock().get_mut(kind)
            && let Some(known) = records.get_mut(key)
            && known.sent == digest
        {
            known.resource_version = now.resource_version;
        }
        true
    }

    pub(super) fn remember(
        &self,
        kind: &GroupKind,
        key: &ObjectKey,
        record: Option<Record>,
        cache: &dyn Contents,
    ) {
        let mut kinds = self.kinds.lock();
        let records = kinds.entry(kind.clone()).or_default();
        match record {
            Some(record) => records.insert(key.clone(), record),
            None => records.remove(key),
        };
        if records.len() > 2 * cache.len() + SLACK {
            records.retain(|known, _| known == key || cache.get(known).is_some());
        }
    }
}

/// A digest of the fields of an object that a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    digest: u64,
    /// Whether the object has every field that the configuration sets. A missing field is
    /// write-only or was dropped, so its value cannot be checked.
    is_complete: bool,
}

impl Stored {
    fn of(config: &Value, object: &Value) -> Self {
        let mut hasher = DefaultHasher::new();
        let mut is_complete = true;
        for (name, value) in config.as_object().into_iter().flatten() {
            // Objects from a list response carry neither.
            if !matches!(name.as_str(), "apiVersion" | "kind") {
                let in_spec = name == "spec";
                is_complete &= hash_named(value, object.get(name), in_spec, &mut hasher);
            }
        }
        Self {
            digest: hasher.finish(),
            is_complete,
        }
    }
}

/// Hashes the fields of `object` that `config` sets. Returns whether all of them are present.
///
/// A map of scalars in the `spec` is hashed whole: it may be atomic, as selectors are, and then a
/// key that another writer adds is a change to our field.
fn hash_named(
    config: &Value,
    object: Option<&Value>,
    in_spec: bool,
    hasher: &mut DefaultHasher,
) -> bool {
    match (config, object) {
        (Value::Object(fields), _) => {
            // An empty object can be a value, such as the choice of one of several variants.
            hasher.write_u8(u8::from(object.is_some()));
            let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
            if in_spec && fields.values().all(is_scalar) {
                object.hash(hasher);
            }
            let object = object.and_then(Value::as_object);
            let mut is_complete = true;
            for (name, value) in fields {
                let found = object.and_then(|object| object.get(name));
                is_complete &= hash_named(value, found, in_spec, hasher);
            }
            is_complete
        }
        (_, Some(value)) => {
            value.hash(hasher);
            true
        }
        // Servers drop empty values.
        (config, None) => {
            hasher.write_u8(0);
            config.is_null() || config.as_array().is_some_and(Vec::is_empty)
        }
    }
}

pub(super) fn digest(config: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    config.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
