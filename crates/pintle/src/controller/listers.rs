//! The caches of one controller, by kind.

use std::{
    any::{Any, TypeId},
    fmt,
};

use futures::future::BoxFuture;
use kube::core::ApiResource;

use super::{
    Watchable,
    children::{self, WatchedKind},
    own_writes::{GroupKind, View, Watched},
};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey},
    informer::{Cluster, Identity, InformerFactory, SharedInformer, WatchInput},
};

/// The caches of the kinds a controller watches.
///
/// Mapping functions receive it; a reconcile reads the same caches through
/// [`Context::lister`](super::Context::lister).
///
/// A cache is found by its type ([`get`](Self::get)), by a kind known only at run time
/// ([`of`](Self::of)), or by the input it was made from ([`from_input`](Self::from_input)). A
/// controller may have several caches of one type, with different selectors or transforms. A lookup
/// by type or kind returns the cache of the plain input, or else the first one; a lookup by input
/// is exact. Caches of other clusters can only be found by input.
pub struct Listers {
    controller: String,
    informers: InformerFactory,
    /// The cluster of the controller's own kind, if it is not the factory's.
    cluster: Option<Cluster>,
    caches: Vec<Cache>,
    /// The caches of the controller's cluster with their types erased, in the same order.
    children: Vec<WatchedKind>,
}

struct Cache {
    identity: Identity,
    form: TypeId,
    kind: GroupKind,
    api_version: String,
    name: String,
    /// Whether it is in the controller's own cluster.
    is_local: bool,
    /// Whether its input sets nothing but the kind and the cluster.
    is_plain: bool,
    /// The `SharedInformer<K>`.
    informer: Box<dyn Any + Send + Sync>,
    /// The `Lister<K>`.
    lister: Box<dyn Any + Send + Sync>,
    /// Returns a description of the informer if it has synced and has no open watch.
    without_watch: Box<dyn Fn() -> Option<String> + Send + Sync>,
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
    /// Returns the listers of a controller of the kind in `own`.
    pub(super) fn new<K: Kind>(
        controller: &str,
        informers: &InformerFactory,
        own: &WatchInput<K>,
    ) -> Self {
        Self {
            controller: controller.to_owned(),
            informers: informers.clone(),
            cluster: own.in_cluster().cloned(),
            caches: Vec::new(),
            children: Vec::new(),
        }
    }

    /// Opens the cache of an input, unless it is already open. Returns its informer and, if the
    /// cache is new and in the controller's cluster, its view for read-your-own-writes.
    pub(super) fn add<K: Kind>(
        &mut self,
        input: &WatchInput<K>,
    ) -> (SharedInformer<K>, Option<Watched>) {
        let input = input.clone().or_cluster(self.cluster.as_ref());
        let informer = self.informers.informer_from(&input);
        let identity = self.informers.identity(&input);
        if self.caches.iter().any(|cache| cache.identity == identity) {
            return (informer, None);
        }
        let (lister, kind) = (informer.lister(), GroupKind::of::<K>(input.kind()));
        let name = |cluster: Option<&Cluster>| cluster.map(|cluster| cluster.name.clone());
        let is_local = name(input.in_cluster()) == name(self.cluster.as_ref());
        let watched = Watched {
            kind: kind.clone(),
            view: Box::new(CacheView {
                informer: informer.clone(),
                lister: lister.clone(),
            }),
        };
        if is_local {
            let watched = WatchedKind::of::<K>(input.kind(), &informer, input.is_plain());
            self.children.push(watched);
        }
        self.caches.push(Cache {
            identity,
            form: TypeId::of::<K>(),
            kind,
            api_version: K::api_version(input.kind()).into_owned(),
            name: input.kind_name(),
            is_local,
            is_plain: input.is_plain(),
            informer: Box::new(informer.clone()),
            lister: Box::new(lister),
            without_watch: {
                let informer = informer.clone();
                Box::new(move || informer.is_stale().then(|| informer.describe()))
            },
        });
        (informer, is_local.then_some(watched))
    }

    /// Returns the lister of a watched kind.
    ///
    /// # Errors
    ///
    /// Fails with [`NotWatched`] if the controller does not watch `K`: a change to such an object
    /// would not enqueue anything, and its cache might still be empty.
    pub fn get<K: Watchable>(&self) -> Result<Lister<K>, NotWatched> {
        self.of(&K::DynamicType::default())
    }

    /// Returns the lister of a watched kind that is described by a value. Its group and kind
    /// decide; if caches of several versions are open, its version too.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn of<K: Kind>(&self, kind: &K::DynamicType) -> Result<Lister<K>, NotWatched> {
        let lister = self.find::<K>(kind).and_then(Cache::lister);
        lister.ok_or_else(|| self.not_watched(K::kind(kind).into_owned()))
    }

    /// Returns the lister of an input that the controller watches.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn from_input<K: Kind>(&self, input: &WatchInput<K>) -> Result<Lister<K>, NotWatched> {
        let input = input.clone().or_cluster(self.cluster.as_ref());
        let identity = self.informers.identity(&input);
        let mut caches = self.caches.iter();
        let cache = caches.find(|cache| cache.identity == identity);
        let lister = cache.and_then(Cache::lister);
        lister.ok_or_else(|| self.not_watched(input.kind_name()))
    }

    /// Returns the first lister of objects of the type `K`, whatever their kind.
    pub(super) fn of_type<K: Kind>(&self) -> Result<Lister<K>, NotWatched> {
        let mut caches = self.caches.iter().filter(|cache| cache.is_local);
        let lister = caches.find_map(Cache::lister);
        lister.ok_or_else(|| self.not_watched(type_name::<K>().to_owned()))
    }

    /// Returns the informers that have synced and have no open watch: their caches may be stale.
    pub(super) fn without_watch(&self) -> Vec<String> {
        let caches = self.caches.iter();
        caches.filter_map(|cache| (cache.without_watch)()).collect()
    }

    fn not_watched(&self, kind: String) -> NotWatched {
        NotWatched {
            controller: self.controller.clone(),
            kind,
        }
    }

    fn find<K: Kind>(&self, kind: &K::DynamicType) -> Option<&Cache> {
        let form = TypeId::of::<K>();
        let mut found = self
            .caches
            .iter()
            .filter(|cache| cache.form == form && cache.is_local && cache.kind.is::<K>(kind));
        let first = found.next()?;
        let rank = |cache: &&Cache| {
            let same_version = cache.api_version == K::api_version(kind);
            (!same_version, !cache.is_plain)
        };
        // With a single candidate, no ranking is needed.
        match found.next() {
            None => Some(first),
            Some(second) => [first, second].into_iter().chain(found).min_by_key(rank),
        }
    }

    /// Returns the objects whose controller has this UID, all in the owner's `namespace` unless the
    /// owner is cluster-scoped.
    pub(super) fn controlled_by<K: Kind>(
        &self,
        kind: &K::DynamicType,
        namespace: Option<&str>,
        uid: &str,
    ) -> Result<Vec<Object<K>>, NotWatched> {
        let lister = self.of::<K>(kind)?;
        let cache = self.find::<K>(kind);
        let informer = cache.and_then(|cache| cache.informer.downcast_ref::<SharedInformer<K>>());
        Ok(match informer {
            Some(informer) => children::controlled_by(informer, &lister, namespace, uid),
            None => Vec::new(),
        })
    }

    /// Returns the caches of the controller's cluster, in the order in which they were added. There
    /// may be several of a kind, of different inputs.
    pub(super) fn kinds(&self) -> &[WatchedKind] {
        &self.children
    }

    /// Returns a cache of a kind, preferably of a plain input and with whole objects.
    ///
    /// # Errors
    ///
    /// Fails with [`NotWatched`] if the controller does not watch it.
    pub(super) fn kind(&self, kind: &ApiResource) -> Result<&WatchedKind, NotWatched> {
        let kinds = self.children.iter().filter(|known| known.is(kind));
        kinds
            .min_by_key(|known| (!known.is_plain, known.is_metadata))
            .ok_or_else(|| self.not_watched(kind.kind.clone()))
    }
}

impl Cache {
    fn lister<K: Kind>(&self) -> Option<Lister<K>> {
        self.lister.downcast_ref::<Lister<K>>().cloned()
    }
}

/// Returns the name of a type without its path.
fn type_name<K>() -> &'static str {
    let name = std::any::type_name::<K>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(path)
}

/// A cache, as read-your-own-writes sees it.
struct CacheView<K: Kind> {
    informer: SharedInformer<K>,
    lister: Lister<K>,
}

impl<K: Kind> View for CacheView<K> {
    fn covers(&self, namespace: Option<&str>) -> bool {
        self.informer.covers(namespace)
    }

    fn advances_by_namespace(&self) -> bool {
        self.informer.advances_by_namespace()
    }

    fn version(&self, namespace: Option<&str>) -> Option<String> {
        self.informer.reached(namespace)
    }

    fn holds(&self, key: &ObjectKey, uid: &str) -> bool {
        self.lister
            .get(key)
            .is_some_and(|object| object.uid() == uid)
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        self.informer.advanced()
    }
}

impl fmt::Debug for Listers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.caches.iter().map(|cache| &cache.name);
        f.debug_list().entries(kinds).finish()
    }
}
