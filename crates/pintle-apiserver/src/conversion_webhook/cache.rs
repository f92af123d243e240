//! A cache of recently converted objects.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::store::Object;

/// The maximum number of cached objects of a CRD.
const MAX_OBJECTS: usize = 4096;
/// The maximum size of the cached objects of a CRD, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// An object in a version. Its content is part of the key, because a state that is not stored yet
/// has no revision of its own.
type Key = (u64, String, Arc<str>, u64, usize);

/// Converted objects, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Holds the stored object, because its address is part of the key and must not be reused.
    objects: BTreeMap<Key, (Arc<Object>, Arc<Object>)>,
    order: VecDeque<Key>,
    bytes: usize,
}

fn key(generation: u64, version: &str, object: &Object) -> Key {
    let content = Arc::as_ptr(&object.content) as usize;
    let (key, revision) = (Arc::clone(&object.key), object.revision);
    (generation, version.to_owned(), key, revision, content)
}

impl Cache {
    /// Returns an object in a version.
    pub(super) fn get(
        &self,
        generation: u64,
        version: &str,
        object: &Object,
    ) -> Option<Arc<Object>> {
        let (_, found) = self.objects.get(&key(generation, version, object))?;
        Some(Arc::clone(found))
    }

    /// Adds an object, and drops the oldest ones beyond the limits.
    pub(super) fn put(
        &mut self,
        generation: u64,
        version: &str,
        stored: &Arc<Object>,
        converted: &Arc<Object>,
    ) {
        let key = key(generation, version, stored);
        let value = (Arc::clone(stored), Arc::clone(converted));
        self.bytes += size(&value);
        if let Some(before) = self.objects.insert(key.clone(), value) {
            self.bytes -= size(&before);
        } else {
            self.order.push_back(key);
        }
        while self.objects.len() > MAX_OBJECTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if let Some(dropped) = self.objects.remove(&oldest) {
                self.bytes -= size(&dropped);
            }
        }
    }
}

fn size((stored, converted): &(Arc<Object>, Arc<Object>)) -> usize {
    stored.content.len() + converted.content.len()
}

#[cfg(test)]
mod tests;
