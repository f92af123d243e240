//! The events that handlers receive.

use crate::object::{Object, ObjectKey};

/// A change that the cache already shows.
///
/// ```
/// use pintle::informer::Event;
///
/// fn describe<K>(event: &Event<K>) -> String {
///     match event {
///         Event::Added { object, initial: true } => format!("{} exists", object.key()),
///         Event::Added { object, .. } => format!("{} was created", object.key()),
///         Event::Updated { new, .. } => format!("{} changed", new.key()),
///         Event::Deleted(deleted) => format!("{} was deleted", deleted.key),
///     }
/// }
/// ```
#[derive(Debug)]
pub enum Event<K> {
    /// An object entered the cache or started to match the handler's filter.
    Added {
        /// The object.
        object: Object<K>,
        /// Whether the object existed before the handler: it was part of the first list, or was
        /// replayed to a handler that registered later. Objects of a namespace that was
        /// [added](super::Namespaces) are initial too.
        initial: bool,
    },
    /// An object changed, or a resync delivers it again; then both states are the same.
    Updated {
        /// The state delivered before.
        old: Object<K>,
        /// The state that replaced it in the cache.
        new: Object<K>,
    },
    /// An object left the cache or stopped matching the handler's filter.
    Deleted(Deleted<K>),
}

/// A deletion.
#[derive(Debug)]
pub struct Deleted<K> {
    /// The object's key.
    pub key: ObjectKey,
    /// The last known state of the object, or its last matching state if it stopped matching the
    /// handler's filter.
    pub last: Object<K>,
    /// Whether `last` is the final state before the deletion. If not, the deletion was missed, for
    /// example while the watch was broken, or the object's namespace is no longer
    /// [watched](super::Namespaces), and `last` is the last cached state. client-go calls this
    /// `DeletedFinalStateUnknown`.
    pub exact: bool,
}

impl<K> Event<K> {
    /// Returns the key of the object that the event is about.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted(deleted) => &deleted.key,
        }
    }

    /// Returns the object after the change; for a deletion, its last known state.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted(deleted) => &deleted.last,
        }
    }

    /// Returns whether the event carries no change: a resync, or an object that a relist found
    /// unchanged.
    pub fn is_resync(&self) -> bool {
        match self {
            Self::Updated { old, new } => {
                old.ptr_eq(new)
                    || (!new.resource_version().is_empty()
                        && old.resource_version() == new.resource_version())
            }
            _ => false,
        }
    }

    /// Returns whether the event is an initial addition.
    pub(super) fn is_initial(&self) -> bool {
        matches!(self, Self::Added { initial: true, .. })
    }
}

impl<K> Deleted<K> {
    /// A deletion whose final state is known.
    pub(super) fn exact(last: Object<K>) -> Self {
        Self {
            key: last.key().clone(),
            last,
            exact: true,
        }
    }

    /// A deletion that was missed; `last` is the last cached state.
    pub(super) fn missed(last: Object<K>) -> Self {
        Self {
            key: last.key().clone(),
            last,
            exact: false,
        }
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
