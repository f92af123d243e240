//! Removal of fields that an applier no longer configures.

use serde_json::{Map, Value};

use super::{
    OtherVersion, Write,
    managed::{Entry, Managed},
    set::FieldSet,
    shape::Shape,
    walk,
};

/// Removes the fields that this manager applied last time and no manager owns now from the merged
/// object.
pub(super) fn pruned(
    merged: &Value,
    managed: &Managed,
    last: &Entry,
    shape: Shape<'_>,
    write: &Write<'_>,
) -> Value {
    let is_last = |other: &&OtherVersion<'_>| other.api_version == last.api_version;
    let Some(other) = write.others.iter().find(is_last) else {
        return pruned_in(merged, managed, &last.fields, shape, write.others);
    };
    // The fields are named as in the version of the last apply, so remove them in that version.
    let here = OtherVersion {
        api_version: write.api_version,
        shape,
        to_other: other.from_other,
        from_other: other.to_other,
    };
    // A built-in kind has at most two versions; the versions of a CRD all convert trivially.
    let rest = write.others.iter().filter(|other| !is_last(other));
    let others: Vec<OtherVersion<'_>> = rest.copied().chain([here]).collect();
    let merged = other.convert_to(merged);
    other.convert_back(&pruned_in(
        &merged,
        managed,
        &last.fields,
        other.shape,
        &others,
    ))
}

/// Like [`pruned`] if `last` is in the version of `shape`. Managers may own fields in `others`.
fn pruned_in(
    merged: &Value,
    managed: &Managed,
    last: &FieldSet,
    shape: Shape<'_>,
    others: &[OtherVersion<'_>],
) -> Value {
    let place = shape.root();
    let whole = |set: &FieldSet| walk::with_structs(set, place, merged);
    let last = whole(last);
    let first = without(merged, &last, shape);
    let is_in = |entry: &Entry, other: &OtherVersion<'_>| entry.api_version == other.api_version;
    let entries = || managed.entries.values();
    let here = entries().filter(|entry| !others.iter().any(|other| is_in(entry, other)));
    // Restore fields that other managers own, with their parents …
    let mut second = with_owned(merged, &first, &here.collect::<Vec<&Entry>>(), shape);
    for other in others {
        let there: Vec<&Entry> = entries().filter(|entry| is_in(entry, other)).collect();
        if !there.is_empty() {
            let (merged, left) = (other.convert_to(merged), other.convert_to(&second));
            second = other.convert_back(&with_owned(&merged, &left, &there, other.shape));
        }
    }
    // … and fields that this manager never owned.
    let kept = whole(&walk::field_set(&second, place));
    let present = whole(&walk::field_set(merged, place));
    let gone = present.difference(&kept).intersection(&last);
    without(merged, &gone, shape)
}

/// Returns what is `left` of the merged object plus the fields that `managers` own.
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
