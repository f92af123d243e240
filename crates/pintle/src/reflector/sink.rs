//! Where a reflector puts what it reads.

use std::future::Future;

use crate::object::{Object, ObjectKey};

/// An object that a list names and that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its key.
    pub key: ObjectKey,
    /// Its UID, if at least that could be read.
    pub uid: Option<String>,
}

impl Unread {
    /// Whether `held` may be an earlier state of it, and not of another object of that name.
    pub(crate) fn may_be<K>(&self, held: &Object<K>) -> bool {
        let uid = self.uid.as_deref().unwrap_or_default();
        uid.is_empty() || held.uid().is_empty() || uid == held.uid()
    }
}

/// Takes what a [`Reflector`](super::Reflector) reads, in the order in which the server told it.
///
/// All but [`ready`](Sink::ready) return at once. The delta FIFO is the sink of every informer.
pub trait Sink<K>: Send + Sync + 'static {
    /// These are all the objects there are, at this version. What is not among them is gone.
    fn replace(&self, items: Vec<Object<K>>, resource_version: &str);

    /// As [`replace`](Sink::replace), with objects that are there too but could not be read.
    ///
    /// Whoever holds an earlier state of one may keep it, if it is of the same UID. Unless
    /// implemented, they are not in the list.
    fn replace_with_unread(
        &self,
        items: Vec<Object<K>>,
        unread: Vec<Unread>,
        resource_version: &str,
    ) {
        drop(unread);
        self.replace(items, resource_version);
    }

    /// The object is new.
    fn add(&self, object: Object<K>);

    /// The object changed.
    fn update(&self, object: Object<K>);

    /// The object is gone; this is its last state.
    fn delete(&self, object: Object<K>);

    /// Nothing changed up to this version.
    fn bookmark(&self, resource_version: &str);

    /// It is time to tell everything once more. The server is not asked.
    fn resync(&self);

    /// Waits until there is room for another entry.
    ///
    /// The reflector asks before each entry and reads nothing from the server meanwhile, so that a
    /// slow consumer slows the stream down instead of filling the memory. Implementations must be
    /// cancel safe.
    fn ready(&self) -> impl Future<Output = ()> + Send;
}
