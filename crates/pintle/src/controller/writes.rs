//! Writes of a reconcile, recorded so that the next one sees them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::Request,
};
use serde::{Deserialize, Serialize};

use super::{Context, own_writes::GroupKind};
use crate::cache::{Kind, Object, ObjectKey};

/// Writes objects of a kind described by a value, such as
/// [`DynamicObject`](kube::core::DynamicObject)s.
///
/// [`Context::of`] returns it. Like the methods of [`Context`], it records what it writes for the
/// key, and every cache of the same group and kind is waited for, whatever Rust type it holds.
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
    cx: &'a Context,
    kind: &'a K::DynamicType,
}

impl<'a, K: Kind> Writes<'a, K> {
    pub(super) fn new(cx: &'a Context, kind: &'a K::DynamicType) -> Self {
        Self { cx, kind }
    }

    /// Deletes exactly `object`. See [`Context::delete`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a deletion that was sent may have happened.
    pub async fn delete(&self, object: &Object<K>) -> Result<(), kube::Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(object.uid().to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let (key, uid) = (object.key(), object.uid());
        let request = self
            .requests(key.namespace())
            .delete(key.name(), &params)
            .map_err(kube::Error::BuildRequest)?;
        let (by, kind) = (self.cx.key(), GroupKind::of::<K>(self.kind));
        let own_writes = self.cx.own_writes();
        if let Some(own_writes) = own_writes {
            own_writes.deleting(by, &kind, key, uid);
        }
        match self.cx.client().request_status::<Answer>(request).await {
            Ok(answer) => {
                // Only marked: it goes when its finalizers are gone, which may be never.
                if let Some(Answer { metadata }) = answer.left().filter(Answer::is_marked)
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
                // Without an answer it may have happened; then the wait for it is bounded anyway.
                if matches!(error, kube::Error::Api(_))
                    && let Some(own_writes) = own_writes
                {
                    own_writes.not_deleted(by, &kind, key, uid);
                }
                Err(error)
            }
        }
    }

    fn requests(&self, namespace: Option<&str>) -> Request {
        Request::new(K::url_path(self.kind, namespace))
    }
}

impl<K: Kind + Serialize> Writes<'_, K> {
    /// Creates `object`. See [`Context::create`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a create that was sent may have happened.
    pub async fn create(&self, object: &K) -> Result<K, kube::Error> {
        let requests = self.requests(object.meta().namespace.as_deref());
        self.store(requests.create(&self.post_params(), json(object)?))
            .await
    }

    /// Replaces `object`. See [`Context::replace`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn replace(&self, object: &K) -> Result<K, kube::Error> {
        let requests = self.requests(object.meta().namespace.as_deref());
        let name = object.meta().name.as_deref().unwrap_or_default();
        self.store(requests.replace(name, &self.post_params(), json(object)?))
            .await
    }

    /// Replaces the status of `object`. See [`Context::replace_status`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn replace_status(&self, object: &K) -> Result<K, kube::Error> {
        let requests = self.requests(object.meta().namespace.as_deref());
        let name = object.meta().name.as_deref().unwrap_or_default();
        let (params, body) = (self.post_params(), json(object)?);
        self.store(requests.replace_subresource("status", name, &params, body))
            .await
    }

    /// Patches the object called `key`. See [`Context::patch`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn patch<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let params = self.patch_params(patch);
        self.store(
            self.requests(key.namespace())
                .patch(key.name(), &params, patch),
        )
        .await
    }

    /// Patches the status of the object called `key`. See [`Context::patch_status`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a write that was sent may have happened.
    pub async fn patch_status<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let (requests, params) = (self.requests(key.namespace()), self.patch_params(patch));
        self.store(requests.patch_subresource("status", key.name(), &params, patch))
            .await
    }

    async fn store(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let stored: K = self.cx.client().request(request).await?;
        if let Some(own_writes) = self.cx.own_writes()
            && let Some(version) = &stored.meta().resource_version
        {
            let kind = GroupKind::of::<K>(self.kind);
            let namespace = stored.meta().namespace.as_deref();
            own_writes.wrote(self.cx.key(), &kind, namespace, version);
        }
        Ok(stored)
    }

    fn post_params(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.cx.field_manager()),
            ..PostParams::default()
        }
    }

    fn patch_params<P: Serialize>(&self, patch: &Patch<P>) -> PatchParams {
        PatchParams {
            field_manager: Some(self.cx.field_manager()),
            force: matches!(patch, Patch::Apply(_)),
            ..PatchParams::default()
        }
    }
}

impl<K: Kind> fmt::Debug for Writes<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writes")
            .field("kind", &K::kind(self.kind))
            .finish_non_exhaustive()
    }
}

fn json(object: &impl Serialize) -> Result<Vec<u8>, kube::Error> {
    serde_json::to_vec(object).map_err(kube::Error::SerdeError)
}

/// The little we read of an object that answers a deletion.
#[derive(Clone, Debug, Deserialize)]
struct Answer {
    metadata: ObjectMeta,
}

impl Answer {
    /// Whether the object is still there, waiting for its finalizers or its grace period.
    ///
    /// An object in the answer is not enough: kube-apiserver answers with the object for Services,
    /// Pods and others also when it is gone. It then has no deletion timestamp, or one with a grace
    /// period of zero and no finalizers left.
    fn is_marked(&self) -> bool {
        let meta = &self.metadata;
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        meta.deletion_timestamp.is_some()
            && (meta.deletion_grace_period_seconds != Some(0) || !finalizers.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_marked(metadata: Value) -> bool {
        let metadata = serde_json::from_value(metadata).expect("metadata");
        Answer { metadata }.is_marked()
    }

    /// Proves controller/read-your-writes.
    #[test]
    fn answer_to_a_deletion_tells_marked_from_gone() {
        let at = "2026-01-01T00:00:00Z";
        assert!(!is_marked(json!({"name": "service"})), "never marked");
        let unscheduled = json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 0});
        assert!(!is_marked(unscheduled), "a Pod without a node goes at once");
        let graceful = json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30});
        assert!(is_marked(graceful));
        let finalizers = json!(["example.org/bucket"]);
        let held = json!({
            "deletionTimestamp": at, "deletionGracePeriodSeconds": 0, "finalizers": finalizers,
        });
        assert!(is_marked(held));
        let namespace = json!({"deletionTimestamp": at});
        assert!(is_marked(namespace), "its finalizers are in its spec");
    }
}
