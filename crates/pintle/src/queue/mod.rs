//! Which keys need work, once each, in fair order, at the right time.
//!
//! [`WorkQueue`] is one state machine for what client-go stacks from three queues. A worker loop is:
//! [`get`](WorkQueue::get) an [`Item`], reconcile its key, then say [`forget`](Item::forget),
//! [`retry`](Item::retry) or [`requeue_after`](Item::requeue_after).

mod handle;
mod item;
mod line;
mod list;
mod metrics;
mod priority;
pub mod rate_limit;
mod ready;
mod shared;
mod slab;
mod state;
mod waiting;

#[cfg(test)]
mod tests;

pub use handle::{Builder, Left, WorkQueue};
pub use item::Item;
pub use metrics::QueueMetrics;
pub use priority::{Key, Priority};
