//! Field ownership across versions: each manager is compared in the version it wrote in.

use serde_json::{Map, Value};

use super::{
    Write, filtered,
    managed::{Entry, Managed},
    shape::Shape,
    walk::{self, Changes},
};

/// Another version of a kind. A manager that wrote in it owns fields under that version's names,
/// with that version's list types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OtherVersion<'a> {
    /// For example `autoscaling/v1`.
    pub api_version: &'a str,
    /// The schema of that version.
    pub shape: Shape<'a>,
    /// Converts from the version of the request to this one.
    pub to_other: fn(Map<String, Value>) -> Map<String, Value>,
    /// Converts from this version to that of the request.
    pub from_other: fn(Map<String, Value>) -> Map<String, Value>,
}

impl OtherVersion<'_> {
    pub(super) fn convert_to(self, object: &Value) -> Value {
        converted(object, self.to_other)
    }

    pub(super) fn convert_back(self, object: &Value) -> Value {
        converted(object, self.from_other)
    }
}

fn converted(object: &Value, convert: fn(Map<String, Value>) -> Map<String, Value>) -> Value {
    Value::Object(convert(object.as_object().cloned().unwrap_or_default()))
}

/// The changes of a write, as seen in each version that a manager wrote in.
pub(super) struct VersionedChanges<'a> {
    pub(super) here: Changes,
    others: Vec<(&'a str, Changes)>,
}

impl<'a> VersionedChanges<'a> {
    /// Compares `before` and `after`, in other versions only if a manager wrote in them.
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
        let wrote_in = |other: &&OtherVersion<'a>| {
            let mut entries = managed.entries.values();
            entries.any(|entry| entry.api_version == other.api_version)
        };
        let others = write.others.iter().filter(wrote_in).map(|other| {
            let (before, after) = (other.convert_to(before), other.convert_to(after));
            (other.api_version, compare(&before, &after, other.shape))
        });
        Self {
            here: compare(before, after, shape),
            others: others.collect(),
        }
    }

    /// Returns the changes in the version of an entry.
    pub(super) fn seen_by(&self, entry: &Entry) -> &Changes {
        let mut others = self.others.iter();
        others
            .find(|(version, _)| entry.api_version == *version)
            .map_or(&self.here, |(_, changes)| changes)
    }
}

/// Drops managers that wrote in an unknown version of a built-in kind: their fields can no longer
/// be compared.
pub(super) fn drop_unknown_versions(managed: &mut Managed, shape: Shape<'_>, write: &Write<'_>) {
    // All versions of a CRD use the same field names, including versions that were removed.
    if !matches!(shape, Shape::Builtin(_)) {
        return;
    }
    managed.entries.retain(|_, entry| {
        let mut others = write.others.iter();
        entry.api_version == write.api_version
            || others.any(|other| entry.api_version == other.api_version)
    });
}
