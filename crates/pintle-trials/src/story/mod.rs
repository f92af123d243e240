//! Stories: the actions of users while the controller runs.

pub(crate) mod walk;

use std::any::TypeId;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use crate::gateway::request::ResourceName;

/// A kind, as paths and objects name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KindRef {
    pub(crate) resource: ResourceName,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
}

impl KindRef {
    pub(crate) fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        Self {
            resource: ResourceName {
                group: K::group(&()).into_owned(),
                plural: K::plural(&()).into_owned(),
            },
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        }
    }

    /// Returns the path of the collection.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let namespace = self.namespaced.then_some(namespace);
        collection_path(&self.resource, &self.version, namespace)
    }
}

pub(crate) fn collection_path(
    resource: &ResourceName,
    version: &str,
    namespace: Option<&str>,
) -> String {
    let root = if resource.group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{}/{version}", resource.group)
    };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}", resource.plural),
        None => format!("{root}/{}", resource.plural),
    }
}

/// An object that users want to exist.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Desired {
    pub(crate) kind: KindRef,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) value: Value,
}

impl Desired {
    pub(crate) fn of<K>(object: &K) -> Result<Self, String>
    where
        K: Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        let kind = KindRef::of::<K>();
        let mut value = serde_json::to_value(object)
            .map_err(|error| format!("failed to serialize the {}: {error}", kind.kind))?;
        let Some(fields) = value.as_object_mut() else {
            return Err(format!("a {} is not a JSON object", kind.kind));
        };
        fields.remove("status");
        fields
            .entry("apiVersion")
            .or_insert_with(|| K::api_version(&()).into());
        fields
            .entry("kind")
            .or_insert_with(|| kind.kind.clone().into());
        let meta = &value["metadata"];
        let name = meta["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(format!("the {} has no metadata.name", kind.kind));
        }
        let namespace = meta["namespace"].as_str().unwrap_or("default").to_owned();
        if kind.namespaced {
            value["metadata"]["namespace"] = namespace.clone().into();
        }
        Ok(Self {
            kind,
            namespace,
            name,
            value,
        })
    }

    pub(crate) fn title(&self) -> String {
        if self.kind.namespaced {
            format!("{} {}/{}", self.kind.kind, self.namespace, self.name)
        } else {
            format!("{} {}", self.kind.kind, self.name)
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.kind.path(&self.namespace), self.name)
    }
}

/// One action of a user.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Creates the object, or updates it to this state.
    Apply(Desired, String),
    /// Deletes the object.
    Delete(Desired),
}

impl Step {
    pub(crate) fn object(&self) -> &Desired {
        match self {
            Self::Apply(object, _) | Self::Delete(object) => object,
        }
    }

    /// Describes the step in a few words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Apply(object, what) if what.is_empty() => format!("apply {}", object.title()),
            Self::Apply(_, what) => what.clone(),
            Self::Delete(object) => format!("delete {}", object.title()),
        }
    }
}

/// The actions of users, step by step.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use pintle_trials::Story;
///
/// # fn map(value: &str) -> ConfigMap {
/// #     serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "data": {"a": value}})).unwrap()
/// # }
/// let story = Story::new()
///     .apply(&map("1"))
///     .apply(&map("2"))
///     .delete(&map("2"));
/// assert_eq!(story.len(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Story {
    pub(crate) steps: Vec<Step>,
    pub(crate) errors: Vec<String>,
}

impl Story {
    /// Returns an empty story.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step that creates the object, or updates everything except its status to this state.
    pub fn apply<K>(mut self, object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        match Desired::of(object) {
            Ok(object) => self.steps.push(Step::Apply(object, String::new())),
            Err(error) => self.errors.push(error),
        }
        self
    }

    /// Adds a step that deletes the object with the name and namespace of this one.
    pub fn delete<K>(mut self, object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        match Desired::of(object) {
            Ok(object) => self.steps.push(Step::Delete(object)),
            Err(error) => self.errors.push(error),
        }
        self
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Merges the desired object of a user into the live one. Everything except metadata and status is
/// replaced; labels and annotations that the user set before and no longer wants are removed.
pub(crate) fn merged(live: &Value, before: Option<&Value>, desired: &Value) -> Value {
    let mut next = desired.clone();
    next["metadata"] = live["metadata"].clone();
    if !live["status"].is_null() {
        next["status"] = live["status"].clone();
    }
    for field in ["labels", "annotations"] {
        let mut map = live["metadata"][field]
            .as_object()
            .cloned()
            .unwrap_or_default();
        if let Some(before) = before.and_then(|it| it["metadata"][field].as_object()) {
            for key in before.keys() {
                map.remove(key);
            }
        }
        if let Some(wanted) = desired["metadata"][field].as_object() {
            map.extend(wanted.clone());
        }
        if !map.is_empty() || !live["metadata"][field].is_null() {
            next["metadata"][field] = map.into();
        }
    }
    next
}

#[cfg(test)]
mod tests;
