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
//!
//! # Metrics
//! [`Builder::metrics`] registers a queue. Queues with the same name are added up.
//!
//! | metric | meaning |
//! |---|---|
//! | `workqueue_depth` | keys to run now |
//! | `workqueue_adds_total` | adds that did not collapse |
//! | `workqueue_queue_duration_seconds` | time from ready to dequeued |
//! | `workqueue_work_duration_seconds` | time from dequeued to done, except for items that were put back |
//! | `workqueue_unfinished_work_seconds` | total processing time of the keys being processed, without parked ones |
//! | `workqueue_longest_running_processor_seconds` | the longest of these times |
//! | `workqueue_retries_total` | delayed and rate-limited adds |
//! | `workqueue_delayed` | delayed keys |
//! | `workqueue_undecided_total` | items dropped without a result |

#[cfg(feature = "inspect")]
mod detail;
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

#[cfg(feature = "inspect")]
pub(crate) use detail::Position;
pub use item::{Item, Key, Priority};
pub(crate) use state::Cause;
pub use work_queue::{Builder, Left, WorkQueue};
