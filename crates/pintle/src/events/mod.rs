//! What users read in `kubectl describe`: events about objects, recorded by controllers.
//!
//! ```text
//! EventRecorder ──► EventBroadcaster ──┬─► queue ─► correlator ─► core/v1 sink
//! (any number)      (names, fans out)  ├─► queue ─► series ─────► events.k8s.io/v1 sink
//!                                      ├─► queue ─► log
//!                                      └─► queue ─► a function
//! ```
//!
//! Recording costs the caller one short lock. Everything else happens in a task per sink: similar
//! events are combined, repeats become counts, an object that never rests is held back, and writes
//! that fail are tried again. Every event ends in exactly one of the counters of [`EventMetrics`].
//!
//! Which API to write: [`start_recording`](EventBroadcaster::start_recording) takes the newer one
//! where the server has it, in which repeats become series whatever their message;
//! [`start_recording_to_sink`](EventBroadcaster::start_recording_to_sink) writes core/v1, in which
//! every message has its own count. `kubectl describe` and `kubectl get events` show both.

mod broadcaster;
mod core_v1;
mod delivery;
mod events_v1;
mod log;
mod metrics;
mod occurrence;
mod recorder;
mod reference;
mod sink;
#[cfg(test)]
mod tests;

pub use self::{
    broadcaster::{EventBroadcaster, EventBroadcasterBuilder, Flushed, SinkHandle},
    metrics::EventMetrics,
    occurrence::{EventType, Occurrence},
    recorder::{EventRecorder, NewEvent},
    reference::{Reference, Regarding},
    sink::{ApiSink, EventSink, SinkError},
};
