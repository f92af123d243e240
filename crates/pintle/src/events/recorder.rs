//! Recording events, and referring to the objects they are about.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

use super::{
    broadcaster::Shared,
    occurrence::{EventType, Occurrence},
};
use crate::cache::Object;

/// Records the events of one component. Cheap to clone.
///
/// Recording never waits and never fails: an event that cannot be recorded is logged, counted and
/// dropped.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<Shared>,
    component: Arc<str>,
}

/// An event with an action, a related object or annotations; see [`EventRecorder::publish`].
#[derive(Clone, Debug)]
pub struct NewEvent {
    event_type: EventType,
    reason: String,
    message: String,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    action: Option<String>,
    annotations: BTreeMap<String, String>,
}

impl NewEvent {
    /// Returns an event about `object`.
    ///
    /// `reason` is one word in CamelCase that programs can match; `message` is for people.
    pub fn new(
        object: &impl Regarding,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            event_type,
            reason: reason.into(),
            message: message.into(),
            regarding: object.reference(),
            related: None,
            action: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Sets the machine-readable action that was taken or attempted. Default in `events.k8s.io/v1`:
    /// the reason.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// Sets a second object that is involved.
    pub fn related(mut self, object: &impl Regarding) -> Self {
        self.related = Some(object.reference());
        self
    }

    /// Adds an annotation to the event itself.
    pub fn annotation(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(name.into(), value.into());
        self
    }
}

impl EventRecorder {
    pub(super) fn new(shared: Arc<Shared>, component: String) -> Self {
        Self {
            shared,
            component: component.into(),
        }
    }

    /// Records an event about `object`.
    ///
    /// `reason` is one word in CamelCase that programs can match; `message` is for people.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use pintle::events::{EventBroadcaster, EventType};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let broadcaster = EventBroadcaster::new();
    /// let recorder = broadcaster.recorder("tidy");
    /// let config = ConfigMap::default();
    /// recorder.event(&config, EventType::Warning, "Unused", "no Pod mounts this ConfigMap");
    /// # }
    /// ```
    pub fn event(
        &self,
        object: &impl Regarding,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.publish(NewEvent::new(object, event_type, reason, message));
    }

    /// Records an event with an action, a related object or annotations.
    pub fn publish(&self, event: NewEvent) {
        let NewEvent {
            event_type,
            reason,
            message,
            regarding,
            related,
            action,
            annotations,
        } = event;
        let known = |part: &Option<String>| part.as_ref().is_some_and(|part| !part.is_empty());
        if !known(&regarding.kind) || !known(&regarding.api_version) {
            self.shared.refuse();
            tracing::error!(
                reason,
                "dropping event: its object has no kind or apiVersion"
            );
            return;
        }
        let namespace = regarding
            .namespace
            .clone()
            .filter(|namespace| !namespace.is_empty());
        self.shared.record(Occurrence {
            name: String::new(),
            namespace: namespace.unwrap_or_else(|| "default".to_owned()),
            at: self.shared.now(),
            event_type,
            reason,
            message,
            regarding,
            related,
            action,
            annotations,
            component: self.component.to_string(),
            host: self.shared.host().cloned(),
        });
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("component", &self.component)
            .finish_non_exhaustive()
    }
}

/// Implemented by everything an event can be about: typed objects, cached objects, and a
/// [`Reference`].
pub trait Regarding {
    /// Returns the reference to record in the event.
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

/// An explicit reference: to an object whose type is known only at run time, to a part of an
/// object, or to one that is known only by name.
///
/// # Examples
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
    /// Returns a reference to `object` of the given kind.
    pub fn of<K: Resource>(object: &K, kind: &K::DynamicType) -> Self {
        Self(ObjectReference {
            resource_version: object.meta().resource_version.clone(),
            ..object.object_ref(kind)
        })
    }

    /// Points the reference to a part of the object.
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
mod tests;
