//! Maps field managers between an object and its `scale` subresource.
//!
//! A scale exposes one field of its object, so its managers are those that own the replica count.
//! After an apply to the scale, ownership of that field is written back to the object.

use serde_json::{Value, json};

use super::{
    managed::{self, Entry, Id, Managed},
    set::FieldSet,
};

/// The API version of `Scale`.
pub(crate) const SCALE: &str = "autoscaling/v1";

/// Sets the managers of `scale` to those that own the replica count of `object` at `path`.
pub(crate) fn managers_to_scale(object: &Value, path: &[&str], scale: &mut Value) {
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

/// Copies ownership of the replica count at `path` from the managers of `scale` to `object`.
///
/// Differs from kube-apiserver, which loses track of a manager with operation `Update`: it splits
/// the entry in two and forgets on the next write that the manager owned the field.
pub(crate) fn managers_from_scale(
    object: &mut Value,
    path: &[&str],
    api_version: &str,
    scale: &Value,
) {
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
            // Upstream records no time for writes through a scale.
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

/// The version is part of a manager's identity only for operation `Update`.
fn version_of(id: &Id, version: &str) -> String {
    if id.applies {
        String::new()
    } else {
        version.to_owned()
    }
}
