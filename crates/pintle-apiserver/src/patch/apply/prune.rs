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
    let is_last = |other: &&Other<'_>| other.api_version == last.api_version;
    let Some(other) = write.others.iter().find(is_last) else {
        return pruned_in(merged, managed, &last.fields, shape, write.others);
    };
    // It is undone in the version it was said in.
    let here = Other {
        api_version: write.api_version,
        shape,
        there: other.back,
        back: other.there,
    };
    // Where there are more than two, all of them convert alike.
    let rest = write.others.iter().filter(|other| !is_last(other));
    let others: Vec<Other<'_>> = rest.copied().chain([here]).collect();
    let merged = other.there(merged);
    other.back(&pruned_in(
        &merged,
        managed,
        &last.fields,
        other.shape,
        &others,
    ))
}

/// The same, all in the version `last` is in; managers may have fields in others.
fn pruned_in(
    merged: &Value,
    managed: &Managed,
    last: &FieldSet,
    shape: Shape<'_>,
    others: &[Other<'_>],
) -> Value {
    let place = shape.root();
    let whole = |set: &FieldSet| walk::with_structs(set, place, merged);
    let last = whole(last);
    let first = without(merged, &last, shape);
    let is_in = |entry: &Entry, other: &Other<'_>| entry.api_version == other.api_version;
    let entries = || managed.entries.values();
    let here = entries().filter(|entry| !others.iter().any(|other| is_in(entry, other)));
    // Others' fields come back with what they stand in …
    let mut second = with_owned(merged, &first, &here.collect::<Vec<&Entry>>(), shape);
    for other in others {
        let there: Vec<&Entry> = entries().filter(|entry| is_in(entry, other)).collect();
        if !there.is_empty() {
            let (merged, left) = (other.there(merged), other.there(&second));
            second = other.back(&with_owned(&merged, &left, &there, other.shape));
        }
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
