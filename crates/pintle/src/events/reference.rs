//! Whom an event is about.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

use crate::cache::Object;

/// Anything an event can be about: every typed object, every cached one, and a [`Reference`] made by
/// hand.
pub trait Regarding {
    /// The reference that goes into the event.
    fn reference(&self) -> ObjectReference;
}

impl<K> Regarding for K
where
    K: Resource,
    K::DynamicType: Default,
{
    fn reference(&self) -> ObjectReference {
        Reference::of(self, &K::DynamicType::default()).0
    }
}

impl<K> Regarding for Object<K>
where
    K: Resource,
    K::DynamicType: Default,
{
    fn reference(&self) -> ObjectReference {
        let kind = K::DynamicType::default();
        let known = |part: &str| (!part.is_empty()).then(|| part.to_owned());
        ObjectReference {
            api_version: Some(K::api_version(&kind).into_owned()),
            kind: Some(K::kind(&kind).into_owned()),
            namespace: self.key().namespace().map(str::to_owned),
            name: known(self.key().name()),
            uid: known(self.uid()),
            resource_version: known(self.resource_version()),
            field_path: None,
        }
    }
}

/// A reference made by hand: to an object whose type is known only at run time, to a part of an
/// object, or to one that is known by name only.
///
/// ```
/// use pintle::events::Reference;
/// use k8s_openapi::api::core::v1::{ObjectReference, Pod};
///
/// let pod = Pod::default();
/// let container = Reference::of(&pod, &()).field_path("spec.containers{web}");
///
/// let by_name = Reference::from(ObjectReference {
///     api_version: Some("v1".into()),
///     kind: Some("Node".into()),
///     name: Some("node-1".into()),
///     ..ObjectReference::default()
/// });
/// # let _ = (container, by_name);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reference(ObjectReference);

impl Reference {
    /// A reference to `object`, whose kind is told by `kind`.
    pub fn of<K: Resource>(object: &K, kind: &K::DynamicType) -> Self {
        Self(ObjectReference {
            resource_version: object.meta().resource_version.clone(),
            ..object.object_ref(kind)
        })
    }

    /// Points to a part of the object.
    pub fn field_path(mut self, path: impl Into<String>) -> Self {
        self.0.field_path = Some(path.into());
        self
    }
}

impl From<ObjectReference> for Reference {
    fn from(reference: ObjectReference) -> Self {
        Self(reference)
    }
}

impl Regarding for Reference {
    fn reference(&self) -> ObjectReference {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::cache::Reader;

    /// Proves events/valid-only.
    #[test]
    fn a_cached_object_is_referred_to_like_a_typed_one() {
        let json = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7" },
        });
        let typed: Pod = serde_json::from_value(json.clone()).expect("a pod");
        let cached = Reader::<Pod>::new()
            .read(json.to_string().as_bytes())
            .expect("a pod");
        assert_eq!(cached.reference(), typed.reference());
        assert_eq!(typed.reference().resource_version.as_deref(), Some("7"));
    }
}
