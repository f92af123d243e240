//! Events about objects, which users read in `kubectl describe`.
//!
//! Recording an event must neither slow a reconcile down nor fail it, and a controller that reports
//! the same problem on every retry must not flood the API server. So recording only queues the
//! event, and one task per sink combines, counts and writes:
//!
//! ```text
//! EventRecorder ──► EventBroadcaster ──┬─► queue ─► correlator ─► core/v1 sink
//! (any number)      (names, fans out)  ├─► queue ─► series ─────► events.k8s.io/v1 sink
//!                                      ├─► queue ─► log
//!                                      └─► queue ─► a function
//! ```
//!
//! Similar events are combined, repeats become counts, an object with too many events is throttled,
//! and failed writes are retried.
//!
//! # Which API to write
//! [`start_recording`](EventBroadcaster::start_recording) writes `events.k8s.io/v1` where the
//! server has it; there, repeats become series whatever their message.
//! [`start_recording_to_sink`](EventBroadcaster::start_recording_to_sink) writes `core/v1`, where
//! every message has its own count. `kubectl describe` and `kubectl get events` show both.
//!
//! # Metrics
//! Every event offered to a sink is counted in `pintle_events_recorded_total` and ends in exactly
//! one of `pintle_events_{written,aggregated,filtered,dropped,failed}_total`.

mod broadcaster;
mod core_v1;
mod delivery;
mod events_v1;
mod metrics;
mod occurrence;
mod recorder;
mod sink;
mod watcher;

#[cfg(test)]
mod tests;

pub use self::{
    broadcaster::{EventBroadcaster, EventBroadcasterBuilder, Flushed, SinkHandle},
    occurrence::{EventType, Occurrence},
    recorder::{EventRecorder, NewEvent, Reference, Regarding},
    sink::{ApiSink, EventSink, SinkError},
};
