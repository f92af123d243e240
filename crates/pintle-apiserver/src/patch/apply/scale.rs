//! Who manages the replica count of an object, as it is told by its scale.
//!
//! A scale is its object seen through a slit: of the managers of the object only those that have the
//! replica count are managers of the scale, and what becomes of them there becomes of that one field
//! of theirs in the object.

use serde_json::{Value, json};

use super::{
    managed::{self, Entry, Id, Managed},
    set::FieldSet,
};

/// The version scales are written in.
pub(crate) const SCALE: &str = "autoscaling/v1";

/// Puts the managers of an object that have its replica count, which stands at `path`, into its scale.
pub(crate) fn show(object: &Value, path: &[&str], scale: &mut Value) {
    let count = FieldSet::of(&[path]);
    let all = Managed::read(managed::list(object)).unwrap_or_default();
    let shown = all
        .entries
        .into_iter()
        .filter(|(_, entry)| has(entry, &count));
    let shown = shown.map(|(id, entry)| {
        let id = Id {
            api_version: version_of(&id, SCALE),
            ..id
        };
        let entry = Entry {
            api_version: SCALE.to_owned(),
            fields: FieldSet::of(&[&["spec", "replicas"]]),
            ..entry
        };
        (id, entry)
    });
    let shown = Managed {
        entries: shown.collect(),
    };
    shown.write(scale);
}

/// Gives the replica count of `object`, which is written in `api_version`, to the managers of its
/// scale.
///
/// Differs from kube-apiserver, which takes a manager that updates for another one when it comes
/// back, and in the end forgets that it has the field.
pub(crate) fn keep(object: &mut Value, path: &[&str], api_version: &str, scale: &Value) {
    let count = FieldSet::of(&[path]);
    let mut all = Managed::read(managed::list(object)).unwrap_or_default();
    let mut now = Managed::read(managed::list(scale)).unwrap_or_default();
    for (id, entry) in &mut all.entries {
        let seen = Id {
            api_version: version_of(id, SCALE),
            ..id.clone()
        };
        if has(entry, &count) && now.entries.remove(&seen).is_none() {
            entry.fields.remove(&count);
        }
    }
    for id in now.entries.into_keys() {
        let id = Id {
            api_version: version_of(&id, api_version),
            ..id
        };
        let entry = all.entries.entry(id).or_insert_with(|| Entry {
            api_version: api_version.to_owned(),
            // A scale says who set it, not when.
            time: None,
            fields: FieldSet::default(),
        });
        entry.fields.add(count.clone());
    }
    all.entries.retain(|_, entry| !entry.fields.is_empty());
    if object.get("metadata").is_none() {
        object["metadata"] = json!({});
    }
    all.write(object);
}

fn has(entry: &Entry, count: &FieldSet) -> bool {
    !entry.fields.intersection(count).is_empty()
}

/// Managers that apply are the same in every version.
fn version_of(id: &Id, version: &str) -> String {
    if id.applies {
        String::new()
    } else {
        version.to_owned()
    }
}
