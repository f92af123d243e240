//! One recorded event, before it is converted for either API.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Event, EventSource, ObjectReference},
        events,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};

use crate::clock::Rng;

/// The maximum length, in bytes, of a reason, action or instance in `events.k8s.io/v1`.
const MAX_WORD: usize = 128;
/// The maximum length, in bytes, of a note in `events.k8s.io/v1`.
const MAX_NOTE: usize = 1024;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// Information only.
    Normal,
    /// Something may need attention.
    Warning,
}

impl EventType {
    /// Returns the value of the event's `type` field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A recorded event, as every sink of a broadcaster receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// The name of the event if it is written. No two occurrences share one.
    pub name: String,
    /// The namespace of the event: the object's, or `default` for a cluster-scoped object.
    pub namespace: String,
    /// When the event was recorded.
    pub at: Timestamp,
    /// Normal or Warning.
    pub event_type: EventType,
    /// The machine-readable reason, one word in CamelCase.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The object that the event is about.
    pub regarding: ObjectReference,
    /// A second object that is involved.
    pub related: Option<ObjectReference>,
    /// What the controller did or tried to do. If unset, `events.k8s.io/v1` events have the reason.
    pub action: Option<String>,
    /// Annotations of the event itself.
    pub annotations: BTreeMap<String, String>,
    /// The reporting controller.
    pub component: String,
    /// The host of the controller, if set on the broadcaster.
    pub host: Option<String>,
}

impl Occurrence {
    /// Returns the `core/v1` event for the first occurrence.
    pub fn to_core_v1(&self) -> Event {
        Event {
            metadata: self.metadata(),
            involved_object: self.regarding.clone(),
            related: self.related.clone(),
            action: self.action.clone(),
            type_: Some(self.event_type.as_str().to_owned()),
            reason: Some(self.reason.clone()),
            message: Some(self.message.clone()),
            count: Some(1),
            first_timestamp: Some(Time(self.at)),
            last_timestamp: Some(Time(self.at)),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: self.host.clone(),
            }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: self.host.clone(),
            ..Event::default()
        }
    }

    /// Returns the `events.k8s.io/v1` event for the first occurrence. Text longer than that API
    /// allows is truncated. `machine` is used if no host is set.
    pub(super) fn to_events_v1(&self, machine: &str) -> events::v1::Event {
        let host = self.host.as_deref().unwrap_or(machine);
        let instance = format!("{}-{host}", self.component);
        let action = self.action.as_ref().unwrap_or(&self.reason);
        events::v1::Event {
            metadata: self.metadata(),
            regarding: Some(self.regarding.clone()),
            related: self.related.clone(),
            type_: Some(self.event_type.as_str().to_owned()),
            reason: Some(truncate(&self.reason, MAX_WORD)),
            action: Some(truncate(action, MAX_WORD)),
            note: Some(truncate(&self.message, MAX_NOTE)),
            event_time: Some(MicroTime(self.at)),
            reporting_controller: Some(self.component.clone()),
            reporting_instance: Some(truncate(&instance, MAX_WORD)),
            ..events::v1::Event::default()
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            annotations: (!self.annotations.is_empty()).then(|| self.annotations.clone()),
            ..ObjectMeta::default()
        }
    }
}

/// Returns the first `most` bytes of `text`, without splitting a character.
fn truncate(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// Returns the name of an event about `object`: the object's name and the time in hexadecimal, or a
/// random UUID if that is not a valid name.
pub(super) fn event_name(object: &str, nanos: i128, rng: &Rng) -> String {
    let name = format!("{object}.{nanos:x}");
    if is_dns_subdomain(&name) {
        name
    } else {
        rng.uuid()
    }
}

fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|&b| alphanumeric(b) || b == b'-')
            && bytes.first().is_some_and(|&b| alphanumeric(b))
            && bytes.last().is_some_and(|&b| alphanumeric(b))
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests;
