//! What a reconcile gets besides its key.

use std::{any::TypeId, fmt, sync::Arc};

use kube::{Client, api::Patch};
use serde::Serialize;

use super::{Listers, own_writes::OwnWrites, writes::Writes};
use crate::cache::{Kind, Lister, Object, ObjectKey};

/// What a reconcile works with: the caches to read from, and writes that the next reconcile of the
/// same key is sure to see.
///
/// Reads come from [`lister`](Self::lister). Writes made through the methods here are recorded for
/// the key: its next reconcile starts only when the controller's caches of the written kinds have
/// caught up. A kind is recognised by group and kind, so writing a `Pod` also waits for a cache of
/// `PartialObjectMeta<Pod>` or of a struct with a few of its fields. Writes made through [`client`](Self::client) are not covered, and neither are
/// kinds the controller does not watch. Where the informers see only a part of the objects, what
/// they may never show is not waited for: an object outside their one namespace, and with a label
/// or field selector any object that was written. A deletion is, for it can be told from the cache
/// that had the object.
#[derive(Clone)]
pub struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) key: ObjectKey,
    pub(super) id: u64,
}

/// What all reconciles of one controller share.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) client: Client,
    /// Of the kinds the controller watches.
    pub(super) listers: Listers,
    /// None if the controller does not wait for them.
    pub(super) own_writes: Option<OwnWrites>,
}

/// A reconcile asked for the cache of a kind that its controller does not watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("controller {controller} does not watch {kind}, so it has no cache of it")]
#[non_exhaustive]
pub struct NotWatched {
    /// The controller.
    pub controller: String,
    /// The kind.
    pub kind: String,
}

impl Context {
    /// The key that is reconciled.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The number of this reconcile, as it stands in its tracing span.
    pub fn reconcile_id(&self) -> u64 {
        self.id
    }

    /// The plain client. What is written through it is not remembered.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The cache of a kind that the controller watches: its own, or one that it
    /// [owns](super::Controller::owns) or [watches](super::Controller::watches).
    ///
    /// Any other is refused. A change of it would wake nobody, and its cache would be empty until its
    /// first list has come. No retry mends that: where a `?` that is retried with back-off, and
    /// logged each time, is not wanted, say `map_err(ReconcileError::terminal)`.
    pub fn lister<K: Kind<DynamicType: Default>>(&self) -> Result<Lister<K>, NotWatched> {
        let lister = self.shared.listers.get(&TypeId::of::<K>());
        let lister = lister.and_then(|lister| lister.downcast_ref::<Lister<K>>());
        lister.cloned().ok_or_else(|| NotWatched {
            controller: self.shared.name.clone(),
            kind: K::kind(&K::DynamicType::default()).into_owned(),
        })
    }

    /// Writes objects of a kind that is known only at run time.
    pub fn of<'a, K: Kind>(&'a self, kind: &'a K::DynamicType) -> Writes<'a, K> {
        Writes::new(self, kind)
    }

    /// Creates `object` in the namespace its metadata name.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a create that was sent may have happened.
    pub async fn create<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        self.of(&K::DynamicType::default()).create(object).await
    }

    /// Replaces `object`, if its `resourceVersion` is still the current one.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn replace<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        self.of(&K::DynamicType::default()).replace(object).await
    }

    /// Replaces the status of `object`, if its `resourceVersion` is still the current one.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn replace_status<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        let kind = K::DynamicType::default();
        self.of(&kind).replace_status(object).await
    }

    /// Patches the object called `key`. An [apply](Patch::Apply) takes over fields of others.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn patch<K: Writable, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let kind = K::DynamicType::default();
        self.of::<K>(&kind).patch(key, patch).await
    }

    /// Patches the status of the object called `key`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn patch_status<K: Writable, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let kind = K::DynamicType::default();
        self.of::<K>(&kind).patch_status(key, patch).await
    }

    /// Deletes exactly `object`. An object that is gone already is deleted; another one under its
    /// name is left alone, which the server answers with a conflict.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a deletion that was sent may have happened.
    pub async fn delete<K>(&self, object: &Object<K>) -> Result<(), kube::Error>
    where
        K: Kind<DynamicType: Default>,
    {
        self.of(&K::DynamicType::default()).delete(object).await
    }

    /// Where writes are recorded, if the controller waits for them.
    pub(super) fn own_writes(&self) -> Option<&OwnWrites> {
        self.shared.own_writes.as_ref()
    }

    /// The name under which the controller owns the fields it writes.
    pub(super) fn field_manager(&self) -> String {
        self.shared.name.clone()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("key", &self.key)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A kind that can be written back in full. A struct that holds a part of a kind's fields is for
/// reading only, and must not be [`Serialize`].
pub trait Writable: Kind<DynamicType: Default> + Serialize {}

impl<K: Kind<DynamicType: Default> + Serialize> Writable for K {}
