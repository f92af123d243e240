//! The one lock the queue's hand-offs are built on.
//!
//! Every file beside this one takes its lock from here, so that the model checks can compile the
//! same files against a lock whose scheduling they control.

pub(super) use parking_lot::Mutex;
