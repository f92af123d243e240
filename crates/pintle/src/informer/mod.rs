//! One watch per kind and scope, shared by any number of handlers.
//!
//! Several controllers in one process often need the same objects. Watching a kind once per
//! controller multiplies the load on the API server and the memory for the cache. A
//! [`SharedInformer`] watches once, keeps a [cache](crate::cache) up to date and notifies its
//! handlers of every change. An [`InformerFactory`] builds each informer once and runs them all;
//! most programs use that.
//!
//! # What is watched
//! A [`WatchInput`] is a value that names the objects and the form in which they are cached: the
//! kind, by type or known only at run time, the namespaces, label and field selectors, a transform,
//! and the cluster. Two inputs are the same, and share one list, one watch and one cache, if they
//! agree in
//! - the cluster, by name,
//! - group, version and kind,
//! - namespaces, by name or by [`Namespaces`] handle, and selectors, by their text,
//! - the form: the Rust type, the name of the transform, eager decoding, the size of recent views,
//!   kept `managedFields`.
//!
//! A `Pod`, its metadata and a struct with a few of its fields are three forms of one kind, hence
//! three informers; nothing is shared between them. Inputs of one form share the objects, the
//! indexes and the connection.
//!
//! # Flow
//! ```text
//! delta_fifo ─► handle_deltas ─► cache ─► one buffer per handler ─► one task per handler
//! ```
//! Entries of the [log](crate::delta_fifo) are applied to the cache in batches, under one lock;
//! then the resulting events go into the buffer of every handler. Each handler has a task that
//! drains its buffer, so no handler waits for another.
//!
//! # Guarantees
//! - A handler receives one [`Event`] at a time, in order, after the cache shows it.
//! - Objects that existed before the handler are delivered first, marked as initial.
//! - Delivery is lossless unless the handler opts into
//!   [coalescing](HandlerBuilder::coalesce_beyond).
//! - A deletion always carries the key and the last known state, and says whether the final state
//!   was seen.
//! - Dropping a [`Registration`] removes its handler immediately.
//!
//! # Slow handlers
//! A handler that cannot keep up exerts no back-pressure: its events queue in its own buffer, which
//! grows until the handler catches up, as in client-go. The cache and the other handlers are not
//! affected. [`Registration::pending`] and the metric `informer_handler_waiting_events` show the
//! backlog, and a call that takes longer than 100 ms while more than 1,024 events wait is logged. A
//! handler that only adds keys to a queue never falls that far behind.
//!
//! Coalescing bounds the buffer by merging the waiting events of each object, at the price that an
//! object which is created and deleted in the meantime is never reported. That is right for a
//! handler that maintains its own view of the objects, and wrong for one that feeds a queue: the
//! cache is ahead of the events, so a worker may have acted on an object whose creation and
//! deletion then cancel out.
//!
//! # Caveats
//! The cache may be further ahead than the event being handled. A handler that panics is called
//! again with the next event.

mod buffer;
mod builder;
mod event;
mod factory;
mod handler;
// Read by `probes` only.
#[cfg_attr(not(feature = "probes"), allow(dead_code))]
mod health;
mod input;
// Read by `inspect` only.
#[cfg_attr(not(feature = "inspect"), allow(dead_code))]
mod inspect;
mod metrics;
mod multi_namespace;
mod namespaces;
mod processor;
mod registration;
mod registry;
mod relist;
mod shared_informer;

#[cfg(feature = "probes")]
pub(crate) use self::health::{Health, Idle, State};
#[cfg(all(test, feature = "inspect"))]
pub(crate) use self::inspect::Cached;
#[cfg(feature = "inspect")]
pub(crate) use self::inspect::{Cache, WeakFactory};
pub use self::{
    builder::InformerBuilder,
    event::{Deleted, Event},
    factory::InformerFactory,
    health::{NotSynced, Unsynced},
    input::WatchInput,
    namespaces::Namespaces,
    registration::{EventStream, HandlerBuilder, Registration},
    shared_informer::SharedInformer,
};
pub(crate) use self::{
    health::wait_for_watches,
    input::{Cluster, Reach},
    registry::Identity,
};

#[cfg(test)]
mod tests;
