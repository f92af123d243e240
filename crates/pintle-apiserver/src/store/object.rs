//! A stored object: a small parsed header plus encoded bytes that are never re-encoded.
//!
//! The bytes omit what differs between readers: `apiVersion` and `kind` (a resource may be served
//! in several versions, and lists of built-in kinds omit them) and `metadata.resourceVersion`
//! (assigned at commit). Serving an object is therefore three copies: a type prefix, the revision
//! and the rest. Two contents are the same state if and only if their bytes and the versions they
//! are stored in are equal.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Map, Value};

/// The parts of an object that selectors and preconditions need, parsed once per write.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The values of the kind's selectable fields, in the kind's order.
    pub(crate) fields: Vec<String>,
    pub(crate) deleting: bool,
    /// The fingerprint of the schema by which this custom resource is known to be pruned and
    /// defaulted.
    pub(crate) settled_by: Option<u64>,
    /// The nesting depth of the object.
    pub(crate) depth: usize,
    /// The `apiVersion` in which a custom resource is stored; `None` for built-in kinds, which have
    /// one stored form.
    pub(crate) version: Option<Arc<str>>,
}

/// One state of an object, without a revision.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) header: Header,
    /// Everything after the type and `"metadata":{"resourceVersion":"N",`.
    rest: Bytes,
}

impl Content {
    /// Encodes an object. `fields` holds the values of the kind's selectable fields.
    pub(crate) fn encode(mut object: Map<String, Value>, fields: Vec<String>) -> Self {
        object.remove("apiVersion");
        object.remove("kind");
        let mut metadata = match object.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        metadata.remove("resourceVersion");
        let header = Header {
            uid: metadata
                .get("uid")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            labels: string_map(metadata.get("labels")),
            deleting: metadata
                .get("deletionTimestamp")
                .is_some_and(|v| !v.is_null()),
            fields,
            settled_by: None,
            depth: 0,
            version: None,
        };
        let mut rest = Vec::with_capacity(512);
        write_members(&mut rest, &metadata);
        rest.push(b'}');
        if !object.is_empty() {
            rest.push(b',');
            write_members(&mut rest, &object);
        }
        rest.push(b'}');
        Self {
            header,
            rest: rest.into(),
        }
    }

    /// Wraps an already encoded object; see [`Content`] for the layout of `rest`.
    pub(crate) fn encoded(uid: String, labels: BTreeMap<String, String>, rest: String) -> Self {
        let header = Header {
            uid,
            labels,
            ..Header::default()
        };
        Self {
            header,
            rest: rest.into(),
        }
    }

    /// Returns true if both are the same state.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.rest == other.rest && self.header.version == other.header.version
    }

    /// Appends the object as JSON, starting with `prefix` (see [`type_prefix`]).
    pub(crate) fn write(&self, out: &mut Vec<u8>, prefix: &str, revision: Option<u64>) {
        out.reserve(prefix.len() + self.rest.len() + 56);
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(b"\"metadata\":{");
        if let Some(revision) = revision {
            out.extend_from_slice(b"\"resourceVersion\":\"");
            out.extend_from_slice(revision.to_string().as_bytes());
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(&self.rest);
    }

    /// Decodes the object, without its type.
    pub(crate) fn decode(&self, revision: Option<u64>) -> Map<String, Value> {
        #[cfg(test)]
        DECODED.set(DECODED.get() + 1);
        let mut json = Vec::new();
        self.write(&mut json, "{", revision);
        // These are our own bytes, and the depth limit applies before storing, so they always
        // decode.
        //
        // Validating them once is cheaper than validating every string in them.
        let json = std::str::from_utf8(&json).unwrap_or_default();
        serde_json::from_str(json).unwrap_or_default()
    }

    /// Returns true if the encoded bytes contain `text`: a cheap filter before decoding.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        memchr::memmem::find(&self.rest, text.as_bytes()).is_some()
    }

    /// Returns the length of the encoded bytes.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
thread_local! {
    /// Counts objects decoded on this thread, so that tests can measure work.
    pub(crate) static DECODED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns how an object of a built-in kind starts: `{"kind":"Pod","apiVersion":"v1",`, in the
/// order in which Go encodes `TypeMeta`.
pub(crate) fn type_prefix(api_version: &str, kind: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// Returns how a custom resource starts. Upstream encodes those as maps with sorted keys.
pub(crate) fn custom_type_prefix(api_version: &str, kind: &str) -> String {
    format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",")
}

fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>) {
    let start = out.len();
    // Writing JSON to a `Vec` cannot fail: keys are strings.
    if serde_json::to_writer(&mut *out, members).is_ok() {
        out.remove(start);
        out.pop();
    }
}

fn string_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let Some(Value::Object(map)) = value else {
        return BTreeMap::new();
    };
    map.iter()
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
        .collect()
}

/// A stored object at one revision.
#[derive(Debug)]
pub(crate) struct Object {
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub(crate) key: Arc<str>,
    /// The `resourceVersion`; 0 for objects that are returned but never stored.
    pub(crate) revision: u64,
    pub(crate) content: Arc<Content>,
}

impl Object {
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.key.split_once('/').map(|(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    pub(crate) fn header(&self) -> &Header {
        &self.content.header
    }

    /// Returns the revision if the object is stored.
    pub(crate) fn stored_revision(&self) -> Option<u64> {
        Some(self.revision).filter(|revision| *revision != 0)
    }

    /// Appends the object as JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>, prefix: &str) {
        self.content.write(out, prefix, self.stored_revision());
    }

    /// Decodes the object, without its type.
    pub(crate) fn decode(&self) -> Map<String, Value> {
        self.content.decode(self.stored_revision())
    }
}

/// Returns the key of an object. Lists are ordered by key.
pub(crate) fn key_of(namespace: Option<&str>, name: &str) -> Arc<str> {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests;
