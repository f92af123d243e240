//! Splits the body of a watch into events while it arrives.

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use serde::Deserialize;
use std::{borrow::Cow, collections::BTreeMap};

use super::{ApiError, BodyError, WatchEvent};
use crate::{json::members, object::ObjectKey};

/// The annotation that marks the bookmark at the end of the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Splits the body of a watch, which arrives in chunks of any size, into lines of bounded length.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// The length of the buffer that is known to contain no line end.
    searched: usize,
    limit: usize,
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            limit,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next complete line that is not blank.
    pub(super) fn next_line(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let Some(end) = memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return if self.searched > self.limit {
                    Err(self.too_large())
                } else {
                    Ok(None)
                };
            };
            let end = self.searched + end;
            if end > self.limit {
                return Err(self.too_large());
            }
            let line = self.buffer.split_to(end + 1).freeze();
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Returns whether the buffer holds a partial line. At the end of the body this means that the
    /// connection broke in the middle of an event.
    pub(super) fn has_partial_line(&self) -> bool {
        !self.buffer.trim_ascii().is_empty()
    }

    fn too_large(&self) -> BodyError {
        BodyError::TooLarge {
            what: "a line of the watch",
            limit: self.limit,
        }
    }
}

/// Parses the envelope of an event and leaves its object unparsed.
pub(super) fn parse_event(line: &Bytes) -> Result<WatchEvent, BodyError> {
    let (kind, object) = envelope(line).ok_or(BodyError::NotAnEvent)?;
    Ok(match &*kind {
        "ADDED" => WatchEvent::Added(object),
        "MODIFIED" => WatchEvent::Modified(object),
        "DELETED" => WatchEvent::Deleted(object),
        "BOOKMARK" => bookmark(&object)?,
        "ERROR" => WatchEvent::Error(ApiError::parse(&object).unwrap_or_else(|| {
            ApiError::new(
                500,
                "",
                "the server ended the watch with an unreadable error",
            )
        })),
        _ => WatchEvent::Unknown {
            kind: kind.into_owned(),
            object,
        },
    })
}

fn envelope(line: &Bytes) -> Option<(Cow<'_, str>, Bytes)> {
    // API servers write exactly this form, in which the object is found without scanning it.
    if let Some(rest) = line.strip_prefix(br#"{"type":""#)
        && let Some(end) = memchr(b'"', rest)
        && let Ok(kind) = std::str::from_utf8(&rest[..end])
        && let Some(object) = rest[end..].strip_prefix(br#"","object":"#)
        && let Some(object) = object.trim_ascii_end().strip_suffix(b"}")
        && object.first() == Some(&b'{')
        && object.last() == Some(&b'}')
    {
        return Some((Cow::Borrowed(kind), line.slice_ref(object)));
    }
    let mut kind = None;
    let mut object = None;
    for (key, value) in members(line) {
        match key {
            b"type" => kind = Some(serde_json::from_slice::<String>(value).ok()?),
            b"object" => object = Some(line.slice_ref(value)),
            _ => {}
        }
    }
    Some((Cow::Owned(kind?), object?))
}

fn bookmark(object: &[u8]) -> Result<WatchEvent, BodyError> {
    let object: Bookmark<'_> = serde_json::from_slice(object).map_err(|_| BodyError::NotAnEvent)?;
    let annotations = object.metadata.annotations.unwrap_or_default();
    Ok(WatchEvent::Bookmark {
        resource_version: object.metadata.resource_version.into_owned(),
        initial_events_end: annotations
            .get(INITIAL_EVENTS_END)
            .is_some_and(|value| value == "true"),
    })
}

/// Returns the `resourceVersion` of an object that could not be read as a whole.
pub(crate) fn peek_resource_version(object: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Outer {
        metadata: Inner,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Inner {
        resource_version: String,
    }
    let outer: Outer = serde_json::from_slice(object).ok()?;
    Some(outer.metadata.resource_version).filter(|version| !version.is_empty())
}

/// Returns the key of an object that is malformed or incomplete, if it can be found.
pub(crate) fn peek_key(object: &[u8]) -> Option<ObjectKey> {
    let (_, metadata) = members(object).find(|(key, _)| *key == b"metadata")?;
    let (mut name, mut namespace) = (None, None);
    for (key, value) in members(metadata) {
        match key {
            b"name" => name = plain(value),
            b"namespace" => namespace = plain(value),
            _ => {}
        }
    }
    Some(ObjectKey::new(namespace, name?))
}

/// Returns the UID of an object that is malformed or incomplete, if it can be found.
pub(crate) fn peek_uid(object: &[u8]) -> Option<&str> {
    let (_, metadata) = members(object).find(|(key, _)| *key == b"metadata")?;
    let (_, uid) = members(metadata).find(|(key, _)| *key == b"uid")?;
    plain(uid).filter(|uid| !uid.is_empty())
}

/// Returns the `apiVersion` and `kind` of an object, where they are strings without escapes.
///
/// API servers write both first, so this usually reads only a few dozen bytes.
pub(crate) fn peek_type(object: &[u8]) -> (Option<&str>, Option<&str>) {
    let (mut api_version, mut kind) = (None, None);
    for (key, value) in members(object) {
        match key {
            b"apiVersion" => api_version = plain(value),
            b"kind" => kind = plain(value),
            _ => continue,
        }
        if api_version.is_some() && kind.is_some() {
            break;
        }
    }
    (api_version, kind)
}

/// Returns the content of a string literal that has no escapes.
fn plain(quoted: &[u8]) -> Option<&str> {
    let text = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    std::str::from_utf8(text)
        .ok()
        .filter(|text| !text.contains('\\'))
}

#[derive(Deserialize)]
struct Bookmark<'a> {
    #[serde(borrow)]
    metadata: BookmarkMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    annotations: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests;
