//! The lock and the timers that the queue's hand-offs are built on.
//!
//! Every file beside this one takes them from here, so that `tests/queue_interleavings.rs` can
//! compile the same files against a lock whose scheduling it controls.

pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use tokio::time::{Sleep, sleep, timeout};
