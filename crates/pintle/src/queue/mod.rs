//! The work queue: which keys need work, once each, in fair order, at the right time.
//!
//! Events arrive faster than a controller can act on them, and several are often about the same
//! object. The queue therefore holds keys instead of events: a key is queued once however often its
//! object changes, is never processed by two workers at a time, and backs off when it fails.
//!
//! [`WorkQueue`] is one state machine for what client-go stacks from three queues. A worker loops:
//! [`get`](WorkQueue::get) an [`Item`], reconcile its key, then call [`forget`](Item::forget),
//! [`retry`](Item::retry) or [`requeue_after`](Item::requeue_after).
//!
//! ```text
//! WorkQueue, Item   work_queue.rs, item.rs   what users hold
//!      │
//!   Shared          shared.rs                the lock, the clock, the waiters (waiters.rs)
//!      │
//!    State          state/                   a pure state machine: ready, delayed, processing
//! ```

mod item;
#[cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, reason = "only a scrape reads the counters")
)]
mod metrics;
pub mod rate_limit;
mod shared;
mod state;
mod waiters;
mod work_queue;

#[cfg(test)]
mod tests;

pub use item::{Item, Key, Priority};
pub use metrics::QueueMetrics;
pub(crate) use state::Cause;
pub use work_queue::{Builder, Left, WorkQueue};
