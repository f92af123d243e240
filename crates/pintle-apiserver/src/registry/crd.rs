//! Custom resource definitions: their rules, their conditions, and the resources they add.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    fields::SelectableField,
    kept::{Kept, fingerprint},
    kind::{ALL, GET, PATCH, UPDATE},
    resource::{Resource, Sub, api_version},
};
use crate::{
    meta::{NameRule, Tree},
    schema::{field::FieldError, structural::Structural},
    store::{TableId, type_prefix},
};

/// Keeps a definition until its instances are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a definition says about one served version.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The definition's own name.
    pub(crate) definition: String,
    /// Tells it from another one of that name.
    pub(crate) uid: String,
    /// The definition is being deleted: nothing new may be created.
    pub(crate) terminating: bool,
    /// What objects must look like.
    pub(crate) schema: Arc<Structural>,
    /// The other versions, served or not: `example.com/v2`, and what objects look like there.
    pub(crate) others: Vec<(String, Arc<Structural>)>,
    /// Only a webhook knows what objects look like in this version.
    pub(crate) needs_webhook: bool,
    /// What objects get when they are read; none if nothing.
    pub(crate) kept: Option<Arc<Kept>>,
    /// The whole entry of `spec.versions`.
    pub(crate) version: Value,
}

/// The parts of a definition the server acts on.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) plural: String,
    tree: Tree,
}

fn at<'a>(tree: &'a Tree, path: &[&str]) -> &'a Value {
    let mut parts = path.iter();
    let first = parts.next().and_then(|first| tree.get(*first));
    parts
        .fold(first, |at, part| at.and_then(|v| v.get(*part)))
        .unwrap_or(&Value::Null)
}

/// Remembers the version that objects are stored in from now on, beside those that they were.
pub(crate) fn remember_storage(definition: &mut Tree) {
    let Some(stored) = Definition::read(definition)
        .storage()
        .map(|v| v["name"].clone())
    else {
        return;
    };
    let status = definition.get_mut("status");
    let kept = status.and_then(|status| status.get_mut("storedVersions")?.as_array_mut());
    if let Some(kept) = kept
        && !kept.contains(&stored)
    {
        kept.push(stored);
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(string).collect()
}

impl Definition {
    pub(crate) fn read(tree: &Tree) -> Self {
        Self {
            name: string(at(tree, &["metadata", "name"])),
            group: string(at(tree, &["spec", "group"])),
            plural: string(at(tree, &["spec", "names", "plural"])),
            tree: tree.clone(),
        }
    }

    /// Whether its resources are served.
    pub(crate) fn is_established(&self) -> bool {
        condition(&self.tree, "Established") == Some("True")
    }

    fn versions(&self) -> impl Iterator<Item = &Value> {
        at(&self.tree, &["spec", "versions"])
            .as_array()
            .into_iter()
            .flatten()
    }

    /// One resource per served version, preferred version first.
    pub(crate) fn resources(&self, table: TableId) -> Vec<Resource> {
        let mut served: Vec<&Value> = self
            .versions()
            .filter(|version| version["served"] == Value::Bool(true))
            .collect();
        served.sort_by(|a, b| {
            version_order(&string(&b["name"])).cmp(&version_order(&string(&a["name"])))
        });
        let kept = self.storage().and_then(Kept::of);
        let schemas = self.schemas();
        served
            .into_iter()
            .map(|version| self.resource(version, &schemas, table, kept.clone()))
            .collect()
    }

    /// What objects look like in each version.
    fn schemas(&self) -> Vec<(String, Arc<Structural>)> {
        let parsed = |version: &Value| {
            // It was checked when the definition was written.
            let schema = Structural::parse(&version["schema"]["openAPIV3Schema"]);
            let name = api_version(&self.group, &string(&version["name"]));
            (name, Arc::new(schema.unwrap_or_default()))
        };
        self.versions().map(parsed).collect()
    }

    /// The resource of the version that objects are stored in, served or not.
    pub(crate) fn stored(&self, table: TableId) -> Option<Resource> {
        let version = self.storage()?;
        Some(self.resource(version, &self.schemas(), table, Kept::of(version)))
    }

    /// Whether there may be objects that only a webhook could show in this version: all are kept in
    /// the one that is stored, or in those that were.
    fn needs_webhook(&self, version: &Value) -> bool {
        let kept = strings(at(&self.tree, &["status", "storedVersions"]));
        at(&self.tree, &["spec", "conversion", "strategy"]) == "Webhook"
            && (version["storage"] != true || kept.iter().any(|kept| version["name"] != **kept))
    }

    fn storage(&self) -> Option<&Value> {
        self.versions()
            .find(|version| version["storage"] == Value::Bool(true))
    }

    fn resource(
        &self,
        version: &Value,
        schemas: &[(String, Arc<Structural>)],
        table: TableId,
        kept: Option<Arc<Kept>>,
    ) -> Resource {
        let names = at(&self.tree, &["spec", "names"]);
        let kind = string(&names["kind"]);
        let name = string(&version["name"]);
        let own = api_version(&self.group, &name);
        let (mine, others): (Vec<_>, Vec<_>) = schemas
            .iter()
            .cloned()
            .partition(|(version, _)| *version == own);
        let custom = CustomVersion {
            definition: self.name.clone(),
            uid: string(at(&self.tree, &["metadata", "uid"])),
            terminating: crate::meta::is_deleting(&self.tree),
            schema: mine
                .into_iter()
                .next()
                .map(|(_, schema)| schema)
                .unwrap_or_default(),
            others,
            needs_webhook: self.needs_webhook(version),
            kept,
            version: version.clone(),
        };
        Resource {
            group: self.group.clone(),
            plural: self.plural.clone(),
            singular: string(&names["singular"]),
            list_kind: string(&names["listKind"]),
            namespaced: at(&self.tree, &["spec", "scope"]) == "Namespaced",
            short_names: strings(&names["shortNames"]),
            categories: strings(&names["categories"]),
            verbs: ALL,
            subresources: self.subresources(version, &kind),
            name_rule: NameRule::Subdomain,
            has_generation: true,
            unconditional_update: false,
            create_on_update: false,
            storage_hash: Some(storage_hash(&self.name)),
            table: Some(table),
            custom: Some(Arc::new(custom)),
            conversion: None,
            twin: None,
            ty: None,
            stored_ty: None,
            fields: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|field| SelectableField::custom(&string(&field["jsonPath"])))
                .collect(),
            prefix: type_prefix(&own, &kind),
            version: name,
            kind,
        }
    }

    fn subresources(&self, version: &Value, kind: &str) -> Vec<Sub> {
        let mut subs = Vec::new();
        let verbs = GET | PATCH | UPDATE;
        if version["subresources"]["status"].is_object() {
            subs.push(Sub {
                name: "status".into(),
                group: self.group.clone(),
                version: string(&version["name"]),
                kind: kind.to_owned(),
                verbs,
            });
        }
        if version["subresources"]["scale"].is_object() {
            subs.push(Sub {
                name: "scale".into(),
                group: "autoscaling".into(),
                version: "v1".into(),
                kind: "Scale".into(),
                verbs,
            });
        }
        subs
    }

    /// The names it claims in its group, each with the reason that tells it is taken.
    fn claimed(&self) -> Vec<(&'static str, String)> {
        let names = at(&self.tree, &["spec", "names"]);
        let mut claimed = vec![
            ("PluralConflict", string(&names["plural"])),
            ("SingularConflict", string(&names["singular"])),
            ("KindConflict", string(&names["kind"])),
            ("ListKindConflict", string(&names["listKind"])),
        ];
        claimed.extend(
            strings(&names["shortNames"])
                .into_iter()
                .map(|n| ("ShortNamesConflict", n)),
        );
        claimed
    }
}

/// The status of a condition.
fn condition<'a>(tree: &'a Tree, kind: &str) -> Option<&'a str> {
    at(tree, &["status", "conditions"])
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)?["status"]
        .as_str()
}

/// Sets a condition, keeping its time while its status stays.
pub(crate) fn set_condition(
    tree: &mut Tree,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: &str,
) {
    let status = if status { "True" } else { "False" };
    let new = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now});
    let root = tree.entry("status").or_insert_with(|| json!({}));
    let conditions = &mut root["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            let since = old["lastTransitionTime"].take();
            let same = old["status"] == status;
            *old = new;
            if same && since.is_string() {
                old["lastTransitionTime"] = since;
            }
        }
        None => list.push(new),
    }
}

/// What is wrong with a definition.
pub(crate) fn check(tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let definition = Definition::read(tree);
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
    if definition.name != format!("{}.{}", definition.plural, definition.group) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            "metadata.name",
            definition.name.clone(),
            why,
        ));
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
    check_approval(tree, &definition.group, &mut errors);
    check_versions(&definition, &mut errors);
    errors
}

/// Groups of Kubernetes itself are for definitions its reviewers have seen.
fn check_approval(tree: &Tree, group: &str, errors: &mut Vec<FieldError>) {
    const APPROVAL: &str = "api-approved.kubernetes.io";
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.ends_with(&format!(".{own}")));
    if !protected {
        return;
    }
    let place = format!("metadata.annotations[{APPROVAL}]");
    match at(tree, &["metadata", "annotations", APPROVAL]).as_str() {
        None | Some("") => errors.push(FieldError::required(
            place,
            format!(
                "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        )),
        Some(text) if text.starts_with("unapproved") || text.contains("://") => {}
        Some(text) => errors.push(FieldError::invalid(
            place,
            text,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        )),
    }
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
        let schema = &version["schema"]["openAPIV3Schema"];
        let place = format!("{path}.schema.openAPIV3Schema");
        if schema.is_object() {
            let status = version["subresources"]["status"].is_object();
            // The place it would have if all versions shared one schema, which a single one does.
            let place = if definition.versions().count() == 1 {
                "spec.validation.openAPIV3Schema"
            } else {
                &place
            };
            if let Err(wrong) = Structural::check(schema, place, status) {
                errors.extend(wrong);
            }
        } else {
            errors.push(FieldError::required(place, ""));
        }
    }
    if storage != 1 {
        let versions = at(&definition.tree, &["spec", "versions"]).clone();
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", versions, why));
    }
}

/// Differs between kinds, stays the same for one.
fn storage_hash(name: &str) -> String {
    STANDARD.encode(fingerprint(name).to_be_bytes())
}

/// Decides on a definition's names and says so in its status: accepted and established, or which
/// name is taken by another definition of its group.
pub(crate) fn establish(tree: &mut Tree, others: &[Definition], now: &str) {
    let definition = Definition::read(tree);
    let taken = definition.claimed().into_iter().find(|(reason, name)| {
        !name.is_empty()
            && others.iter().any(|other| {
                other.group == definition.group
                    && other.name != definition.name
                    && other
                        .claimed()
                        .iter()
                        .any(|(r, n)| n == name && same_space(r, reason))
            })
    });
    if let Some((reason, name)) = taken {
        let message = format!("{name:?} is already in use");
        set_condition(tree, "NamesAccepted", false, reason, &message, now);
        if !definition.is_established() {
            set_condition(
                tree,
                "Established",
                false,
                "NotAccepted",
                "not all names are accepted",
                now,
            );
        }
        return;
    }
    let names = at(tree, &["spec", "names"]).clone();
    if let Some(status) = tree.get_mut("status") {
        status["acceptedNames"] = names;
    }
    set_condition(
        tree,
        "NamesAccepted",
        true,
        "NoConflicts",
        "no conflicts found",
        now,
    );
    set_condition(
        tree,
        "Established",
        true,
        "InitialNamesAccepted",
        "the initial names have been accepted",
        now,
    );
}

/// Plurals, singulars and short names share one space, kinds and list kinds another.
fn same_space(a: &str, b: &str) -> bool {
    let is_kind = |reason: &str| matches!(reason, "KindConflict" | "ListKindConflict");
    is_kind(a) == is_kind(b)
}

/// Kubernetes' order of versions: `v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else`, larger
/// is preferred.
pub(super) fn version_order(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(name.to_owned()));
    let Some(rest) = name.strip_prefix('v') else {
        return other;
    };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let Ok(major) = rest[..digits].parse::<u64>() else {
        return other;
    };
    let tail = &rest[digits..];
    let same = std::cmp::Reverse(String::new());
    if tail.is_empty() {
        return (3, major, 0, same);
    }
    for (rank, word) in [(2, "beta"), (1, "alpha")] {
        if let Some(minor) = tail.strip_prefix(word).and_then(|n| n.parse::<u64>().ok()) {
            return (rank, major, minor, same);
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_by_maturity_then_number() {
        let mut names = ["v1alpha1", "v2", "foo", "v1beta2", "v11", "v1", "v1beta10"];
        names.sort_by_key(|name| std::cmp::Reverse(version_order(name)));
        assert_eq!(
            names,
            ["v11", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]
        );
    }
}
