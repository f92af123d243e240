//! Writes of a reconcile, recorded so that its next run sees them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::Request,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    apply::{Apply, ApplyOwned},
    context::Inner,
    own_writes::GroupKind,
};
use crate::cache::{Kind, Object, ObjectKey};

/// Writes objects of a kind that is known only at run time, such as
/// [`DynamicObject`](kube::core::DynamicObject)s.
///
/// [`Context::of`](super::Context::of) returns it. Its writes are recorded for the key like those
/// of the context's own methods.
///
/// ```no_run
/// # async fn example(cx: &pintle::controller::Context) -> Result<(), kube::Error> {
/// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
///
/// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
/// let widget = DynamicObject::new("one", &widgets).within("default");
/// cx.of::<DynamicObject>(&widgets).create(&widget).await?;
/// # Ok(())
/// # }
/// ```
pub struct Writes<'a, K: Kind> {
    pub(super) inner: &'a Inner,
    kind: DynamicKind<'a, K>,
}

enum DynamicKind<'a, K: Kind> {
    Given(&'a K::DynamicType),
    Default(K::DynamicType),
}

impl<'a, K: Kind> Writes<'a, K> {
    pub(super) fn of(inner: &'a Inner, kind: &'a K::DynamicType) -> Self {
        let kind = DynamicKind::Given(kind);
        Self { inner, kind }
    }

    pub(super) fn typed(inner: &'a Inner) -> Self
    where
        K::DynamicType: Default,
    {
        let kind = DynamicKind::Default(K::DynamicType::default());
        Self { inner, kind }
    }

    pub(super) fn kind(&self) -> &K::DynamicType {
        match &self.kind {
            DynamicKind::Given(kind) => kind,
            DynamicKind::Default(kind) => kind,
        }
    }

    /// Deletes `object`, identified by its UID. See [`Context::delete`](super::Context::delete).
    ///
    /// # Errors
    ///
    /// Fails with a conflict if another object now has the name, or with the error of the request.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn delete(&self, object: &Object<K>) -> Result<(), kube::Error> {
        self.delete_if(object.key(), object.uid(), None).await
    }

    /// Deletes the object called `key` if it still has this UID and, if given, `resourceVersion`.
    pub(super) async fn delete_if(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: Option<&str>,
    ) -> Result<(), kube::Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: resource_version.map(str::to_owned),
            }),
            ..DeleteParams::default()
        };
        let request = self
            .requests(key.namespace())
            .delete(key.name(), &params)
            .map_err(kube::Error::BuildRequest)?;
        let (by, kind) = (&self.inner.key, GroupKind::of::<K>(self.kind()));
        let shared = &self.inner.shared;
        let own_writes = shared.own_writes.as_ref();
        if let Some(own_writes) = own_writes {
            own_writes.deleting(by, &kind, key, uid);
        }
        match shared
            .client
            .request_status::<DeleteResponse>(request)
            .await
        {
            Ok(response) => {
                // Only marked for deletion: the object stays until its finalizers are removed,
                // which may never happen.
                let marked = response.left().filter(DeleteResponse::is_terminating);
                if let Some(DeleteResponse { metadata }) = marked
                    && let Some(own_writes) = own_writes
                {
                    let version = metadata.resource_version.unwrap_or_default();
                    own_writes.not_deleted(by, &kind, key, uid);
                    own_writes.wrote(by, &kind, key.namespace(), &version);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => {
                // If there was no response, the deletion may still have happened; the wait for it
                // is bounded.
                if matches!(error, kube::Error::Api(_))
                    && let Some(own_writes) = own_writes
                {
                    own_writes.not_deleted(by, &kind, key, uid);
                }
                Err(error)
            }
        }
    }

    pub(super) fn requests(&self, namespace: Option<&str>) -> Request {
        Request::new(K::url_path(self.kind(), namespace))
    }

    /// Records that the server stored an object of this kind with this `resourceVersion`.
    fn wrote(&self, namespace: Option<&str>, version: Option<&str>) {
        if let Some(own_writes) = &self.inner.shared.own_writes
            && let Some(version) = version
        {
            let kind = GroupKind::of::<K>(self.kind());
            own_writes.wrote(&self.inner.key, &kind, namespace, version);
        }
    }
}

impl<'a, K: Kind + Serialize> Writes<'a, K> {
    /// Creates `object`. See [`Context::create`](super::Context::create).
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request or does not respond.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn create(&self, object: &K) -> Result<K, kube::Error> {
        let requests = self.requests(object.meta().namespace.as_deref());
        self.store(requests.create(&self.post_params(), json(object)?))
            .await
    }

    /// Replaces `object`. See [`Context::replace`](super::Context::replace).
    ///
    /// # Errors
    ///
    /// Fails with a conflict if the object has changed, or with the error of the request.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn replace(&self, object: &K) -> Result<K, kube::Error> {
        let requests = self.requests(object.meta().namespace.as_deref());
        let name = object.meta().name.as_deref().unwrap_or_default();
        self.store(requests.replace(name, &self.post_params(), json(object)?))
            .await
    }

    /// Replaces the status of `object`. See
    /// [`Context::replace_status`](super::Context::replace_status).
    ///
    /// # Errors
    ///
    /// Fails with a conflict if the object has changed, or with the error of the request.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn replace_status(&self, object: &K) -> Result<K, kube::Error> {
        let requests = self.requests(object.meta().namespace.as_deref());
        let name = object.meta().name.as_deref().unwrap_or_default();
        let (params, body) = (self.post_params(), json(object)?);
        self.store(requests.replace_subresource("status", name, &params, body))
            .await
    }

    /// Patches the object called `key`. See [`Context::patch`](super::Context::patch).
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request or does not respond.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn patch<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let (requests, params) = (self.requests(key.namespace()), self.patch_params(false));
        self.store(requests.patch(key.name(), &params, patch)).await
    }

    /// Patches the status of the object called `key`. See
    /// [`Context::patch_status`](super::Context::patch_status).
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request or does not respond.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn patch_status<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let (requests, params) = (self.requests(key.namespace()), self.patch_params(false));
        self.store(requests.patch_subresource("status", key.name(), &params, patch))
            .await
    }

    /// Applies `object` with server-side apply. See [`Context::apply`](super::Context::apply).
    pub fn apply(self, object: &'a K) -> Apply<'a, K> {
        self.into_apply(object, None)
    }

    /// Brings a child of the reconciled object to the state in `child`. See
    /// [`Context::apply_owned`](super::Context::apply_owned). A child of a kind known only at run
    /// time has to name its namespace.
    pub fn apply_owned(self, child: K) -> ApplyOwned<'a, K> {
        ApplyOwned::new(self, child)
    }

    pub(super) fn into_apply(
        self,
        object: &'a K,
        subresource: Option<&'static str>,
    ) -> Apply<'a, K> {
        Apply {
            writes: self,
            object,
            subresource,
            force: false,
        }
    }

    /// Returns `object` as an apply configuration: with its kind, without `managedFields`.
    pub(super) fn configuration(&self, object: &K) -> Result<Value, kube::Error> {
        let mut config = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        if let Some(fields) = config.as_object_mut() {
            let kind = self.kind();
            for (name, value) in [
                ("apiVersion", K::api_version(kind)),
                ("kind", K::kind(kind)),
            ] {
                fields
                    .entry(name)
                    .or_insert_with(|| Value::from(value.into_owned()));
            }
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        Ok(config)
    }

    /// Applies a configuration, and returns the object as the server stored it.
    pub(super) async fn apply_configuration(
        &self,
        key: &ObjectKey,
        config: &Value,
        subresource: Option<&str>,
        force: bool,
    ) -> Result<Value, kube::Error> {
        let (requests, params) = (self.requests(key.namespace()), self.patch_params(force));
        let patch = Patch::Apply(config);
        let request = match subresource {
            Some(subresource) => {
                requests.patch_subresource(subresource, key.name(), &params, &patch)
            }
            None => requests.patch(key.name(), &params, &patch),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let stored: Value = self.inner.shared.client.request(request).await?;
        self.wrote(
            key.namespace(),
            stored["metadata"]["resourceVersion"].as_str(),
        );
        Ok(stored)
    }

    async fn store(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let stored: K = self.inner.shared.client.request(request).await?;
        let meta = stored.meta();
        self.wrote(meta.namespace.as_deref(), meta.resource_version.as_deref());
        Ok(stored)
    }

    fn post_params(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.inner.shared.field_manager.clone()),
            ..PostParams::default()
        }
    }

    fn patch_params(&self, force: bool) -> PatchParams {
        PatchParams {
            field_manager: Some(self.inner.shared.field_manager.clone()),
            force,
            ..PatchParams::default()
        }
    }
}

impl<K: Kind> fmt::Debug for Writes<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writes")
            .field("kind", &K::kind(self.kind()))
            .finish_non_exhaustive()
    }
}

fn json(object: &impl Serialize) -> Result<Vec<u8>, kube::Error> {
    serde_json::to_vec(object).map_err(kube::Error::SerdeError)
}

/// The part of a response to a deletion that matters: the object, if the server returns it.
#[derive(Clone, Debug, Deserialize)]
struct DeleteResponse {
    metadata: ObjectMeta,
}

impl DeleteResponse {
    /// Returns whether the object still exists and waits for its finalizers or grace period.
    ///
    /// An object in the response is not enough: kube-apiserver returns Services, Pods and others
    /// even when they are gone. Such an object has no deletion timestamp, or one with a grace
    /// period of zero and no finalizers left.
    fn is_terminating(&self) -> bool {
        let meta = &self.metadata;
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        meta.deletion_timestamp.is_some()
            && (meta.deletion_grace_period_seconds != Some(0) || !finalizers.is_empty())
    }
}

#[cfg(test)]
mod tests;
