//! The few requests and look-ups that several loops need.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::Patch;
use pintle::{
    cache::{IndexError, Kind, Lister, Object, ObjectKey, Selector},
    client::describe,
    controller::{Context, Listers, ReconcileError, Writable},
    informer::SharedInformer,
};
use serde_json::json;

use crate::meta;

/// An owner that turned out to be gone, or on its way out, when asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0} is gone or going: it adopts nothing any more")]
pub(crate) struct OwnerGone(ObjectKey);

/// What an event or a condition says of an error: the server's own message, as upstream's
/// controllers do.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => describe(error),
    }
}

/// The index of Pods and `ReplicaSet`s by the UID of their controller; orphans stand under their
/// namespace. Without it every look at one owner would be a look at the whole namespace.
const CONTROLLER: &str = "controller";

/// Gives an informer the index that [`controlled`] and [`controlled_or_orphaned`] look into.
pub(crate) fn index_controllers<K: Kind>(informer: &SharedInformer<K>) -> Result<(), IndexError> {
    informer.index_header(CONTROLLER, |object| {
        let controller = object.controller_owner();
        vec![controller.map_or_else(
            || orphans_of(object.key().namespace().unwrap_or_default()),
            |controller| controller.uid().to_owned(),
        )]
    })
}

/// No UID begins like this.
fn orphans_of(namespace: &str) -> String {
    format!("/{namespace}")
}

/// The objects that the owner with this UID controls.
pub(crate) fn controlled<K: Kind<DynamicType: Default>>(
    cx: &Context,
    owner: &str,
) -> Result<Vec<Object<K>>, ReconcileError> {
    let mut objects = cx.lister::<K>()?.by_index(CONTROLLER, owner)?;
    // A cache lists in no order, and what is decided must not depend on that.
    objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    Ok(objects)
}

/// The objects that `owner` controls, and those of its namespace that nobody controls.
pub(crate) fn controlled_or_orphaned<K: Kind<DynamicType: Default>>(
    cx: &Context,
    owner: &ObjectMeta,
) -> Result<Vec<Object<K>>, ReconcileError> {
    let mut objects = controlled(cx, meta::uid(owner))?;
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    objects.extend(controlled(cx, &orphans_of(namespace))?);
    Ok(objects)
}

/// Names for an orphan those who may want to adopt it: the `P`s of its namespace that select it.
pub(crate) fn adopters<K: Kind, P: Kind>(
    owners: Lister<P>,
    selector: fn(&P) -> Selector,
) -> impl Fn(&Object<K>, &Listers) -> Vec<ObjectKey> {
    move |object, _| {
        if object.controller_owner().is_some() {
            return Vec::new();
        }
        let selects = |owner: &Object<P>| {
            let owner = owner.get();
            owner.is_ok_and(|owner| selector(&owner).matches(object.labels().iter()))
        };
        let namespace = object.key().namespace().unwrap_or_default();
        let mut owners = owners.namespace(namespace).list();
        owners.retain(selects);
        owners.iter().map(|owner| owner.key().clone()).collect()
    }
}

/// Asks the server, not the cache, whether the owner still lives: one that does not must not adopt
/// what was just orphaned from it.
pub(crate) async fn ensure_alive<K>(cx: &Context, owner: &K) -> Result<(), ReconcileError>
where
    K: Writable + kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
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

/// `None` for a request about something that has changed or gone meanwhile. The caller stops there:
/// the change enqueues the key again, and the next run decides on what is true then.
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
