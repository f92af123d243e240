//! The few requests and look-ups that several loops need.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::Patch;
use pintle::{
    cache::{Kind, Object, ObjectKey},
    controller::{Context, Writable},
};
use serde_json::json;

use crate::meta;

/// An owner that turned out to be gone, or on its way out, when asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0} is gone or going: it adopts nothing any more")]
pub(crate) struct OwnerGone(ObjectKey);

/// The objects of a namespace that `owner` controls.
pub(crate) fn controlled<K: Kind<DynamicType: Default>>(
    cx: &Context,
    namespace: Option<&str>,
    owner: &str,
) -> impl Iterator<Item = Object<K>> {
    let controlled = |object: &Object<K>| {
        object
            .controller_owner()
            .is_some_and(|controller| controller.uid() == owner)
    };
    let mut objects = cx
        .lister::<K>()
        .namespace(namespace.unwrap_or_default())
        .list();
    objects.retain(controlled);
    // A cache lists in no order, and what is decided must not depend on that.
    objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    objects.into_iter()
}

/// The objects of the owner's namespace that it controls, and those that nobody controls.
pub(crate) fn controlled_or_orphaned<K: Kind<DynamicType: Default>>(
    cx: &Context,
    owner: &ObjectMeta,
) -> impl Iterator<Item = Object<K>> {
    let ours = |object: &Object<K>| {
        object
            .controller_owner()
            .is_none_or(|controller| controller.uid() == meta::uid(owner))
    };
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    let mut objects = cx.lister::<K>().namespace(namespace).list();
    objects.retain(ours);
    objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    objects.into_iter()
}

/// Asks the server, not the cache, whether the owner still lives: one that does not must not adopt
/// what was just orphaned from it.
pub(crate) async fn ensure_alive<K: Writable>(
    cx: &Context,
    owner: &K,
) -> Result<(), pintle::controller::ReconcileError>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    let key = ObjectKey::of(owner);
    let namespace = key.namespace().unwrap_or_default();
    let live = kube::Api::<K>::namespaced(cx.client().clone(), namespace)
        .get_opt(key.name())
        .await?;
    match live {
        Some(live)
            if live.meta().uid == owner.meta().uid && !meta::is_being_deleted(live.meta()) =>
        {
            Ok(())
        }
        _ => Err(OwnerGone(key).into()),
    }
}

/// Writes an object's owner references, if the object is still as it was seen. False if it is
/// not: then its change is on the way here and the next run decides again.
pub(crate) async fn set_owners<K: Writable>(
    cx: &Context,
    object: &Object<K>,
    owners: Vec<OwnerReference>,
) -> Result<bool, kube::Error> {
    let patch = json!({ "metadata": {
        "uid": object.uid(),
        "resourceVersion": object.resource_version(),
        "ownerReferences": owners,
    }});
    Ok(unless_stale(cx.patch::<K, _>(object.key(), &Patch::Merge(patch)).await)?.is_some())
}

/// Writes the status of an object, if the object is still as it was seen.
pub(crate) async fn replace_status<K: Writable>(
    cx: &Context,
    object: &K,
) -> Result<bool, kube::Error> {
    Ok(unless_stale(cx.replace_status(object).await)?.is_some())
}

/// `None` for a write to an object that has changed or gone meanwhile. Whoever gets it stops: the
/// change wakes the key again, and then it is decided on what is true then.
pub(crate) fn unless_stale<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a create was refused because its namespace is on the way out.
pub(crate) fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "NamespaceTerminating")
}
