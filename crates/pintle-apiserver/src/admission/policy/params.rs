//! The parameters of a policy: objects that a binding names or selects.

use std::sync::Arc;

use serde_json::Value;

use super::compile::{Binding, Policy};
use crate::{
    admission::webhook::read_selector,
    api::Api,
    registry::{Resource, api_version},
    store::{Object, key_of, key_range, namespace_bounds},
};

/// One parameter of a policy. A selector can match many, so each is decoded only when it is used.
#[derive(Debug)]
pub(super) enum Param {
    /// The policy or its binding has no parameters.
    Null,
    Object {
        resource: Arc<Resource>,
        object: Arc<Object>,
    },
}

impl Param {
    /// Returns the store key of the object, or an empty string if there are no parameters.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Null => "",
            Self::Object { object, .. } => &object.key,
        }
    }

    /// Decodes the parameter.
    pub(super) fn value(&self) -> Value {
        let Self::Object { resource, object } = self else {
            return Value::Null;
        };
        let tree = resource.tree(&object.content, Some(object.revision));
        let mut tree = resource.to_served(tree);
        let version = api_version(&resource.group, &resource.version);
        tree.insert("apiVersion".into(), version.into());
        tree.insert("kind".into(), resource.kind.clone().into());
        Value::Object(tree)
    }
}

/// Returns the resource of a policy's parameters. An error counts as an error of the policy.
pub(super) fn resource(api: &Api, policy: &Policy) -> Result<Option<Arc<Resource>>, String> {
    let Some((of, kind)) = &policy.param_kind else {
        return Ok(None);
    };
    let (group, version) = of.split_once('/').unwrap_or(("", of));
    let catalog = api.registry.catalog();
    let mut resources = catalog.of_version(group, version);
    let found = resources.find(|resource| resource.kind == *kind && resource.collection.is_some());
    let found = found.map(Arc::clone);
    found.map(Some).ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    })
}

/// Returns the parameters for which a binding applies its policy. An error counts as an error of
/// the binding.
pub(super) async fn collect(
    api: &Api,
    resource: Option<&Arc<Resource>>,
    binding: &Binding,
    namespace: &str,
) -> Result<Vec<Param>, String> {
    let wanted = &binding.param_ref;
    let (Some(resource), false) = (resource, wanted.is_null()) else {
        return Ok(vec![Param::Null]);
    };
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let namespace = match (text("namespace"), resource.namespaced) {
        ("", false) => None,
        (_, false) => {
            return Err(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                    .to_owned(),
            );
        }
        ("", true) if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped \
                 resources"
                    .to_owned(),
            );
        }
        ("", true) => Some(namespace),
        (other, true) => Some(other),
    };
    let found = find(api, resource, namespace, wanted)?;
    if found.is_empty() && text("parameterNotFoundAction") == "Deny" {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
        );
    }
    let shown = api.all_shown(resource, found).await;
    let shown = shown.map_err(|error| error.message().to_owned())?;
    let params = shown.into_iter().map(|object| Param::Object {
        resource: Arc::clone(resource),
        object,
    });
    Ok(params.collect())
}

/// Returns the objects that a binding names or selects.
fn find(
    api: &Api,
    resource: &Resource,
    namespace: Option<&str>,
    wanted: &Value,
) -> Result<Vec<Arc<Object>>, String> {
    let Some(collection) = resource.collection else {
        return Ok(Vec::new());
    };
    let name = wanted["name"].as_str().unwrap_or_default();
    if !name.is_empty() {
        let found = api.store.get(collection, &key_of(namespace, name));
        return Ok(found.into_iter().collect());
    }
    let selector = read_selector(&wanted["selector"])?;
    let Ok(snapshot) = api.store.snapshot(collection) else {
        return Ok(Vec::new());
    };
    let bounds = namespace.map(namespace_bounds);
    let range = snapshot
        .objects
        .range::<str, _>(key_range(bounds.as_ref(), None));
    let objects = range.map(|(_, object)| object);
    Ok(objects
        .filter(|object| selector.matches(&object.header().labels))
        .cloned()
        .collect())
}
