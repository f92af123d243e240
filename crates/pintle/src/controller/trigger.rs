//! From events to keys: whose reconcile does a change wake?

use std::any::TypeId;

use kube::{Resource, core::ClusterResourceScope};

use super::Predicate;
use crate::{
    cache::{Kind, Object, ObjectKey, OwnerRef},
    informer::{Event, Registration, SharedInformer},
    queue::{Priority, WorkQueue},
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
    let admits = move |old: Option<&Object<K>>, new: &Object<K>| {
        predicate
            .as_ref()
            .is_none_or(|predicate| predicate.admits(old, new))
    };
    informer.on_event(move |event| {
        let mut keys = Vec::new();
        let mut priority = Priority::default();
        match &event {
            Event::Added { object, initial } => {
                if admits(None, object) {
                    keys_of(object.key(), Some(object), &mut keys);
                }
                if *initial {
                    priority = Priority::LOW;
                }
            }
            Event::Updated { old, new } => {
                if admits(Some(old), new) {
                    keys_of(old.key(), Some(old), &mut keys);
                    keys_of(new.key(), Some(new), &mut keys);
                }
                if old.resource_version() == new.resource_version() {
                    priority = Priority::LOW;
                }
            }
            Event::Deleted(deleted) => keys_of(&deleted.key, deleted.last.as_ref(), &mut keys),
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
            cluster_scoped: TypeId::of::<P::Scope>() == TypeId::of::<ClusterResourceScope>(),
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
