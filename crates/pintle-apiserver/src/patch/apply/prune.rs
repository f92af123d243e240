//! What goes when a manager no longer says it.

use serde_json::{Map, Value};

use super::{
    Other, Write,
    managed::{Entry, Managed},
    set::FieldSet,
    shape::Shape,
    walk,
};

/// The merged object without what its manager said last time and nobody says now.
pub(super) fn pruned(
    merged: &Value,
    managed: &Managed,
    last: &Entry,
    shape: Shape<'_>,
    write: &Write<'_>,
) -> Value {
    match write.other {
        // It is undone in the version it was said in.
        Some(other) if other.api_version == last.api_version => {
            let here = Other {
                api_version: write.api_version,
                shape,
                there: other.back,
                back: other.there,
            };
            let merged = other.there(merged);
            let left = pruned_in(&merged, managed, &last.fields, other.shape, Some(here));
            other.back(&left)
        }
        other => pruned_in(merged, managed, &last.fields, shape, other),
    }
}

/// The same, all in the version `last` is in; others may have fields in the other one.
fn pruned_in(
    merged: &Value,
    managed: &Managed,
    last: &FieldSet,
    shape: Shape<'_>,
    other: Option<Other<'_>>,
) -> Value {
    let place = shape.root();
    let whole = |set: &FieldSet| walk::with_structs(set, place, merged);
    let last = whole(last);
    let first = without(merged, &last, shape);
    let is_there = |entry: &&Entry| other.is_some_and(|o| o.api_version == entry.api_version);
    let (there, here): (Vec<&Entry>, Vec<&Entry>) = managed.entries.values().partition(is_there);
    // Others' fields come back with what they stand in …
    let mut second = with_owned(merged, &first, &here, shape);
    if let Some(other) = other.filter(|_| !there.is_empty()) {
        let (merged, left) = (other.there(merged), other.there(&second));
        second = other.back(&with_owned(&merged, &left, &there, other.shape));
    }
    // … and so does what was never this manager's to remove.
    let kept = whole(&walk::field_set(&second, place));
    let present = whole(&walk::field_set(merged, place));
    let gone = present.difference(&kept).intersection(&last);
    without(merged, &gone, shape)
}

/// Of the merged object what is `left`, and what managers have.
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
