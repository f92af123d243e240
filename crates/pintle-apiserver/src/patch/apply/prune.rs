//! Removal of fields that an applier no longer configures.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    Unconverted, Write,
    managed::{Entry, Managed},
    set::FieldSet,
    shape::Shape,
    walk,
};

/// Removes from the merged object the fields that this manager applied last time and no manager
/// owns now.
pub(super) fn pruned(
    merged: &Value,
    managed: &Managed,
    last: &Entry,
    shape: Shape<'_>,
    write: &Write<'_>,
) -> Result<Value, Unconverted> {
    // The fields are named as in the version of the last apply, so remove them in that version.
    let at = write.version_of(last);
    let merged = &*write.convert(merged, write.api_version, at)?;
    let there = write.shape_of(at, shape);
    let place = there.root();
    let whole = |set: &FieldSet| walk::with_structs(set, place, merged);
    let last = whole(&last.fields);
    // Restore fields that other managers own, with their parents, in the version of each …
    let mut owned = (Cow::Borrowed(merged), without(merged, &last, there), at);
    let versions = write.others.iter().map(|other| other.api_version);
    let rest = versions.chain([write.api_version]).filter(|v| *v != at);
    for version in [at].into_iter().chain(rest) {
        let is_in = |entry: &&Entry| write.version_of(entry) == version;
        let entries: Vec<&Entry> = managed.entries.values().filter(is_in).collect();
        if entries.is_empty() {
            continue;
        }
        let (all, left, from) = &owned;
        let all = write.convert(all, from, version)?.into_owned();
        let left = write.convert(left, from, version)?;
        let left = with_owned(&all, &left, &entries, write.shape_of(version, shape));
        owned = (Cow::Owned(all), left, version);
    }
    let (_, left, from) = &owned;
    let second = write.convert(left, from, at)?;
    // … and fields that this manager never owned.
    let kept = whole(&walk::field_set(&second, place));
    let present = whole(&walk::field_set(merged, place));
    let gone = present.difference(&kept).intersection(&last);
    let pruned = without(merged, &gone, there);
    Ok(write.convert(&pruned, at, write.api_version)?.into_owned())
}

/// Returns `left`, the rest of the merged object, plus the fields that `managers` own.
fn with_owned(merged: &Value, left: &Value, managers: &[&Entry], shape: Shape<'_>) -> Value {
    let place = shape.root();
    let whole = |set: &FieldSet| walk::with_structs(set, place, merged);
    let owned = managers.iter();
    let owned = owned.fold(FieldSet::default(), |all, e| all.union(&e.fields));
    let kept = whole(&walk::field_set(left, place)).union(&whole(&owned));
    let present = whole(&walk::field_set(merged, place));
    without(merged, &present.difference(&kept), shape)
}

fn without(object: &Value, gone: &FieldSet, shape: Shape<'_>) -> Value {
    walk::remove(object, gone, shape.root()).unwrap_or_else(|| Value::Object(Map::new()))
}
