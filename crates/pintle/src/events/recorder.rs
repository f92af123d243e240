//! What controllers hold: says what happened, and goes on.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::api::core::v1::ObjectReference;

use super::{
    broadcaster::Shared,
    occurrence::{EventType, Occurrence},
    reference::Regarding,
};

/// Records events of one component. Cheap to clone.
///
/// Recording never waits and never fails the caller: an event that cannot be recorded is logged,
/// counted and forgotten.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<Shared>,
    component: Arc<str>,
}

/// An event with all that can be said about it; see [`EventRecorder::publish`].
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
    /// Something happened to `object`.
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

    /// What was done or tried, for machines. Without it the reason stands for both.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// A second object that had a part in it.
    pub fn related(mut self, object: &impl Regarding) -> Self {
        self.related = Some(object.reference());
        self
    }

    /// An annotation of the event itself.
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

    /// Records that something happened to `object`.
    ///
    /// `reason` is one word in CamelCase that programs can match; `message` is for people.
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
    /// recorder.event(&config, EventType::Warning, "Unused", format!("nobody reads {}", "it"));
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

    /// Records an event with action, related object or annotations.
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
                "event not recorded: its object has no kind or API version"
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
