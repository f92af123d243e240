//! Validation of custom resource definitions.

use std::collections::{BTreeMap, BTreeSet};

use pintle_cel::go::is_printable;
use serde_json::Value;

use super::{
    Definition, at,
    ratcheting::{Ratchet, has_default},
    spec, string, strings,
};
use crate::{
    meta::{NameRule, Tree},
    schema::{
        field::{FieldError, quote},
        structural::{is_known_format, versions_text},
    },
};

/// Validates a new definition.
pub(crate) fn check(tree: &Tree) -> Vec<FieldError> {
    let definition = Definition::read(tree);
    let mut errors = Vec::new();
    if definition.name != format!("{}.{}", definition.plural, definition.group) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            "metadata.name",
            definition.name.clone(),
            why,
        ));
    }
    check_spec(&definition, &Ratchet::default(), &mut errors);
    let stored: Vec<String> = definition
        .storage()
        .map(|it| string(&it["name"]))
        .into_iter()
        .collect();
    check_stored_versions(&definition, &stored, &mut errors);
    check_approval(tree, None, &mut errors);
    check_preserved(tree, &Ratchet::default(), &mut errors);
    errors
}

/// Validates a definition that replaces `old`: fields that stored objects depend on cannot change,
/// and some of what `old` already broke may stay.
pub(crate) fn check_update(tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let definition = Definition::read(tree);
    // Ratcheting only tolerates errors, so an update without errors need not be compared.
    let errors = check_update_with(&definition, old, &Ratchet::default());
    if errors.is_empty() {
        return errors;
    }
    check_update_with(&definition, old, &Ratchet::of(&definition, old))
}

fn check_update_with(definition: &Definition, old: &Tree, ratchet: &Ratchet) -> Vec<FieldError> {
    let tree = &definition.tree;
    let mut errors = Vec::new();
    check_spec(definition, ratchet, &mut errors);
    spec::check_ca_bundle(tree, old, &mut errors);
    let mut immutable = |path: &[&str]| {
        let (now, before) = (at(tree, path), at(old, path));
        if now != before {
            let why = "field is immutable";
            errors.push(FieldError::invalid(path.join("."), now.clone(), why));
        }
    };
    if Definition::read(old).is_established() {
        immutable(&["spec", "scope"]);
        immutable(&["spec", "names", "kind"]);
    }
    immutable(&["spec", "group"]);
    immutable(&["spec", "names", "plural"]);
    let stored = strings(at(tree, &["status", "storedVersions"]));
    check_stored_versions(definition, &stored, &mut errors);
    check_approval(tree, Some(old), &mut errors);
    check_preserved(tree, ratchet, &mut errors);
    errors
}

/// Validates a definition's status written by a client.
pub(crate) fn check_status(tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names = at(tree, &["status", "acceptedNames"]);
    spec::check_name_forms(names, "status.acceptedNames", &mut errors);
    errors
}

fn check_preserved(tree: &Tree, ratchet: &Ratchet, errors: &mut Vec<FieldError>) {
    if spec::preserves_unknown_fields(tree) && !ratchet.unknown_fields {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
    }
}

/// Checks that no version is removed while objects may still be stored in it.
fn check_stored_versions(definition: &Definition, stored: &[String], errors: &mut Vec<FieldError>) {
    const FIELD: &str = "status.storedVersions";
    if stored.is_empty() {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid(FIELD, Value::Null, why));
        return;
    }
    // Each stored version stands for one version of the spec, as upstream counts them.
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, name) in stored.iter().enumerate() {
        left.insert(name, i);
    }
    for version in definition.versions() {
        let name = string(&version["name"]);
        let found = left.remove(name.as_str()).is_some();
        if version["storage"] == true && !found {
            let why = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(FIELD, stored.to_vec(), why));
        }
    }
    for (name, i) in left {
        let why = format!(
            "missing from spec.versions; {name} was previously a storage version, and must \
             remain in spec.versions until a storage migration ensures no data remains \
             persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("{FIELD}[{i}]"), name, why));
    }
}

/// Validates the spec, in upstream's order.
fn check_spec(definition: &Definition, ratchet: &Ratchet, errors: &mut Vec<FieldError>) {
    let count = definition.versions().count();
    if count > MAX_VERSIONS {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (count, max) = (number(count), number(MAX_VERSIONS));
        errors.push(FieldError::too_many("spec.versions", count, max));
        return;
    }
    spec::check_group(&definition.group, errors);
    match at(&definition.tree, &["spec", "scope"]).as_str() {
        Some("Namespaced" | "Cluster") => {}
        None | Some("") => errors.push(FieldError::required("spec.scope", "")),
        Some(other) => errors.push(FieldError::not_supported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    let preserves = spec::preserves_unknown_fields(&definition.tree);
    for (i, version) in definition.versions().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_object() {
            continue;
        }
        let place = format!("spec.versions[{i}].schema.openAPIV3Schema");
        if !ratchet.missing_schemas {
            errors.push(FieldError::required(place, ""));
        } else if !preserves && version["served"] == true {
            let why = "because otherwise all fields are pruned";
            errors.push(FieldError::required(place, why));
        }
    }
    if preserves && has_defaults(definition) {
        let why = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
    }
    let parts = spec::Parts::of(definition);
    for (i, version) in definition.versions().enumerate() {
        check_version(i, version, errors);
        parts.check(Some(i), ratchet, errors);
    }
    check_uniqueness(definition, &parts, errors);
    spec::check_names(at(&definition.tree, &["spec", "names"]), errors);
    parts.check(None, ratchet, errors);
    spec::check_conversion(definition, ratchet, errors);
}

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Returns whether a group belongs to the Kubernetes community.
fn is_protected(group: &str) -> bool {
    let own = ["k8s.io", "kubernetes.io"];
    own.iter()
        .any(|own| group == *own || group.ends_with(&format!(".{own}")))
}

const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Returns a definition's API approval if its group requires one: whether it is approved, the
/// condition's reason and its message.
pub(super) fn approval(tree: &Tree) -> Option<(bool, &'static str, String)> {
    if !is_protected(&string(at(tree, &["spec", "group"]))) {
        return None;
    }
    let text = string(at(tree, &["metadata", "annotations", APPROVAL]));
    Some(if text.is_empty() {
        let why = format!("protected groups must have approval annotation {APPROVAL:?}, {SEE}");
        (false, "MissingAnnotation", why)
    } else if text.starts_with("unapproved") {
        let why = format!("not approved: {}", quote(&text));
        (false, "UnapprovedAnnotation", why)
    } else if text.contains("://") {
        (true, "ApprovedAnnotation", format!("approved in {text}"))
    } else {
        let why = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a \
             reason starting with \"unapproved\", {SEE}"
        );
        (false, "InvalidAnnotation", why)
    })
}

/// Checks the API approval annotation, which `k8s.io` and `kubernetes.io` groups require.
fn check_approval(tree: &Tree, old: Option<&Tree>, errors: &mut Vec<FieldError>) {
    let Some((_, reason, why)) = approval(tree) else {
        return;
    };
    // Updates that leave the condition's reason unchanged are always accepted.
    let before = old.and_then(approval);
    if before.is_some_and(|(_, before, _)| before == reason) {
        return;
    }
    let place = format!("metadata.annotations[{APPROVAL}]");
    match reason {
        "MissingAnnotation" => errors.push(FieldError::required(place, why)),
        "InvalidAnnotation" => {
            let text = string(at(tree, &["metadata", "annotations", APPROVAL]));
            errors.push(FieldError::invalid(place, text, why));
        }
        _ => {}
    }
}

/// Returns the formats that a definition's schemas name but that are not validated, sorted.
pub(crate) fn unrecognized_formats(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for version in Definition::read(tree).versions() {
        formats_of(&version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

fn formats_of(schema: &Value, found: &mut BTreeSet<String>) {
    each_schema(schema, &mut |map| {
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
        let format = text("format");
        if !format.is_empty() && !is_known_format(text("type"), format) {
            found.insert(format.to_owned());
        }
    });
}

/// Calls a function for a schema and all schemas in it.
fn each_schema(schema: &Value, visit: &mut dyn FnMut(&Tree)) {
    let Some(map) = schema.as_object() else {
        return;
    };
    visit(map);
    for (name, value) in map {
        match name.as_str() {
            "properties" | "definitions" | "dependencies" | "patternProperties" => {
                let below = value.as_object().into_iter().flatten();
                below.for_each(|(_, schema)| each_schema(schema, visit));
            }
            "allOf" | "anyOf" | "oneOf" => {
                let below = value.as_array().into_iter().flatten();
                below.for_each(|schema| each_schema(schema, visit));
            }
            "items" => {
                each_schema(value, visit);
                let below = value.as_array().into_iter().flatten();
                below.for_each(|schema| each_schema(schema, visit));
            }
            "not" | "additionalProperties" | "additionalItems" => each_schema(value, visit),
            _ => {}
        }
    }
}

/// Returns whether a test holds for a schema or one of those in it.
pub(super) fn any_schema(schema: &Value, test: impl Fn(&Tree) -> bool) -> bool {
    let mut found = false;
    each_schema(schema, &mut |schema| found = found || test(schema));
    found
}

/// Returns whether a schema of the definition has a default.
fn has_defaults(definition: &Definition) -> bool {
    let mut schemas = definition.versions();
    schemas.any(|version| any_schema(&version["schema"]["openAPIV3Schema"], has_default))
}

/// Returns whether the server knows a version of `ConversionReview`.
pub(super) fn is_recognized(review: &str) -> bool {
    matches!(review, "v1" | "v1beta1")
}

/// The maximum number of versions. Kubernetes has no limit, but every served version adds a
/// resource.
const MAX_VERSIONS: usize = 500;

fn check_version(index: usize, version: &Value, errors: &mut Vec<FieldError>) {
    let path = format!("spec.versions[{index}]");
    let name = string(&version["name"]);
    let problems = NameRule::Label1035.problems(&name, false).join(",");
    if !problems.is_empty() {
        errors.push(FieldError::invalid(format!("{path}.name"), name, problems));
    }
    for problem in deprecation_problems(version) {
        let place = format!("{path}.deprecationWarning");
        // A pointer in upstream's type, so it is shown as JSON.
        let shown = version["deprecationWarning"].to_string();
        errors.push(FieldError::shown(place, &shown, &problem));
    }
}

/// Checks that versions have different names, and that exactly one is the storage version.
fn check_uniqueness(
    definition: &Definition,
    parts: &spec::Parts<'_>,
    errors: &mut Vec<FieldError>,
) {
    let mut seen = BTreeSet::new();
    let unique = definition
        .versions()
        .all(|version| seen.insert(string(&version["name"])));
    let stored = definition
        .versions()
        .filter(|version| version["storage"] == Value::Bool(true))
        .count();
    let versions: Vec<Value> = definition.versions().cloned().collect();
    let shown = versions_text(&versions, &parts.common());
    let shown = shown.unwrap_or_else(|| Value::Array(versions).to_string());
    for (wrong, why) in [
        (!unique, "must contain unique version names"),
        (
            stored != 1,
            "must have exactly one version marked as storage version",
        ),
    ] {
        if wrong {
            errors.push(FieldError::shown("spec.versions", &shown, why));
        }
    }
    // Upstream's internal type repeats the name of the first version.
    let first = definition.versions().next();
    let name = first.map(|version| string(&version["name"]));
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let problems = NameRule::Label1035.problems(&name, false).join(",");
        if !problems.is_empty() {
            errors.push(FieldError::invalid("spec.version", name, problems));
        }
    }
}

/// Validates a deprecation warning, which becomes a header value.
fn deprecation_problems(version: &Value) -> Vec<String> {
    const MOST: usize = 256;
    let Some(text) = version["deprecationWarning"].as_str() else {
        return Vec::new();
    };
    if version["deprecated"] != true {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut problems = Vec::new();
    if text.len() > MOST {
        problems.push(format!("must be <= {MOST} characters long"));
    }
    if text.is_empty() {
        problems.push("must not be an empty string".to_owned());
    }
    if let Some((i, _)) = text.char_indices().find(|(_, c)| !is_printable(*c)) {
        problems.push(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        ));
    }
    problems
}
