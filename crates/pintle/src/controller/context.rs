//! What a reconcile gets besides its key.

use std::{any::TypeId, collections::BTreeMap, fmt, sync::Arc};

use kube::{
    Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::Request,
};
use parking_lot::Mutex;
use serde::Serialize;

use super::{Listers, own_writes::OwnWrites};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey},
    source::Extent,
};

/// What a reconcile works with: the caches to read from, and writes that the next reconcile of the
/// same key is sure to see.
///
/// Reads come from [`lister`](Self::lister). Writes made through the methods here are remembered
/// for the key: its next reconcile starts only when the controller's caches of the written kinds
/// have caught up. Writes made through [`client`](Self::client) are not covered, and neither are
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
    /// None if nobody waits for them.
    pub(super) own_writes: Option<Mutex<OwnWrites>>,
    /// What the caches show of the kinds that the controller watches.
    pub(super) shown: BTreeMap<TypeId, Extent>,
}

impl Shared {
    /// Notes what becomes of objects of a kind, if anybody waits for that.
    fn note(&self, kind: TypeId, note: impl FnOnce(&mut OwnWrites)) {
        if let Some(own_writes) = &self.own_writes
            && self.shown.contains_key(&kind)
        {
            note(&mut own_writes.lock());
        }
    }

    /// Notes that `key` wrote an object in `namespace`, if a cache is sure to show that.
    fn wrote(&self, key: &ObjectKey, kind: TypeId, namespace: Option<&str>, version: &str) {
        let extent = self.shown.get(&kind);
        if extent.is_some_and(|extent| extent.includes(namespace)) {
            self.note(kind, |own| own.wrote(key, kind, version));
        }
    }
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
    /// first list has come.
    pub fn lister<K: Kind<DynamicType: Default>>(&self) -> Result<Lister<K>, NotWatched> {
        let lister = self.shared.listers.get(&TypeId::of::<K>());
        let lister = lister.and_then(|lister| lister.downcast_ref::<Lister<K>>());
        lister.cloned().ok_or_else(|| NotWatched {
            controller: self.shared.name.clone(),
            kind: K::kind(&K::DynamicType::default()).into_owned(),
        })
    }

    /// Creates `object` in the namespace its metadata name.
    ///
    /// Not cancel safe: a create that was sent may have happened.
    pub async fn create<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        let params = self.post_params();
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = requests::<K>(object.meta().namespace.as_deref()).create(&params, body);
        self.store(request).await
    }

    /// Replaces `object`, if its resource version is still the current one.
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn replace<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        let params = self.post_params();
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let name = object.meta().name.as_deref().unwrap_or_default();
        self.store(requests::<K>(object.meta().namespace.as_deref()).replace(name, &params, body))
            .await
    }

    /// Replaces the status of `object`, if its resource version is still the current one.
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn replace_status<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        let params = self.post_params();
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let name = object.meta().name.as_deref().unwrap_or_default();
        let requests = requests::<K>(object.meta().namespace.as_deref());
        self.store(requests.replace_subresource("status", name, &params, body))
            .await
    }

    /// Patches the object called `key`. An [apply](Patch::Apply) takes over fields of others.
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn patch<K: Writable, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let params = self.patch_params(patch);
        self.store(requests::<K>(key.namespace()).patch(key.name(), &params, patch))
            .await
    }

    /// Patches the status of the object called `key`.
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn patch_status<K: Writable, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let params = self.patch_params(patch);
        let request = requests::<K>(key.namespace());
        self.store(request.patch_subresource("status", key.name(), &params, patch))
            .await
    }

    /// Deletes exactly `object`. An object that is gone already is deleted; another one under its
    /// name is left alone, which the server answers with a conflict.
    ///
    /// Not cancel safe: a deletion that was sent may have happened.
    pub async fn delete<K>(&self, object: &Object<K>) -> Result<(), kube::Error>
    where
        K: Kind<DynamicType: Default>,
    {
        let kind = TypeId::of::<K>();
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(object.uid().to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = requests::<K>(object.key().namespace())
            .delete(object.key().name(), &params)
            .map_err(kube::Error::BuildRequest)?;
        let (shared, uid) = (&self.shared, object.uid());
        shared.note(kind, |own| own.deleting(&self.key, kind, object.key(), uid));
        match shared.client.request_status::<Marked>(request).await {
            Ok(answer) => {
                // Only marked: it goes when its finalizers are gone, which may be never.
                if let Some(marked) = answer.left() {
                    let version = marked.metadata.resource_version.unwrap_or_default();
                    shared.note(kind, |own| own.not_deleted(&self.key, kind, uid));
                    shared.wrote(&self.key, kind, object.key().namespace(), &version);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => {
                // Without an answer it may have happened; then the wait for it is bounded anyway.
                if matches!(error, kube::Error::Api(_)) {
                    shared.note(kind, |own| own.not_deleted(&self.key, kind, uid));
                }
                Err(error)
            }
        }
    }

    async fn store<K: Writable>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let stored: K = self.shared.client.request(request).await?;
        if let Some(version) = &stored.meta().resource_version {
            let (kind, namespace) = (TypeId::of::<K>(), stored.meta().namespace.as_deref());
            self.shared.wrote(&self.key, kind, namespace, version);
        }
        Ok(stored)
    }

    fn post_params(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.shared.name.clone()),
            ..PostParams::default()
        }
    }

    fn patch_params<P: Serialize>(&self, patch: &Patch<P>) -> PatchParams {
        PatchParams {
            field_manager: Some(self.shared.name.clone()),
            force: matches!(patch, Patch::Apply(_)),
            ..PatchParams::default()
        }
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

/// The little we read of an object that a deletion only marked.
#[derive(Clone, Debug, serde::Deserialize)]
struct Marked {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
}

fn requests<K: Resource<DynamicType: Default>>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&K::DynamicType::default(), namespace))
}
