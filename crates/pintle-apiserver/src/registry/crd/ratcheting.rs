//! Ratcheting: what an update of a definition may keep although a new definition may not have it.
//!
//! Stored definitions can be older than a rule. So Kubernetes relaxes a rule for updates of a
//! definition that already broke it. It also accepts expressions that are already stored with more
//! libraries than new ones; in Kubernetes 1.36, new ones may use the same.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Definition, at,
    spec::{self, Parts},
    string, strings,
    validate::{any_schema, is_recognized},
};
use crate::{
    meta::Tree,
    schema::structural::{Structural, Tolerated, has_invalid_type, has_loose_keys, has_open_set},
};

/// What the stored definition allows an update to keep.
#[derive(Debug, Default)]
pub(super) struct Ratchet {
    /// The old definition preserved unknown fields at every level.
    pub(super) unknown_fields: bool,
    /// A version of the old definition had no schema.
    pub(super) missing_schemas: bool,
    /// The old webhook understood no known version of `ConversionReview`.
    pub(super) review_versions: bool,
    /// What schemas may keep.
    tolerated: Tolerated,
    /// The versions whose schema does not change.
    unchanged: BTreeSet<String>,
    /// The versions that keep too many selectable fields; empty for those of all versions.
    selectable: BTreeSet<String>,
}

impl Ratchet {
    /// Compares a definition with the stored one.
    pub(super) fn of(new: &Definition, old: &Tree) -> Self {
        let preserved = spec::preserves_unknown_fields(old);
        let old = &Definition::read(old);
        let schemas = || old.versions().filter_map(schema_of);
        let has = |test: fn(&Tree) -> bool| schemas().any(|schema| any_schema(schema, test));
        let review = ["spec", "conversion", "webhook", "conversionReviewVersions"];
        let review = strings(at(&old.tree, &review));
        // Schemas that break other rules remain restricted to structural ones.
        let new_requires_structure = !spec::preserves_unknown_fields(&new.tree)
            || new.versions().filter_map(schema_of).any(|schema| {
                any_schema(schema, |schema| has_default(schema) || is_extended(schema))
            });
        let tolerated = Tolerated {
            structure: !new_requires_structure && !schemas().all(Structural::is_structural),
            types: has(has_invalid_type),
            defaults: schemas().any(|schema| {
                any_schema(schema, has_default) && Structural::has_unpruned_defaults(schema)
            }),
            sets: has(has_open_set),
            keys: has(has_loose_keys),
            costs: false,
        };
        Self {
            unknown_fields: preserved,
            missing_schemas: old.versions().any(|version| schema_of(version).is_none()),
            review_versions: !review.is_empty() && !review.iter().any(|name| is_recognized(name)),
            tolerated,
            unchanged: unchanged(new, old),
            selectable: crowded(new, old),
        }
    }

    /// Returns what the schema of a version may keep.
    pub(super) fn of_schema(&self, version: &str) -> Tolerated {
        Tolerated {
            costs: self.unchanged.contains(version),
            ..self.tolerated
        }
    }

    /// Returns whether a version keeps more selectable fields than are allowed.
    pub(super) fn keeps_selectable(&self, version: &str) -> bool {
        self.selectable.contains(version)
    }
}

fn schema_of(version: &Value) -> Option<&Value> {
    let schema = &version["schema"]["openAPIV3Schema"];
    schema.is_object().then_some(schema)
}

fn unchanged(new: &Definition, old: &Definition) -> BTreeSet<String> {
    // Upstream finds a schema that all old versions have in common by any name.
    let common = Parts::of(old).common_schema();
    let same = |version: &&Value| {
        let mut named = old.versions().filter(|old| old["name"] == version["name"]);
        let before = common.or_else(|| named.find_map(schema_of));
        before == schema_of(version)
    };
    let names = new.versions().filter(same);
    names.map(|version| string(&version["name"])).collect()
}

/// Returns the versions that had too many selectable fields and keep them.
fn crowded(new: &Definition, old: &Definition) -> BTreeSet<String> {
    let old = Parts::of(old).too_many_selectable();
    let mut new = Parts::of(new).too_many_selectable();
    new.retain(|name, fields| old.get(name) == Some(fields));
    new.into_keys().collect()
}

/// Returns whether a schema has a default.
pub(super) fn has_default(schema: &Tree) -> bool {
    schema
        .get("default")
        .is_some_and(|default| !default.is_null())
}

/// Returns whether a schema uses an extension that needs a structural schema.
fn is_extended(schema: &Tree) -> bool {
    let flag = |name| schema.get(name) == Some(&Value::Bool(true));
    let present = |name| {
        schema
            .get(name)
            .is_some_and(|value: &Value| !value.is_null())
    };
    let listed = |name| {
        let list = schema.get(name).and_then(Value::as_array);
        list.is_some_and(|list: &Vec<Value>| !list.is_empty())
    };
    flag("x-kubernetes-embedded-resource")
        || present("x-kubernetes-preserve-unknown-fields")
        || flag("x-kubernetes-int-or-string")
        || listed("x-kubernetes-list-map-keys")
        || present("x-kubernetes-list-type")
        || listed("x-kubernetes-validations")
}

#[cfg(test)]
mod tests;
