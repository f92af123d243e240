//! The caches of a controller with their types erased, for sets of children of different kinds.

use std::sync::Arc;

use kube::core::ApiResource;

use crate::{
    cache::{Kind, Lister, Object, ObjectKey, OwnerRef},
    informer::SharedInformer,
    object::Header,
    source::KindScope,
};

/// The index of owned objects by the UID of their controller.
const BY_CONTROLLER: &str = "pintle.controller-uid";

/// A kind the controller watches, and its cache.
pub(super) struct WatchedKind {
    pub(super) resource: ApiResource,
    pub(super) scope: KindScope,
    /// Whether the cache's input sets nothing but the kind and the cluster.
    pub(super) is_plain: bool,
    /// Whether the cache holds only metadata.
    pub(super) is_metadata: bool,
    cache: Box<dyn Children>,
}

impl WatchedKind {
    pub(super) fn of<K: Kind>(
        kind: &K::DynamicType,
        informer: &SharedInformer<K>,
        is_plain: bool,
    ) -> Self {
        Self {
            resource: ApiResource::erase::<K>(kind),
            scope: KindScope::of::<K>(),
            is_plain,
            is_metadata: K::metadata_api(),
            cache: Box::new(Cached {
                informer: informer.clone(),
                lister: informer.lister(),
            }),
        }
    }

    /// Returns whether this is the same kind, in any version.
    pub(super) fn is(&self, kind: &ApiResource) -> bool {
        self.resource.group == kind.group && self.resource.kind == kind.kind
    }

    pub(super) fn contents(&self) -> &dyn Contents {
        self.cache.contents()
    }

    /// Returns the objects whose controller has this UID, all in the owner's `namespace` unless the
    /// owner is cluster-scoped.
    pub(super) fn controlled_by(&self, namespace: Option<&str>, uid: &str) -> Vec<Arc<dyn Header>> {
        self.cache.controlled_by(namespace, uid)
    }
}

/// The objects of a cache, whatever their type.
pub(super) trait Contents: Send + Sync {
    fn len(&self) -> usize;
    fn get(&self, key: &ObjectKey) -> Option<Arc<dyn Header>>;
}

impl<K: Kind> Contents for Lister<K> {
    fn len(&self) -> usize {
        Lister::len(self)
    }

    fn get(&self, key: &ObjectKey) -> Option<Arc<dyn Header>> {
        Some(Arc::new(Lister::get(self, key)?))
    }
}

trait Children: Send + Sync {
    fn contents(&self) -> &dyn Contents;
    fn controlled_by(&self, namespace: Option<&str>, uid: &str) -> Vec<Arc<dyn Header>>;
}

struct Cached<K: Kind> {
    informer: SharedInformer<K>,
    lister: Lister<K>,
}

impl<K: Kind> Children for Cached<K> {
    fn contents(&self) -> &dyn Contents {
        &self.lister
    }

    fn controlled_by(&self, namespace: Option<&str>, uid: &str) -> Vec<Arc<dyn Header>> {
        let found = controlled_by(&self.informer, &self.lister, namespace, uid);
        let erased = |object| -> Arc<dyn Header> { Arc::new(object) };
        found.into_iter().map(erased).collect()
    }
}

/// Returns the objects whose controller has this UID, all in the owner's `namespace` unless the
/// owner is cluster-scoped.
///
/// The first call for a cache adds an index to it.
pub(super) fn controlled_by<K: Kind>(
    informer: &SharedInformer<K>,
    lister: &Lister<K>,
    namespace: Option<&str>,
    uid: &str,
) -> Vec<Object<K>> {
    if let Ok(found) = lister.by_index(BY_CONTROLLER, uid) {
        return found;
    }
    // Another controller may be adding the same index; then it is not ready yet.
    let _ = informer.index_header(BY_CONTROLLER, |object: &Object<K>| {
        let owner = object.controller_owner();
        owner
            .map(|owner| owner.uid().to_owned())
            .into_iter()
            .collect()
    });
    if let Ok(found) = lister.by_index(BY_CONTROLLER, uid) {
        return found;
    }
    let mut all = match namespace {
        Some(namespace) => lister.namespace(namespace).list(),
        None => lister.list(),
    };
    all.retain(|object| object.controller_owner().map(OwnerRef::uid) == Some(uid));
    all
}
