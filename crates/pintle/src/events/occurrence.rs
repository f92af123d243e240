//! What happened to which object: one record, before any API has shaped it.

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

/// The longest reason, action or instance the events.k8s.io/v1 API takes.
const LONGEST_WORD: usize = 128;
/// The longest message the events.k8s.io/v1 API takes.
const LONGEST_NOTE: usize = 1024;

/// How an event is meant: things go as they should, or somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// Information only.
    Normal,
    /// Something may need attention.
    Warning,
}

impl EventType {
    /// The word used on the wire.
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

/// One thing that happened, as every sink of a broadcaster gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// The name the event will have if it is written: unlike that of any other occurrence.
    pub name: String,
    /// The namespace the event is written to: the object's, or `default` for a cluster-wide object.
    pub namespace: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// Normal or Warning.
    pub event_type: EventType,
    /// Why, in one word for machines.
    pub reason: String,
    /// What happened, for people.
    pub message: String,
    /// The object it happened to.
    pub regarding: ObjectReference,
    /// A second object that had a part in it.
    pub related: Option<ObjectReference>,
    /// What the controller did or tried to do; the reason when nothing was said.
    pub action: Option<String>,
    /// Annotations of the event itself.
    pub annotations: BTreeMap<String, String>,
    /// The controller that reports.
    pub component: String,
    /// The machine it runs on, when it was told.
    pub host: Option<String>,
}

impl Occurrence {
    /// The event as the core/v1 API stores it when it is seen for the first time.
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

    /// The event as the events.k8s.io/v1 API stores it when it is seen for the first time. What is
    /// longer than that API allows is cut. `machine` is named if no host was told.
    pub(super) fn to_events_v1(&self, machine: &str) -> events::v1::Event {
        let host = self.host.as_deref().unwrap_or(machine);
        let instance = format!("{}-{host}", self.component);
        let action = self.action.as_ref().unwrap_or(&self.reason);
        events::v1::Event {
            metadata: self.metadata(),
            regarding: Some(self.regarding.clone()),
            related: self.related.clone(),
            type_: Some(self.event_type.as_str().to_owned()),
            reason: Some(cut(&self.reason, LONGEST_WORD)),
            action: Some(cut(action, LONGEST_WORD)),
            note: Some(cut(&self.message, LONGEST_NOTE)),
            event_time: Some(MicroTime(self.at)),
            reporting_controller: Some(self.component.clone()),
            reporting_instance: Some(cut(&instance, LONGEST_WORD)),
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

/// The first `most` bytes of `text`, not splitting a character.
fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// The name of an event about `object`: its name and the time in hexadecimal, or a random
/// identifier where that could not be a name.
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
mod tests {
    use super::*;

    /// Proves events/name-and-fields.
    #[test]
    fn a_name_that_cannot_be_one_is_replaced_by_a_random_identifier() {
        let rng = Rng::with_seed(1);
        assert_eq!(event_name("web-0", 0x1f, &rng), "web-0.1f");
        assert_eq!(event_name("system.node", 255, &rng), "system.node.ff");
        for odd in ["system:node:a", "", "Web", "-a", "a..b", &"x".repeat(251)] {
            let name = event_name(odd, 31, &rng);
            assert!(is_dns_subdomain(&name), "{odd:?} gave {name:?}");
            assert_eq!(name.len(), 36);
            assert_eq!(name.as_bytes()[14], b'4', "version of {name}");
            assert!(
                matches!(name.as_bytes()[19], b'8' | b'9' | b'a' | b'b'),
                "variant of {name}"
            );
        }
    }
}
