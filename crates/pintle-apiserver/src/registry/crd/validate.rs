//! Validation of custom resource definitions.

use std::collections::BTreeSet;

use pintle_cel::go::is_printable;
use serde_json::Value;

use super::{Definition, at, spec, string, strings};
use crate::{
    meta::{NameRule, Tree},
    schema::{
        field::{FieldError, Reason, quote},
        structural::{Structural, is_known_format},
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
    check_spec(&definition, &mut errors);
    check_approval(tree, None, &mut errors);
    errors
}

/// Validates a definition that replaces `old`: fields that stored objects depend on cannot change.
pub(crate) fn check_update(tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_spec(&Definition::read(tree), &mut errors);
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
    check_stored_versions(tree, &mut errors);
    check_approval(tree, Some(old), &mut errors);
    errors
}

/// Checks that no version is removed in which objects may still be stored.
fn check_stored_versions(tree: &Tree, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "status.storedVersions";
    let stored = at(tree, &["status", "storedVersions"]);
    let names = strings(stored);
    if names.is_empty() {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid(FIELD, stored.clone(), why));
        return;
    }
    let definition = Definition::read(tree);
    let storage = definition.storage().map(|version| string(&version["name"]));
    if let Some(storage) = storage.filter(|storage| !names.contains(storage)) {
        let why = format!("must have the storage version {storage}");
        errors.push(FieldError::invalid(FIELD, stored.clone(), why));
    }
    for (i, name) in names.iter().enumerate() {
        if !definition
            .versions()
            .any(|version| version["name"] == **name)
        {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(
                format!("{FIELD}[{i}]"),
                name.as_str(),
                why,
            ));
        }
    }
}

fn check_spec(definition: &Definition, errors: &mut Vec<FieldError>) {
    let tree = &definition.tree;
    for (field, value) in [
        ("spec.group", definition.group.clone()),
        ("spec.names.plural", definition.plural.clone()),
        (
            "spec.names.kind",
            string(at(tree, &["spec", "names", "kind"])),
        ),
    ] {
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    match at(tree, &["spec", "scope"]).as_str() {
        Some("Namespaced" | "Cluster") => {}
        None | Some("") => errors.push(FieldError::required("spec.scope", "")),
        Some(other) => errors.push(FieldError::not_supported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    check_versions(definition, errors);
    if errors.iter().any(|error| error.reason == Reason::TooMany) {
        return;
    }
    spec::check(definition, errors);
}

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Returns whether a group belongs to the Kubernetes community.
fn is_protected(group: &str) -> bool {
    let own = ["k8s.io", "kubernetes.io"];
    own.iter()
        .any(|own| group == *own || group.ends_with(&format!(".{own}")))
}

const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Returns the approval of a definition whose group requires one: whether there is one, the reason
/// and a message.
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
    // Updates that leave the approval as it is are always accepted.
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

/// Returns the formats in the schemas of a definition that are not validated, sorted.
pub(crate) fn unrecognized_formats(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for version in Definition::read(tree).versions() {
        formats_of(&version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

fn formats_of(schema: &Value, found: &mut BTreeSet<String>) {
    let Some(map) = schema.as_object() else {
        return;
    };
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
    let format = text("format");
    if !format.is_empty() && !is_known_format(text("type"), format) {
        found.insert(format.to_owned());
    }
    for (name, value) in map {
        match name.as_str() {
            "properties" | "definitions" | "dependencies" | "patternProperties" => {
                let below = value.as_object().into_iter().flatten();
                below.for_each(|(_, schema)| formats_of(schema, found));
            }
            "allOf" | "anyOf" | "oneOf" => {
                let below = value.as_array().into_iter().flatten();
                below.for_each(|schema| formats_of(schema, found));
            }
            "items" | "not" | "additionalProperties" | "additionalItems" => {
                formats_of(value, found);
            }
            _ => {}
        }
    }
}

/// The maximum number of versions. Kubernetes has no limit, but each version is served.
const MAX_VERSIONS: usize = 500;

fn check_versions(definition: &Definition, errors: &mut Vec<FieldError>) {
    let count = definition.versions().count();
    if count > MAX_VERSIONS {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (count, max) = (number(count), number(MAX_VERSIONS));
        errors.push(FieldError::too_many("spec.versions", count, max));
        return;
    }
    let mut storage = 0;
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (index, version) in definition.versions().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = string(&version["name"]);
        let problems = NameRule::Label1035.problems(&name, false).join(",");
        if !problems.is_empty() {
            let place = format!("{path}.name");
            errors.push(FieldError::invalid(place, name.clone(), problems));
        }
        unique &= seen.insert(name);
        if version["storage"] == Value::Bool(true) {
            storage += 1;
        }
        for problem in deprecation_problems(version) {
            let place = format!("{path}.deprecationWarning");
            let found = version["deprecationWarning"].clone();
            errors.push(FieldError::invalid(place, found, problem));
        }
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let place = format!("{path}.schema.openAPIV3Schema");
            errors.push(FieldError::required(place, ""));
        }
    }
    // Upstream hoists a schema that all versions share to `spec.validation`.
    let with_status: Vec<bool> = definition
        .versions()
        .map(|version| version["subresources"]["status"].is_object())
        .collect();
    for (place, index, schema) in spec::common_of(definition, "schema", "validation") {
        let status = match index {
            Some(index) => with_status.get(index) == Some(&true),
            None => with_status.contains(&true),
        };
        let schema = &schema["openAPIV3Schema"];
        let place = format!("{place}.openAPIV3Schema");
        if schema.is_object()
            && let Err(wrong) = Structural::check(schema, &place, status)
        {
            errors.extend(wrong);
        }
    }
    let versions = at(&definition.tree, &["spec", "versions"]);
    for (wrong, why) in [
        (!unique, "must contain unique version names"),
        (
            storage != 1,
            "must have exactly one version marked as storage version",
        ),
    ] {
        if wrong {
            errors.push(FieldError::invalid("spec.versions", versions.clone(), why));
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
