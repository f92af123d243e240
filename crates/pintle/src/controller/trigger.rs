//! From events to keys: which keys a change enqueues.
//!
//! A handler per watched kind turns each event into keys of the controller's own kind. Both sides
//! of an update are mapped, because the previous owner of an object has to notice the loss too.
//! Objects of the first list and of a resync enter at low priority, so that a real change never
//! queues behind them. Deletions bypass predicates.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
};

use super::{
    Predicate,
    cause::{Change, Source},
    own_writes::GroupKind,
};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey, OwnerRef},
    informer::{Event, Registration, SharedInformer},
    inspect::{Record, Via},
    queue::{Priority, WorkQueue},
    source::KindScope,
};

/// How the keys of a trigger are recorded.
pub(super) struct Recorded {
    pub(super) record: Record,
    /// The kind of the objects that change.
    pub(super) kind: Arc<str>,
    pub(super) via: Via,
}

impl Recorded {
    pub(super) fn new(record: Option<&Record>, kind: &str, via: Via) -> Option<Self> {
        Some(Self {
            record: record?.clone(),
            kind: kind.into(),
            via,
        })
    }
}

/// Enqueues the keys that `keys_of` adds for each change to a `K`.
pub(super) fn enqueue<K: Kind>(
    informer: &SharedInformer<K>,
    queue: &WorkQueue<ObjectKey>,
    source: Source,
    predicate: Option<Predicate<K>>,
    wakes: Option<Recorded>,
    keys_of: impl Fn(&Object<K>, &mut Vec<ObjectKey>) + Send + 'static,
) -> Registration {
    let queue = queue.clone();
    let admits =
        move |old: Option<&Object<K>>, new: &Object<K>| admits(predicate.as_ref(), old, new);
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
        let mut change = Change::Updated;
        match &event {
            Event::Added { object, initial } => {
                if admits(None, object) {
                    map(object);
                }
                if *initial {
                    priority = Priority::LOW;
                }
                change = Change::Added;
            }
            Event::Updated { old, new } => {
                // With finalizers, a deletion starts as an update, and their owners must not miss
                // it.
                let starts_deletion = new.is_being_deleted() && !old.is_being_deleted();
                if starts_deletion || admits(Some(old), new) {
                    map(old);
                    map(new);
                }
                if event.is_resync() {
                    priority = Priority::LOW;
                    change = Change::Resync;
                }
            }
            Event::Deleted(deleted) => {
                map(&deleted.last);
                change = Change::Deleted;
            }
        }
        let cause = source.cause(change);
        keys.sort_unstable();
        keys.dedup();
        // Record the keys before a worker can dequeue them, so that the record is in order.
        if let Some(Recorded { record, kind, via }) = &wakes {
            record.woken(&keys, kind, *via, &event);
        }
        for key in keys {
            queue.add_because(key, priority, cause);
        }
    })
}

/// Returns whether a predicate, if there is one, admits a change.
///
/// A panic in user code must not lose a key: one reconcile too many is better.
pub(super) fn admits<K: Kind>(
    predicate: Option<&Predicate<K>>,
    old: Option<&Object<K>>,
    new: &Object<K>,
) -> bool {
    let Some(predicate) = predicate else {
        return true;
    };
    catch_unwind(AssertUnwindSafe(|| predicate.admits(old, new))).unwrap_or_else(|_| {
        tracing::error!(key = %new.key(), "predicate panicked; letting the change through");
        true
    })
}

/// Returns the name of the index by the field at `path`. Controllers that share an informer share
/// it.
pub(super) fn reference_index(path: &str) -> String {
    format!("pintle.field:{path}")
}

/// Returns the keys of the objects that name `object` in the field of `index`. An object in another
/// namespace refers to another object of that name, unless `object` is cluster-scoped.
pub(super) fn referrers<K: Kind>(
    object: &ObjectKey,
    index: &str,
    own: Option<Lister<K>>,
) -> Vec<ObjectKey> {
    let keys = own.and_then(|own| own.index_keys(index, object.name()).ok());
    let mut keys = keys.unwrap_or_default();
    if object.namespace().is_some() {
        keys.retain(|key| key.namespace() == object.namespace());
    }
    keys
}

/// Recognizes owners of the controller's kind in owner references, by group and kind in any
/// version.
pub(super) struct Owners {
    kind: GroupKind,
    /// Whether the kind is cluster-scoped. Unset for a kind known only at run time, until an owner
    /// has been seen.
    cluster_scoped: OnceLock<bool>,
}

impl Owners {
    pub(super) fn of<P: Kind>(kind: &P::DynamicType) -> Self {
        let cluster_scoped = match KindScope::of::<P>() {
            KindScope::Cluster => OnceLock::from(true),
            KindScope::Namespaced => OnceLock::from(false),
            KindScope::Dynamic => OnceLock::new(),
        };
        Self {
            kind: GroupKind::of::<P>(kind),
            cluster_scoped,
        }
    }

    /// Returns the key of the owner that `owner` names, if it is of the controller's kind.
    /// `namespace` is the owned object's namespace; `exists` returns whether the controller's own
    /// cache has a key.
    pub(super) fn key(
        &self,
        owner: &OwnerRef,
        namespace: Option<&str>,
        exists: impl Fn(&ObjectKey) -> bool,
    ) -> Option<ObjectKey> {
        if !self.kind.matches(owner.group(), owner.kind()) {
            return None;
        }
        let at = |namespace| ObjectKey::new(namespace, owner.name());
        let Some(namespace) = namespace else {
            return Some(at(None)); // Its owners are cluster-scoped, as it is.
        };
        if self.cluster_scoped.get().is_none() {
            let found = |namespace| exists(&at(namespace));
            match (found(None), found(Some(namespace))) {
                (true, false) => drop(self.cluster_scoped.set(true)),
                (false, true) => drop(self.cluster_scoped.set(false)),
                _ => {} // The owner is gone, or not in the cache yet.
            }
        }
        let cluster_scoped = self.cluster_scoped.get().copied().unwrap_or_default();
        Some(at(Some(namespace).filter(|_| !cluster_scoped)))
    }
}
