//! Custom resource definitions (CRDs): parsing, conditions, and the resources they define.

mod names;
mod ratcheting;
mod spec;
mod validate;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, OnceLock},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use pintle_clock::StableHash;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::names::Decision;
pub(super) use self::names::{Entry, Names};
pub(crate) use self::{
    names::{Claim, Conflict},
    validate::{check, check_status, check_update, unrecognized_formats},
};
use super::{
    resource::{Resource, Sub, api_version},
    selectable_fields::SelectableField,
    verbs::{ALL, GET, PATCH, UPDATE},
};
use crate::{
    api::{
        kinds::{PLAIN, properties::Generation},
        write::validate::rules::Rules,
    },
    conversion_webhook::Converted,
    meta::{NameRule, Tree},
    schema::structural::Structural,
    store::{CollectionId, custom_type_prefix},
};

/// Blocks the deletion of a definition until its instances are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Returns the group in a definition's name: `example.com` for `foos.example.com`.
pub(crate) fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

/// The schema of a version, parsed when the first of its objects is read or written: most tests
/// install more definitions than they use.
pub(crate) type LazySchema = LazyLock<Structural, Box<dyn FnOnce() -> Structural + Send>>;

/// The schemas of a definition's versions by `apiVersion`.
pub(crate) type Schemas = BTreeMap<String, Arc<LazySchema>>;

/// One version of a custom resource.
#[derive(Debug, Clone)]
pub(crate) struct CustomVersion {
    /// The name of the definition.
    pub(crate) definition: String,
    /// The UID of the definition.
    pub(crate) uid: String,
    /// The definition is being deleted, so creating instances is forbidden.
    pub(crate) terminating: bool,
    /// The schema of this version.
    pub(crate) schema: Arc<LazySchema>,
    /// All versions, served or not, with their schemas: `example.com/v2`.
    pub(crate) schemas: Arc<Schemas>,
    /// The conversion webhook, if the definition has one.
    pub(crate) converted: Option<Arc<Converted>>,
    /// The `apiVersion` of the storage version.
    pub(crate) storage_version: Arc<str>,
    /// The schema of the storage version.
    pub(crate) storage_schema: Arc<LazySchema>,
    /// The text of the `Warning` header if the version is deprecated.
    pub(crate) deprecation: Option<String>,
    /// Cancelled when the definition's spec or accepted names change, which ends earlier watches.
    pub(crate) superseded: CancellationToken,
    /// The version's entry in `spec.versions`.
    pub(crate) version: Value,
    /// A hash of this entry, computed when it is first needed.
    pub(super) digest: OnceLock<u64>,
}

impl CustomVersion {
    /// Returns a hash of the version's entry in `spec.versions`.
    pub(crate) fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| {
            #[cfg(test)]
            DIGESTS.set(DIGESTS.get() + 1);
            StableHash::of(self.version.to_string().as_bytes())
        })
    }
}

#[cfg(test)]
thread_local! {
    /// Counts versions hashed on this thread, so that tests can measure work.
    pub(crate) static DIGESTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A definition, with its identifying fields parsed.
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

/// Adds the storage version to `status.storedVersions`.
pub(crate) fn remember_storage(definition: &mut Tree) {
    let Some(stored) = Definition::read(definition)
        .storage()
        .map(|v| v["name"].clone())
    else {
        return;
    };
    let status = definition.get_mut("status");
    let versions = status.and_then(|status| status.get_mut("storedVersions")?.as_array_mut());
    if let Some(versions) = versions
        && !versions.contains(&stored)
    {
        versions.push(stored);
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

    /// Returns true if the definition's resources are served.
    pub(crate) fn is_established(&self) -> bool {
        condition(&self.tree, "Established") == Some("True")
    }

    /// Returns true if the definition is being deleted.
    pub(crate) fn is_deleting(&self) -> bool {
        crate::meta::is_deleting(&self.tree)
    }

    /// Returns the requested names.
    pub(crate) fn requested(&self) -> &Value {
        at(&self.tree, &["spec", "names"])
    }

    /// Returns the accepted names.
    pub(crate) fn accepted(&self) -> &Value {
        at(&self.tree, &["status", "acceptedNames"])
    }

    /// Returns a hash of everything that is served: the spec and the accepted names.
    pub(super) fn fingerprint(&self) -> u64 {
        let text = format!("{}{}", at(&self.tree, &["spec"]), self.accepted());
        StableHash::of(text.as_bytes())
    }

    fn versions(&self) -> impl Iterator<Item = &Value> {
        at(&self.tree, &["spec", "versions"])
            .as_array()
            .into_iter()
            .flatten()
    }

    /// Returns one resource per served version, preferred version first, and the resource of the
    /// storage version, served or not. `superseded` ends the watches of all of them.
    pub(super) fn resources(
        &self,
        collection: CollectionId,
        superseded: &CancellationToken,
    ) -> (Vec<Resource>, Option<Resource>) {
        let mut served: Vec<&Value> = self
            .versions()
            .filter(|version| version["served"] == Value::Bool(true))
            .collect();
        served.sort_by(|a, b| {
            version_order(&string(&b["name"])).cmp(&version_order(&string(&a["name"])))
        });
        let schemas = Arc::new(self.schemas());
        let kind = string(&self.accepted()["kind"]);
        let conversion = at(&self.tree, &["spec", "conversion"]);
        let converted = Converted::of(&self.name, &kind, conversion);
        let make = |version| {
            let mut custom = self.custom(version, &schemas, superseded.clone());
            custom.converted.clone_from(&converted);
            self.resource(version, collection, custom)
        };
        let stored = self.storage().map(make);
        (served.into_iter().map(make).collect(), stored)
    }

    /// Returns the schema of each version.
    fn schemas(&self) -> Schemas {
        let lazy = |version: &Value| {
            let schema = version["schema"]["openAPIV3Schema"].clone();
            // The schema was validated when the definition was written.
            let parse = move || Structural::parse(&schema).unwrap_or_default();
            let name = api_version(&self.group, &string(&version["name"]));
            (name, Arc::new(LazySchema::new(Box::new(parse))))
        };
        self.versions().map(lazy).collect()
    }

    fn storage(&self) -> Option<&Value> {
        self.versions()
            .find(|version| version["storage"] == Value::Bool(true))
    }

    fn custom(
        &self,
        version: &Value,
        schemas: &Arc<Schemas>,
        superseded: CancellationToken,
    ) -> CustomVersion {
        let own = api_version(&self.group, &string(&version["name"]));
        let storage = self.storage().map_or_else(
            || own.clone(),
            |storage| api_version(&self.group, &string(&storage["name"])),
        );
        let schema_of = |version: &str| {
            let schema = schemas.get(version).cloned();
            schema.unwrap_or_else(|| Arc::new(LazySchema::new(Box::new(Default::default))))
        };
        CustomVersion {
            definition: self.name.clone(),
            uid: string(at(&self.tree, &["metadata", "uid"])),
            terminating: self.is_deleting(),
            schema: schema_of(&own),
            storage_schema: schema_of(&storage),
            schemas: Arc::clone(schemas),
            converted: None,
            storage_version: storage.into(),
            deprecation: self.deprecation(version),
            superseded,
            version: version.clone(),
            digest: OnceLock::new(),
        }
    }

    /// Returns the deprecation warning: the definition's own text, or which version to use instead.
    fn deprecation(&self, version: &Value) -> Option<String> {
        if version["deprecated"] != true {
            return None;
        }
        if let Some(text) = version["deprecationWarning"].as_str() {
            return Some(text.to_owned());
        }
        let named = |version: &Value| {
            let kind = string(&self.requested()["kind"]);
            format!("{}/{} {kind}", self.group, string(&version["name"]))
        };
        let order = |version: &&Value| version_order(&string(&version["name"]));
        let newer = self
            .versions()
            .filter(|other| other["served"] == true && other["deprecated"] != true)
            .filter(|other| order(other) > order(&version))
            .max_by_key(order);
        let use_instead = newer.map(|newer| format!("; use {}", named(newer)));
        let use_instead = use_instead.unwrap_or_default();
        Some(format!("{} is deprecated{use_instead}", named(version)))
    }

    fn resource(
        &self,
        version: &Value,
        collection: CollectionId,
        custom: CustomVersion,
    ) -> Resource {
        let names = self.accepted();
        let kind = string(&names["kind"]);
        let name = string(&version["name"]);
        let own = api_version(&self.group, &name);
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
            generation: Generation::Counted(None),
            unconditional_update: false,
            create_on_update: false,
            storage_hash: Some(storage_hash(&self.name)),
            collection: Some(collection),
            custom: Some(Arc::new(custom)),
            conversion: None,
            peer: None,
            ty: None,
            stored_ty: None,
            fields: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|field| SelectableField::custom(&string(&field["jsonPath"])))
                .collect(),
            hooks: PLAIN,
            rules: Rules::NONE,
            idle: None,
            returns_deleted: false,
            prefix: custom_type_prefix(&own, &kind),
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
}

/// Returns the status of a condition.
fn condition<'a>(tree: &'a Tree, kind: &str) -> Option<&'a str> {
    at(tree, &["status", "conditions"])
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)?["status"]
        .as_str()
}

/// Sets a condition. `lastTransitionTime` changes only with the status.
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

/// Returns the storage version hash: stable for a kind, different between kinds.
fn storage_hash(name: &str) -> String {
    STANDARD.encode(StableHash::of(name.as_bytes()).to_be_bytes())
}

/// Records a naming decision in the status. A definition becomes established once all its names are
/// accepted, and stays established.
pub(crate) fn establish(tree: &mut Tree, decision: &Decision, now: &str) {
    let established = Definition::read(tree).is_established();
    if let Some((approved, reason, message)) = validate::approval(tree) {
        let kind = "KubernetesAPIApprovalPolicyConformant";
        set_condition(tree, kind, approved, reason, &message, now);
    }
    let status = tree.entry("status").or_insert_with(|| json!({}));
    status["acceptedNames"] = decision.accepted.clone();
    if let Some(conflict) = &decision.conflict {
        let (reason, message) = (conflict.reason, &conflict.message);
        set_condition(tree, "NamesAccepted", false, reason, message, now);
        if !established {
            let message = "not all names are accepted";
            set_condition(tree, "Established", false, "NotAccepted", message, now);
        }
        return;
    }
    let message = "no conflicts found";
    set_condition(tree, "NamesAccepted", true, "NoConflicts", message, now);
    finish_establishing(tree, now);
}

/// Establishes a definition whose names are accepted, unless it is being deleted or its conversion
/// webhook's CA bundle is invalid.
pub(crate) fn finish_establishing(tree: &mut Tree, now: &str) {
    let definition = Definition::read(tree);
    if definition.is_established()
        || definition.is_deleting()
        || condition(tree, "NamesAccepted") != Some("True")
    {
        return;
    }
    if spec::invalid_ca_bundle(tree).is_some() {
        let message = "The conversion webhook CABundle is invalid";
        set_condition(tree, "Established", false, "InvalidCABundle", message, now);
        return;
    }
    let (reason, message) = (
        "InitialNamesAccepted",
        "the initial names have been accepted",
    );
    set_condition(tree, "Established", true, reason, message, now);
}

/// Orders versions as Kubernetes does; larger is preferred:
/// `v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else`.
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
mod tests;
