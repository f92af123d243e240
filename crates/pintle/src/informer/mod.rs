//! One watch per kind and scope, any number of independent handlers.
//!
//! A [`SharedInformer`] keeps a [cache](crate::cache) of one kind up to date and tells its handlers
//! what changed. An [`InformerFactory`] makes each informer once and runs them all: that is what a
//! program with several controllers uses.
//!
//! # An event's way
//! ```text
//! log ─► handle_deltas ─► cache ─► each handler's buffer ─► the handler's own task
//! ```
//! Entries of the [log](crate::delta_fifo) are applied to the cache in batches, under one lock;
//! then the events go into the buffer of every handler. Each handler has a task of its own that
//! empties its buffer, so nobody waits for anybody.
//!
//! # What a handler can count on
//! It is told one [`Event`] at a time, in order, after the cache shows it. What was there before it
//! is told as initial. A deletion always has its key; whether its final state was seen is said, not
//! hidden. Dropping the [`Registration`] removes it at once.
//!
//! # What it cannot count on
//! A handler that falls behind is told the latest state of each object, not every state between,
//! unless it asks for a [lossless backlog](Backlog::Lossless). The cache may be further ahead than
//! the event being told. A handler that panics is called again with the next event.

mod buffer;
mod builder;
mod event;
mod factory;
mod filter;
mod handler;
// Read by `probes` only.
#[cfg_attr(not(feature = "probes"), allow(dead_code))]
mod health;
mod metrics;
mod not_synced;
mod processor;
mod registration;
mod request;
mod shared_informer;
mod stream;
mod usage;

#[cfg(feature = "probes")]
pub(crate) use self::health::{Health, Idle, State};
pub use self::{
    buffer::Backlog,
    builder::InformerBuilder,
    event::{Deleted, Event},
    factory::InformerFactory,
    not_synced::{NotSynced, Unsynced},
    registration::Registration,
    request::InformerRequest,
    shared_informer::{HandlerBuilder, SharedInformer},
    stream::EventStream,
};

#[cfg(test)]
mod tests;
