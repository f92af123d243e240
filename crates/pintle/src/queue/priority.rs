//! What may be queued, and how important it is.

use std::hash::Hash;

/// What a queue can hold: cheap to clone, hashable, movable between tasks.
///
/// Its `Eq` and `Clone` run while the queue is locked, so they should not block.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> Key for T {}

/// How important a key is: higher runs first, and lower ones get their share.
///
/// ```
/// use pintle::queue::Priority;
///
/// assert!(Priority::LOW < Priority::NORMAL);
/// assert_eq!(Priority::default(), Priority::new(0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i32);

impl Priority {
    /// For what no change asks for: the initial list and resyncs. Real changes overtake it.
    pub const LOW: Self = Self(-100);

    /// For changes. What [`WorkQueue::add`](super::WorkQueue::add) uses.
    pub const NORMAL: Self = Self(0);

    /// Any other priority.
    pub const fn new(priority: i32) -> Self {
        Self(priority)
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0
    }
}
