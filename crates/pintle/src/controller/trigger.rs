//! From events to keys: whose reconcile does a change wake?

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::Resource;

use super::Predicate;
use crate::{
    cache::{Kind, Object, ObjectKey, OwnerRef},
    informer::{Backlog, Event, Registration, SharedInformer},
    queue::{Priority, WorkQueue},
    source::Home,
};

/// Adds the keys that `keys_of` names for each change of a `K`.
///
/// `keys_of` is asked about both sides of an update, because whoever lost the object has to hear of
/// it too; of an object that is gone it may get nothing but the key. What the first list and a
/// resync bring comes in at low priority, so that a real change never queues behind the whole world.
pub(super) fn wake<K: Kind>(
    informer: &SharedInformer<K>,
    queue: &WorkQueue<ObjectKey>,
    predicate: Option<Predicate<K>>,
    keys_of: impl Fn(&ObjectKey, Option<&Object<K>>, &mut Vec<ObjectKey>) + Send + 'static,
) -> Registration {
    let queue = queue.clone();
    // User code that panics must not lose a key: better one reconcile too many.
    let admits = move |old: Option<&Object<K>>, new: &Object<K>| {
        let Some(predicate) = &predicate else {
            return true;
        };
        catch_unwind(AssertUnwindSafe(|| predicate.admits(old, new))).unwrap_or_else(|_| {
            tracing::error!(key = %new.key(), "a predicate panicked; the change is let through");
            true
        })
    };
    let name = queue.name().to_owned();
    // The queue forgets repeats itself, and a reconcile reads the cache, which is ahead of us: an
    // event left out could be the one that says so.
    let handler = informer.handler().name(name).backlog(Backlog::Lossless);
    handler.on_event(move |event| {
        let mut keys = Vec::new();
        let mut ask = |key: &ObjectKey, object: Option<&Object<K>>| {
            if catch_unwind(AssertUnwindSafe(|| keys_of(key, object, &mut keys))).is_err() {
                tracing::error!(%key, "a mapping panicked; whoever it would have woken is not");
            }
        };
        let mut priority = Priority::default();
        match &event {
            Event::Added { object, initial } => {
                if admits(None, object) {
                    ask(object.key(), Some(object));
                }
                if *initial {
                    priority = Priority::LOW;
                }
            }
            Event::Updated { old, new } => {
                if admits(Some(old), new) {
                    ask(old.key(), Some(old));
                    ask(new.key(), Some(new));
                }
                if event.is_resync() {
                    priority = Priority::LOW;
                }
            }
            Event::Deleted(deleted) => ask(&deleted.key, deleted.last.as_ref()),
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            queue.add_with_priority(key, priority);
        }
    })
}

/// How an owner of the primary kind `P` is recognised in an owner reference: by group and kind, in
/// any version.
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
            cluster_scoped: Home::of::<P>() == Home::Cluster,
        }
    }

    /// The key of the primary object that `owner` of an object in `namespace` names, if it names
    /// one.
    pub(super) fn key(&self, owner: &OwnerRef, namespace: Option<&str>) -> Option<ObjectKey> {
        if owner.group() != self.group || owner.kind() != self.kind {
            return None;
        }
        let namespace = namespace.filter(|_| !self.cluster_scoped);
        Some(ObjectKey::new(namespace, owner.name()))
    }
}
