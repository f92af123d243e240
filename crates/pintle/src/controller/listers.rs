//! The caches of one controller, by kind.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
};

use super::{
    Watchable,
    own_writes::{GroupKind, View, Watched},
};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey, OwnerRef},
    informer::SharedInformer,
};

/// The index of owned objects by the UID of their controller.
const BY_CONTROLLER: &str = "pintle.controller-uid";

/// The caches of the kinds a controller watches.
///
/// Mapping functions receive it; a reconcile reads the same caches through
/// [`Context::lister`](super::Context::lister).
pub struct Listers {
    controller: String,
    caches: BTreeMap<TypeId, Cache>,
}

struct Cache {
    name: String,
    /// The `SharedInformer<K>`.
    informer: Box<dyn Any + Send + Sync>,
    /// The `Lister<K>`.
    lister: Box<dyn Any + Send + Sync>,
}

/// The controller has no cache of a kind, because it does not watch it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "controller {controller} has no cache of {kind}: add .owns::<{kind}>() or .watches::<{kind}>(…)"
)]
#[non_exhaustive]
pub struct NotWatched {
    /// The controller.
    pub controller: String,
    /// The kind.
    pub kind: String,
}

impl Listers {
    pub(super) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            caches: BTreeMap::new(),
        }
    }

    /// Adds the cache of a kind, unless it is there. Returns it for read-your-own-writes if it is
    /// new.
    pub(super) fn add<K: Watchable>(&mut self, informer: &SharedInformer<K>) -> Option<Watched> {
        let id = TypeId::of::<K>();
        if self.caches.contains_key(&id) {
            return None;
        }
        let lister = informer.lister();
        let cache = Cache {
            name: kind_name::<K>(),
            informer: Box::new(informer.clone()),
            lister: Box::new(lister.clone()),
        };
        self.caches.insert(id, cache);
        Some(Watched {
            kind: GroupKind::of::<K>(&K::DynamicType::default()),
            extent: informer.extent().clone(),
            view: Box::new(lister),
        })
    }

    /// Returns the lister of a watched kind.
    ///
    /// # Errors
    ///
    /// [`NotWatched`] if the controller does not watch `K`: a change to such an object would wake no
    /// key, and its cache might still be empty.
    pub fn get<K: Watchable>(&self) -> Result<Lister<K>, NotWatched> {
        let cache = self.caches.get(&TypeId::of::<K>());
        let lister = cache.and_then(|cache| cache.lister.downcast_ref::<Lister<K>>());
        lister.cloned().ok_or_else(|| NotWatched {
            controller: self.controller.clone(),
            kind: kind_name::<K>(),
        })
    }

    /// Returns the objects whose controller has this UID, all in the owner's `namespace` unless the
    /// owner is cluster-scoped.
    ///
    /// The first call for a kind adds an index to its cache.
    pub(super) fn controlled_by<K: Watchable>(
        &self,
        namespace: Option<&str>,
        uid: &str,
    ) -> Result<Vec<Object<K>>, NotWatched> {
        let lister = self.get::<K>()?;
        if let Ok(found) = lister.by_index(BY_CONTROLLER, uid) {
            return Ok(found);
        }
        let cache = self.caches.get(&TypeId::of::<K>());
        let informer = cache.and_then(|cache| cache.informer.downcast_ref::<SharedInformer<K>>());
        if let Some(informer) = informer {
            // Another controller may be adding the same index; then it is not ready yet.
            let _ = informer.index_header(BY_CONTROLLER, |object: &Object<K>| {
                let owner = object.controller_owner();
                owner
                    .map(|owner| owner.uid().to_owned())
                    .into_iter()
                    .collect()
            });
        }
        if let Ok(found) = lister.by_index(BY_CONTROLLER, uid) {
            return Ok(found);
        }
        let mut all = match namespace {
            Some(namespace) => lister.namespace(namespace).list(),
            None => lister.list(),
        };
        all.retain(|object| object.controller_owner().map(OwnerRef::uid) == Some(uid));
        Ok(all)
    }
}

pub(super) fn kind_name<K: Watchable>() -> String {
    K::kind(&K::DynamicType::default()).into_owned()
}

impl<K: Kind> View for Lister<K> {
    fn version(&self) -> String {
        self.resource_version()
    }

    fn holds(&self, key: &ObjectKey, uid: &str) -> bool {
        self.get(key).is_some_and(|object| object.uid() == uid)
    }

    fn changed(&self) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(Lister::changed(self))
    }
}

impl fmt::Debug for Listers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.caches.values().map(|cache| &cache.name);
        f.debug_list().entries(kinds).finish()
    }
}
