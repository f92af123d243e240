//! From events to keys: which keys a change enqueues.
//!
//! A handler per watched kind turns each event into keys of the controller's own kind. Both sides of
//! an update are mapped, because the former owner of an object has to notice the loss too. Objects
//! of the first list and of a resync enter at low priority, so that a real change never queues
//! behind them. Deletions bypass predicates.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::Resource;

use super::Predicate;
use crate::{
    cache::{Kind, Object, ObjectKey, OwnerRef},
    informer::{Event, Registration, SharedInformer},
    queue::{Priority, WorkQueue},
    source::KindScope,
};

/// Enqueues the keys that `keys_of` adds for each change to a `K`.
pub(super) fn enqueue<K: Kind>(
    informer: &SharedInformer<K>,
    queue: &WorkQueue<ObjectKey>,
    predicate: Option<Predicate<K>>,
    keys_of: impl Fn(&Object<K>, &mut Vec<ObjectKey>) + Send + 'static,
) -> Registration {
    let queue = queue.clone();
    // A panic in user code must not lose a key: one reconcile too many is better.
    let admits = move |old: Option<&Object<K>>, new: &Object<K>| {
        let Some(predicate) = &predicate else {
            return true;
        };
        catch_unwind(AssertUnwindSafe(|| predicate.admits(old, new))).unwrap_or_else(|_| {
            tracing::error!(key = %new.key(), "predicate panicked; letting the change through");
            true
        })
    };
    let name = queue.name().to_owned();
    let handler = informer.handler().name(name);
    handler.on_event(move |event| {
        let mut keys = Vec::new();
        let mut map = |object: &Object<K>| {
            if catch_unwind(AssertUnwindSafe(|| keys_of(object, &mut keys))).is_err() {
                tracing::error!(key = %object.key(), "key mapper panicked; its keys may not be enqueued");
            }
        };
        let mut priority = Priority::default();
        match &event {
            Event::Added { object, initial } => {
                if admits(None, object) {
                    map(object);
                }
                if *initial {
                    priority = Priority::LOW;
                }
            }
            Event::Updated { old, new } => {
                // The start of a deletion is an update if there are finalizers, and their owners
                // must not miss it.
                let starts_deletion = new.is_being_deleted() && !old.is_being_deleted();
                if starts_deletion || admits(Some(old), new) {
                    map(old);
                    map(new);
                }
                if event.is_resync() {
                    priority = Priority::LOW;
                }
            }
            Event::Deleted(deleted) => map(&deleted.last),
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            queue.add_with_priority(key, priority);
        }
    })
}

/// Recognizes owners of the controller's kind in owner references, by group and kind in any version.
pub(super) struct Owners {
    group: String,
    kind: String,
    cluster_scoped: bool,
}

impl Owners {
    pub(super) fn of<P: Resource<DynamicType: Default, Scope: 'static>>() -> Self {
        let kind = P::DynamicType::default();
        Self {
            group: P::group(&kind).into_owned(),
            kind: P::kind(&kind).into_owned(),
            cluster_scoped: KindScope::of::<P>() == KindScope::Cluster,
        }
    }

    /// Returns the key of the owner that `owner` names, if it is of the controller's kind.
    /// `namespace` is that of the owned object.
    pub(super) fn key(&self, owner: &OwnerRef, namespace: Option<&str>) -> Option<ObjectKey> {
        if owner.group() != self.group || owner.kind() != self.kind {
            return None;
        }
        let namespace = namespace.filter(|_| !self.cluster_scoped);
        Some(ObjectKey::new(namespace, owner.name()))
    }
}
