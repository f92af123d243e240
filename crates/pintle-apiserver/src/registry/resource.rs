//! A served resource: group, version, plural, and how its objects behave.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    crd::CustomVersion,
    selectable_fields::{self, SelectableField},
    served_versions::{Conversion, PeerVersion},
    verbs::{Verbs, verb_set},
};
use crate::{
    api::{
        kinds::{
            self, Kind, idle,
            properties::{self, Generation},
        },
        write::validate::rules::{self, Rules},
    },
    meta::{NameRule, Tree},
    schema::{
        self,
        builtin::{self, TypeRef},
        structural::Structural,
    },
    store::{CollectionId, Content, Object, type_prefix},
};

/// A subresource and the kind it exchanges.
#[derive(Debug, Clone)]
pub(crate) struct Sub {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) verbs: Verbs,
}

/// A served resource.
#[derive(Debug, Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent properties of a kind"
)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Verbs,
    pub(crate) subresources: Vec<Sub>,
    pub(crate) name_rule: NameRule,
    pub(crate) generation: Generation,
    pub(crate) unconditional_update: bool,
    pub(crate) create_on_update: bool,
    /// The storage version hash in discovery; `None` for resources that are not stored.
    pub(crate) storage_hash: Option<String>,
    /// The collection that holds the objects; `None` for kinds that are never stored.
    pub(crate) collection: Option<CollectionId>,
    /// The CRD version behind this resource; `None` for built-in kinds.
    pub(crate) custom: Option<Arc<CustomVersion>>,
    pub(crate) fields: Vec<SelectableField>,
    /// The type of a built-in kind as it is served.
    pub(crate) ty: Option<TypeRef>,
    /// The type of a built-in kind as it is stored.
    pub(crate) stored_ty: Option<TypeRef>,
    /// How the served version differs from the stored one.
    pub(crate) conversion: Option<Conversion>,
    /// The other version of a kind that is served in two versions.
    pub(crate) peer: Option<PeerVersion>,
    /// Behaviour specific to the kind.
    pub(crate) hooks: &'static dyn Kind,
    /// The validation rules of a built-in kind.
    pub(crate) rules: Rules,
    /// Why objects of this kind have no effect unless a controller is registered.
    pub(crate) idle: Option<&'static str>,
    /// Whether the response to a delete is the object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// The encoded start of an object, with its `kind` and `apiVersion`.
    pub(crate) prefix: String,
}

impl Resource {
    pub(crate) fn builtin(kind: &builtin::Resource, collection: Option<CollectionId>) -> Self {
        let hooks = kinds::find(kind.group, kind.plural);
        let conversion = hooks.conversion(kind.version);
        let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            plural: kind.plural.to_owned(),
            singular: kind.singular.to_owned(),
            kind: kind.kind.to_owned(),
            list_kind: format!("{}List", kind.kind),
            namespaced: kind.namespaced,
            short_names: strings(&kind.short_names),
            categories: strings(&kind.categories),
            verbs: verb_set(&kind.verbs),
            subresources: kind
                .subresources
                .iter()
                .map(|sub| Sub {
                    name: sub.name.to_owned(),
                    group: sub.group.unwrap_or(kind.group).to_owned(),
                    version: sub.version.unwrap_or(kind.version).to_owned(),
                    kind: sub.kind.to_owned(),
                    verbs: verb_set(&sub.verbs),
                })
                .collect(),
            name_rule: properties::name_rule(kind.group, kind.plural),
            generation: properties::generation(kind.group, kind.plural),
            unconditional_update: properties::updates_unconditionally(kind.group, kind.plural),
            create_on_update: properties::creates_on_update(kind.group, kind.plural),
            storage_hash: kind.storage_version_hash.map(str::to_owned),
            collection,
            custom: None,
            conversion,
            peer: PeerVersion::of(kind.group, kind.version, kind.kind),
            fields: selectable_fields::builtin(kind.group, kind.plural),
            ty: builtin::kind(kind.group, kind.version, kind.kind),
            stored_ty: match conversion {
                Some(conversion) => conversion.stored_type(),
                None => builtin::kind(kind.group, kind.version, kind.kind),
            },
            hooks,
            rules: rules::find(kind.group, kind.kind),
            idle: idle::reason(kind.group, kind.plural),
            returns_deleted: properties::returns_deleted(kind.group, kind.plural),
            prefix: type_prefix(&api_version(kind.group, kind.version), kind.kind),
        }
    }

    /// Returns this resource with another token that ends its watches when its definition changes.
    pub(super) fn with_watches_of(&self, superseded: &CancellationToken) -> Self {
        let custom = self.custom.as_deref().map(|custom| {
            Arc::new(CustomVersion {
                superseded: superseded.clone(),
                ..custom.clone()
            })
        });
        Self {
            custom,
            ..self.clone()
        }
    }

    /// Returns the `apiVersion`: `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub(crate) fn sub(&self, name: &str) -> Option<&Sub> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Returns true if `status` is a subresource.
    pub(crate) fn has_status(&self) -> bool {
        self.sub("status").is_some()
    }

    /// Returns the etcd key that kube-apiserver would use. Some of its messages contain it.
    pub(crate) fn storage_path(&self, key: &str) -> String {
        if self.custom.is_some() {
            return format!("/registry/{}/{}/{key}", self.group, self.plural);
        }
        let dir = self.hooks.storage_dir().unwrap_or(&self.plural);
        format!("/registry/{dir}/{key}")
    }

    /// Returns the schema of the version in which an object of a custom resource was stored.
    fn stored_schema<'a>(
        &'a self,
        custom: &'a CustomVersion,
        content: &Content,
    ) -> Option<&'a Structural> {
        match content.header.version.as_deref() {
            Some(version) if *version != *custom.storage_version => self.schema_of(version),
            _ => Some(&custom.storage_schema),
        }
    }

    /// Returns the schema of a version of a custom resource.
    pub(crate) fn schema_of(&self, api_version: &str) -> Option<&Structural> {
        let schema = self.custom.as_ref()?.schemas.get(api_version)?;
        Some(schema)
    }

    /// Returns true if the bytes of a stored object can be served unchanged: reading it would
    /// neither prune nor default anything.
    pub(crate) fn is_complete(&self, content: &Content) -> bool {
        self.custom.as_ref().is_none_or(|custom| {
            let served = custom.schema.fingerprint();
            content.header.settled_by == Some(served)
                && self
                    .stored_schema(custom, content)
                    .is_some_and(|stored| stored.fingerprint() == served)
        })
    }

    /// Decodes a stored object. A custom resource is pruned and defaulted by the version it was
    /// stored in, then pruned by the served version, as upstream decodes it.
    pub(crate) fn tree(&self, content: &Content, revision: Option<u64>) -> Tree {
        let tree = self.decode_stored(content, revision);
        let Some(custom) = &self.custom else {
            return tree;
        };
        let stored = self.stored_schema(custom, content);
        if stored.is_some_and(|it| it.fingerprint() == custom.schema.fingerprint()) {
            return tree;
        }
        custom.schema.pruned(tree)
    }

    /// Decodes a stored object in the version it was stored in.
    fn decode_stored(&self, content: &Content, revision: Option<u64>) -> Tree {
        let tree = content.decode(revision);
        let Some(custom) = &self.custom else {
            return tree;
        };
        match self.stored_schema(custom, content) {
            Some(schema) if content.header.settled_by != Some(schema.fingerprint()) => {
                schema.defaulted(schema.pruned(tree))
            }
            _ => tree,
        }
    }

    /// Returns the `apiVersion` in which objects of a custom resource are stored.
    pub(crate) fn storage_version(&self) -> &str {
        let custom = self.custom.as_ref();
        custom.map_or(&self.version, |custom| &custom.storage_version)
    }

    /// Returns the `apiVersion` in which an object of a custom resource was stored.
    pub(crate) fn stored_version(&self, content: &Content) -> String {
        let version = content.header.version.as_deref();
        version.unwrap_or(self.storage_version()).to_owned()
    }

    /// Decodes a stored object in the version it was stored in, with the defaults of that version.
    pub(crate) fn stored_tree(&self, object: &Object) -> Tree {
        self.decode_stored(&object.content, object.stored_revision())
    }

    /// Encodes an object that was converted to this version and is not stored.
    pub(crate) fn encode_shown(&self, object: Tree) -> Content {
        let mut content = Content::encode(object, Vec::new());
        if let Some(custom) = &self.custom {
            content.header.version = Some(self.api_version().into());
            content.header.settled_by = Some(custom.schema.fingerprint());
        }
        content
    }

    /// Encodes the next state of a stored object in the version it was stored in.
    pub(crate) fn encode_again(&self, object: Tree, stored: &Content) -> Content {
        let mut content = self.encode(object);
        content.header.version.clone_from(&stored.header.version);
        content
    }

    /// Converts a stored object to the served version.
    pub(crate) fn to_served(&self, tree: Tree) -> Tree {
        match self.conversion {
            Some(conversion) => conversion.to_served(tree),
            None => tree,
        }
    }

    /// Converts a served object to the stored version.
    pub(crate) fn to_stored(&self, tree: Tree) -> Tree {
        match self.conversion {
            Some(conversion) => conversion.to_stored(tree),
            None => tree,
        }
    }

    /// Encodes an object of this resource for the store.
    ///
    /// The selectable fields of a custom resource may change with its CRD, so they are read when a
    /// selector needs them. Those of a built-in kind are read once, here.
    pub(crate) fn encode(&self, object: Tree) -> Content {
        let fields = match self.custom {
            Some(_) => Vec::new(),
            None => self
                .fields
                .iter()
                .map(|field| field.read(&object))
                .collect(),
        };
        let mut object = Value::Object(object);
        let schema = self.custom.as_ref().map(|custom| &custom.storage_schema);
        let settled_by = schema
            .filter(|schema| schema.is_settled(&object))
            .map(|schema| schema.fingerprint());
        if self.custom.is_some() {
            shorten_numbers(&mut object);
        }
        let depth = schema::depth(&object);
        let mut content = match object {
            Value::Object(object) => Content::encode(object, fields),
            _ => Content::encode(Tree::new(), fields),
        };
        content.header.settled_by = settled_by;
        content.header.depth = depth;
        let custom = self.custom.as_ref();
        content.header.version = custom.map(|custom| Arc::clone(&custom.storage_version));
        content
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Writes `1.0` as `1`, as Kubernetes stores it.
fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(n) = number.as_f64().filter(|_| number.is_f64())
                && n.fract() == 0.0
            {
                let text = format!("{n:.0}");
                if let Ok(whole) = text.parse::<i64>() {
                    *number = whole.into();
                } else if let Ok(whole) = text.parse::<u64>() {
                    *number = whole.into();
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_numbers),
        Value::Object(map) => map.values_mut().for_each(shorten_numbers),
        _ => {}
    }
}
