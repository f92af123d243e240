//! The receiving end of a reflector.

use std::future::Future;

use crate::object::{Object, ObjectKey};

/// An object in a list that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The object's key.
    pub key: ObjectKey,
    /// The object's UID, if at least that could be read.
    pub uid: Option<String>,
}

impl Unread {
    /// Returns whether `cached` may be an earlier state of this object, rather than another object
    /// of the same name.
    pub(crate) fn may_be<K>(&self, cached: &Object<K>) -> bool {
        let uid = self.uid.as_deref().unwrap_or_default();
        uid.is_empty() || cached.uid().is_empty() || uid == cached.uid()
    }
}

/// Receives what a [`Reflector`](super::Reflector) reads, in the server's order.
///
/// The delta FIFO implements it; tests record with other implementations. No method but
/// [`ready`](Sink::ready) may block.
pub trait Sink<K>: Send + Sync + 'static {
    /// Replaces all objects with those of a list at this `resourceVersion`.
    fn replace(&self, items: Vec<Object<K>>, resource_version: &str);

    /// As [`replace`](Sink::replace), with objects that exist but could not be read.
    ///
    /// The sink may retain an earlier state of such an object if the UIDs match. The default
    /// implementation treats them as deleted.
    fn replace_with_unread(
        &self,
        items: Vec<Object<K>>,
        unread: Vec<Unread>,
        resource_version: &str,
    ) {
        drop(unread);
        self.replace(items, resource_version);
    }

    /// Adds a new object.
    fn add(&self, object: Object<K>);

    /// Updates an object.
    fn update(&self, object: Object<K>);

    /// Deletes an object; this is its last state.
    fn delete(&self, object: Object<K>);

    /// Records that the watch has reached this `resourceVersion`.
    fn bookmark(&self, resource_version: &str);

    /// Requests a resync: every cached object is delivered again, without asking the server.
    fn resync(&self);

    /// Waits until there is room for another entry.
    ///
    /// The reflector waits before each entry and reads nothing from the server meanwhile, so that a
    /// slow consumer slows the stream down instead of filling memory.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe.
    fn ready(&self) -> impl Future<Output = ()> + Send;
}
