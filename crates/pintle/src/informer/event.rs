//! What a handler is told.

use crate::object::{Object, ObjectKey};

/// A change that the cache already shows.
///
/// ```
/// use pintle::informer::Event;
///
/// fn describe<K>(event: &Event<K>) -> String {
///     match event {
///         Event::Added { object, initial: true } => format!("{} is there", object.key()),
///         Event::Added { object, .. } => format!("{} is new", object.key()),
///         Event::Updated { new, .. } => format!("{} changed", new.key()),
///         Event::Deleted(deleted) => format!("{} is gone", deleted.key),
///     }
/// }
/// ```
#[derive(Debug)]
pub enum Event<K> {
    /// An object is in the cache that was not there before.
    Added {
        /// The object.
        object: Object<K>,
        /// Whether it was there before the handler was: part of the first list, or replayed to a
        /// handler that came later.
        initial: bool,
    },
    /// An object changed, or is told once more: then both versions are equal.
    Updated {
        /// What was last told.
        old: Object<K>,
        /// What the cache shows.
        new: Object<K>,
    },
    /// An object is no longer in the cache.
    Deleted(Deleted<K>),
}

/// A deletion. It always says which object, and never hides how much is known.
#[derive(Debug)]
pub struct Deleted<K> {
    /// The object's key.
    pub key: ObjectKey,
    /// The last state known of it.
    pub last: Option<Object<K>>,
    /// Whether `last` is the state in which it was deleted. If not, the deletion was missed, for
    /// instance while the watch was broken, and `last` is what the cache had: client-go's
    /// `DeletedFinalStateUnknown`.
    pub exact: bool,
}

impl<K> Event<K> {
    /// The key of the object that the event is about.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted(deleted) => &deleted.key,
        }
    }

    /// The object as the event leaves it: of a deletion, the last state known.
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted(deleted) => deleted.last.as_ref(),
        }
    }

    /// Whether the event says nothing new: a resync, or an unchanged object of a relist.
    pub fn is_resync(&self) -> bool {
        match self {
            Self::Updated { old, new } => {
                old.same(new)
                    || (!new.resource_version().is_empty()
                        && old.resource_version() == new.resource_version())
            }
            _ => false,
        }
    }

    /// Whether the event belongs to what was there before the handler.
    pub(super) fn is_initial(&self) -> bool {
        matches!(self, Self::Added { initial: true, .. })
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added {
                object: object.clone(),
                initial: *initial,
            },
            Self::Updated { old, new } => Self::Updated {
                old: old.clone(),
                new: new.clone(),
            },
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
        }
    }
}

impl<K> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            last: self.last.clone(),
            exact: self.exact,
        }
    }
}
