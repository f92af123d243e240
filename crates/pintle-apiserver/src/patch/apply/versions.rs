//! Managers that wrote in different versions of a kind: each is compared in the names of its own.

use serde_json::{Map, Value};

use super::{
    Write, filtered,
    managed::{Entry, Managed},
    shape::Shape,
    walk::{self, Changes},
};

/// Another version of a kind: who wrote in it has fields under the names of that version, and of
/// lists what that version takes for one field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Other<'a> {
    /// `autoscaling/v1`.
    pub api_version: &'a str,
    /// How its objects are shaped.
    pub shape: Shape<'a>,
    /// From the version the request speaks to this one.
    pub there: fn(Map<String, Value>) -> Map<String, Value>,
    /// From this version to the one the request speaks.
    pub back: fn(Map<String, Value>) -> Map<String, Value>,
}

impl Other<'_> {
    pub(super) fn there(&self, object: &Value) -> Value {
        converted(object, self.there)
    }

    pub(super) fn back(&self, object: &Value) -> Value {
        converted(object, self.back)
    }
}

fn converted(object: &Value, way: fn(Map<String, Value>) -> Map<String, Value>) -> Value {
    Value::Object(way(object.as_object().cloned().unwrap_or_default()))
}

/// What a write changes, in the names of each version its managers wrote in.
pub(super) struct Seen<'a> {
    pub(super) here: Changes,
    there: Vec<(&'a str, Changes)>,
}

impl<'a> Seen<'a> {
    /// Looks only at those other versions that one of the managers wrote in.
    pub(super) fn new(
        before: &Value,
        after: &Value,
        shape: Shape<'_>,
        managed: &Managed,
        write: &Write<'a>,
    ) -> Self {
        let compare = |before: &Value, after: &Value, shape: Shape<'_>| {
            filtered(walk::compare(before, after, shape.root()), write.reset)
        };
        let wrote_in = |other: &&Other<'a>| {
            let mut entries = managed.entries.values();
            entries.any(|entry| entry.api_version == other.api_version)
        };
        let others = write.others.iter().filter(wrote_in).map(|other| {
            let (before, after) = (other.there(before), other.there(after));
            (other.api_version, compare(&before, &after, other.shape))
        });
        Self {
            here: compare(before, after, shape),
            there: others.collect(),
        }
    }

    /// What changes for the manager of an entry.
    pub(super) fn by(&self, entry: &Entry) -> &Changes {
        let there = self.there.iter();
        let mut there = there.filter(|(version, _)| entry.api_version == *version);
        there.next().map_or(&self.here, |(_, changes)| changes)
    }
}

/// Forgets managers that wrote in a version which cannot be compared with: nothing tells what of
/// theirs is left.
pub(super) fn forget_unknown(managed: &mut Managed, shape: Shape<'_>, write: &Write<'_>) {
    // What a definition no longer has was named as in its other versions.
    if !matches!(shape, Shape::Builtin(_)) {
        return;
    }
    managed.entries.retain(|_, entry| {
        let mut others = write.others.iter();
        entry.api_version == write.api_version
            || others.any(|other| entry.api_version == other.api_version)
    });
}
