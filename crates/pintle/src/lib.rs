//! Kubernetes controllers the client-go way.
//!
//! An event travels through the modules in the order in which they stand here, and each knows only
//! those before it:
//!
//! ```text
//! source ─► reflector ─► delta_fifo ─► cache ─► informer ─► queue ─► controller
//! ```

#![deny(missing_docs)]

pub mod cache;
pub mod controller;
pub mod delta_fifo;
pub mod informer;
mod object;
pub mod queue;
pub mod reflector;
pub mod source;

pub mod chance;
pub mod client;
pub mod clock;
pub mod conditions;
pub mod events;
pub mod finalizer;
pub mod limits;
pub mod metrics;
pub mod owner;

mod sync;
#[cfg(test)]
mod testing;
