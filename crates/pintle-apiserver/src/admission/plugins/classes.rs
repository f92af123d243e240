//! `DefaultStorageClass` and `DefaultIngressClass`: claims and ingresses without a class get the
//! class marked as default, the newest if there are several.

use serde_json::{Value, json};

use crate::{
    admission::{Plugin, Request},
    api::{Api, ApiError},
    meta::{self, Tree},
};

/// Sets the default class of one kind.
#[derive(Debug)]
pub(crate) struct DefaultClass {
    name: &'static str,
    /// The kind that has a class, as group and plural.
    of: (&'static str, &'static str),
    /// The kind of the classes.
    classes: (&'static str, &'static str),
    /// The field of the spec that names the class.
    field: &'static str,
    /// The annotation that named the class before the field existed.
    legacy: &'static str,
    /// The annotations that mark a default, with the value `true`.
    marks: &'static [&'static str],
}

impl DefaultClass {
    pub(crate) const STORAGE: Self = Self {
        name: "DefaultStorageClass",
        of: ("", "persistentvolumeclaims"),
        classes: ("storage.k8s.io", "storageclasses"),
        field: "storageClassName",
        legacy: "volume.beta.kubernetes.io/storage-class",
        marks: &[
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ],
    };

    pub(crate) const INGRESS: Self = Self {
        name: "DefaultIngressClass",
        of: ("networking.k8s.io", "ingresses"),
        classes: ("networking.k8s.io", "ingressclasses"),
        field: "ingressClassName",
        legacy: "kubernetes.io/ingress.class",
        marks: &["ingressclass.kubernetes.io/is-default-class"],
    };

    /// Returns the name of the default class: the newest, then the first by name.
    fn default_class(&self, api: &Api) -> Option<String> {
        let (group, plural) = self.classes;
        let collection = api.registry.builtin_collection(group, plural)?;
        let classes = api.store.snapshot(collection).ok()?;
        let classes = classes.objects.values();
        let marked = classes.filter(|class| class.content.mentions("/is-default-class\":\"true\""));
        let defaults = marked.filter_map(|class| {
            let tree = class.decode();
            let annotations = tree.get("metadata")?.get("annotations")?;
            let is_default = self.marks.iter().any(|mark| annotations[*mark] == "true");
            let created = meta::text(&tree, "creationTimestamp").to_owned();
            is_default.then(|| (std::cmp::Reverse(created), class.name().to_owned()))
        });
        defaults.min().map(|(_, name)| name)
    }
}

impl Plugin for DefaultClass {
    fn name(&self) -> &'static str {
        self.name
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        let (group, plural) = self.of;
        request.creates(group, plural)
    }

    fn mutate(&self, api: &Api, _: &Request<'_>, object: &mut Tree) -> Result<(), ApiError> {
        let annotations = object.get("metadata").and_then(|m| m.get("annotations"));
        let legacy = annotations.is_some_and(|all| !all[self.legacy].is_null());
        let named = object
            .get("spec")
            .is_some_and(|spec| !spec[self.field].is_null());
        if !legacy
            && !named
            && let Some(class) = self.default_class(api)
        {
            let spec = object.entry("spec").or_insert_with(|| json!({}));
            spec[self.field] = Value::String(class);
        }
        Ok(())
    }
}
