//! A stored object: a small parsed header and its encoded bytes, which are never encoded again.
//!
//! The bytes leave out what differs between readers: `apiVersion` and `kind` (a resource may be
//! served in several versions, and lists of built-in kinds leave them out) and
//! `metadata.resourceVersion` (assigned by the commit). Writing an object is therefore three
//! copies: a prefix, the revision, and the rest. Two contents are the same state exactly when their
//! bytes are.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Map, Value};

/// What selectors and preconditions ask of an object, parsed once when it is written.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The kind's selectable fields and their values, in the kind's order.
    pub(crate) fields: Vec<String>,
    pub(crate) deleting: bool,
    /// The mark of the schema whose defaults a custom resource is known to have; 0 for none.
    pub(crate) defaulted_by: u64,
    /// The nesting depth of the object.
    pub(crate) depth: usize,
}

/// One state of an object, before or without a revision.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) header: Header,
    /// Everything behind the type and `"metadata":{"resourceVersion":"N",`.
    rest: Bytes,
}

impl Content {
    /// Encodes an object. `fields` are the values of the kind's selectable fields.
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
            defaulted_by: 0,
            depth: 0,
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

    /// Takes an object that is encoded already: see [`Content`] for what `rest` holds.
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

    /// Whether both are the same state.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.rest == other.rest
    }

    /// Appends the object as JSON, with the type written as `prefix` (see [`type_prefix`]).
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

    /// The object as a tree, without its type.
    pub(crate) fn decode(&self, revision: Option<u64>) -> Map<String, Value> {
        #[cfg(test)]
        DECODED.set(DECODED.get() + 1);
        let mut json = Vec::new();
        self.write(&mut json, "{", revision);
        // The bytes are our own, and nothing is stored that nests too deeply: they always decode.
        serde_json::from_slice(&json).unwrap_or_default()
    }

    /// Whether the encoded bytes contain `text`: a cheap filter before decoding.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.rest.windows(text.len()).any(|piece| piece == text)
    }

    /// How many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
thread_local! {
    /// Counts the objects decoded by this thread, as a measure of work.
    pub(crate) static DECODED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The opening of an object of a built-in kind: `{"kind":"Pod","apiVersion":"v1",`, in the order Go
/// encodes `TypeMeta`.
pub(crate) fn type_prefix(api_version: &str, kind: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// The opening of a custom resource, which upstream encodes as a map with sorted keys.
pub(crate) fn custom_type_prefix(api_version: &str, kind: &str) -> String {
    format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",")
}

fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>) {
    let start = out.len();
    // Writing JSON into memory cannot fail: keys are strings and a `Vec` grows.
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
    /// `namespace/name`, or `name` where there are no namespaces.
    pub(crate) key: Arc<str>,
    /// 0 for one that is answered and never stored.
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

    /// The revision, if it is stored.
    pub(crate) fn stored_revision(&self) -> Option<u64> {
        Some(self.revision).filter(|revision| *revision != 0)
    }

    /// Appends the object as JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>, prefix: &str) {
        self.content.write(out, prefix, self.stored_revision());
    }

    /// The object as a tree, without its type.
    pub(crate) fn decode(&self) -> Map<String, Value> {
        self.content.decode(self.stored_revision())
    }
}

/// The key of an object: the order of lists.
pub(crate) fn key_of(namespace: Option<&str>, name: &str) -> Arc<str> {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content(value: Value) -> Content {
        let Value::Object(map) = value else {
            panic!("an object")
        };
        Content::encode(map, Vec::new())
    }

    #[test]
    fn what_is_written_is_what_was_encoded() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "resourceVersion": "7", "labels": {"x": "y"}},
            "spec": {"n": 1}});
        let content = content(pod.clone());
        let mut out = Vec::new();
        content.write(&mut out, &type_prefix("v1", "Pod"), Some(7));
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), pod);
        assert_eq!(content.header.labels["x"], "y");
    }

    #[test]
    fn the_revision_is_no_part_of_the_state() {
        let at = |rv: &str| content(json!({"metadata": {"name": "a", "resourceVersion": rv}}));
        assert!(at("1").same_as(&at("2")));
    }
}
