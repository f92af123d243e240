//! Validation of custom resource definitions.

use serde_json::Value;

use super::{Definition, at, spec, string, strings};
use crate::{
    meta::{NameRule, Tree},
    schema::{field::FieldError, structural::Structural},
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
    spec::check(definition, errors);
}

/// Checks the API approval annotation, which `k8s.io` and `kubernetes.io` groups require.
fn check_approval(tree: &Tree, old: Option<&Tree>, errors: &mut Vec<FieldError>) {
    const APPROVAL: &str = "api-approved.kubernetes.io";
    let group = string(at(tree, &["spec", "group"]));
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.ends_with(&format!(".{own}")));
    if !protected {
        return;
    }
    let place = format!("metadata.annotations[{APPROVAL}]");
    let found = |tree: &Tree| string(at(tree, &["metadata", "annotations", APPROVAL]));
    let is_valid = |text: &str| text.starts_with("unapproved") || text.contains("://");
    let text = found(tree);
    // Updates that leave the approval as it is are always accepted.
    let unchanged = old
        .map(found)
        .is_some_and(|old| old.is_empty() == text.is_empty() && is_valid(&old) == is_valid(&text));
    if unchanged || is_valid(&text) {
        return;
    }
    errors.push(if text.is_empty() {
        FieldError::required(
            place,
            format!(
                "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        )
    } else {
        FieldError::invalid(
            place,
            text,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        )
    });
}

fn check_versions(definition: &Definition, errors: &mut Vec<FieldError>) {
    let mut storage = 0;
    let mut seen = Vec::new();
    for (index, version) in definition.versions().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = string(&version["name"]);
        for problem in NameRule::Label1035.problems(&name, false) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                name.clone(),
                problem,
            ));
        }
        if seen.contains(&name) {
            let why = "must contain unique version names";
            errors.push(FieldError::invalid("spec.versions", name.clone(), why));
        }
        seen.push(name);
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
    for (place, schema) in spec::common(definition, "schema", "validation") {
        let mut versions = definition.versions().enumerate();
        let status = versions.any(|(i, version)| {
            let uses = place == "spec.validation" || place == format!("spec.versions[{i}].schema");
            uses && version["subresources"]["status"].is_object()
        });
        let schema = &schema["openAPIV3Schema"];
        let place = format!("{place}.openAPIV3Schema");
        if schema.is_object()
            && let Err(wrong) = Structural::check(schema, &place, status)
        {
            errors.extend(wrong);
        }
    }
    if storage != 1 {
        let versions = at(&definition.tree, &["spec", "versions"]).clone();
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", versions, why));
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
    if let Some((i, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        problems.push(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        ));
    }
    problems
}
