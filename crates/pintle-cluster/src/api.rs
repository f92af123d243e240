//! Requests and lookups shared by the loops.

use std::sync::Arc;

use k8s_openapi::{
    api::{core::v1::PersistentVolume, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{api::Patch, core::NamespaceResourceScope};
use pintle::{
    cache::{IndexError, Kind, Lister, Object, ObjectKey, Selector},
    client::describe,
    controller::{Context, Listers, Predicate, ReconcileError, Writable},
    informer::SharedInformer,
};
use serde_json::json;

use crate::meta::{self, Claim};

/// The owner is gone or being deleted on the server.
#[derive(Debug, thiserror::Error)]
#[error("{0} is deleted or being deleted; not adopting")]
pub(crate) struct OwnerGone(ObjectKey);

/// Returns the message of an error for events and conditions: the server's own, as upstream does.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => describe(error),
    }
}

/// The index of Pods, Jobs, `ReplicaSet`s and `ControllerRevision`s by the UID of their controller,
/// and of orphans by namespace.
/// Without it, every reconcile would scan a whole namespace.
const CONTROLLER: &str = "controller";

/// Adds the index that [`controlled`] and [`claim`] use.
pub(crate) fn index_controllers<K: Kind>(informer: &SharedInformer<K>) -> Result<(), IndexError> {
    informer.index_header(CONTROLLER, |object| {
        let controller = object.controller_owner();
        vec![controller.map_or_else(
            || orphans_of(object.key().namespace().unwrap_or_default()),
            |controller| controller.uid().to_owned(),
        )]
    })
}

/// The index of `EndpointSlice`s by the key of their Service.
pub(crate) const SLICES_BY_SERVICE: &str = "service";

/// Adds the index [`SLICES_BY_SERVICE`].
pub(crate) fn index_slices(informer: &SharedInformer<EndpointSlice>) -> Result<(), IndexError> {
    informer.index_header(SLICES_BY_SERVICE, |slice| {
        let service = slice.labels().get("kubernetes.io/service-name");
        let namespace = slice.key().namespace().unwrap_or_default();
        let key = service.map(|service| ObjectKey::namespaced(namespace, service));
        key.map(|key| key.as_str().to_owned()).into_iter().collect()
    })
}

/// The index of volumes by the name of the claim they refer to, in any namespace.
pub(crate) const VOLUMES_BY_CLAIM: &str = "claim";

/// Adds the index [`VOLUMES_BY_CLAIM`].
pub(crate) fn index_volumes(volumes: &SharedInformer<PersistentVolume>) -> Result<(), IndexError> {
    volumes.index_field(VOLUMES_BY_CLAIM, "/spec/claimRef/name")
}

/// Returns the index value for orphans. No UID starts with a slash.
fn orphans_of(namespace: &str) -> String {
    format!("/{namespace}")
}

/// Returns the keys of the objects that the owner with this UID controls.
pub(crate) fn controlled_keys<K: Kind<DynamicType: Default>>(
    lister: &Lister<K>,
    owner: &str,
) -> Vec<ObjectKey> {
    // Every loop that calls this has added the index, so the lookup does not fail.
    let objects = lister.by_index(CONTROLLER, owner).unwrap_or_default();
    let mut keys: Vec<_> = objects.iter().map(|object| object.key().clone()).collect();
    keys.sort_unstable();
    keys
}

/// Returns the objects that the owner with this UID controls, ordered by key.
pub(crate) fn controlled<K: Kind<DynamicType: Default>>(
    cx: &Context,
    owner: &str,
) -> Result<Vec<Object<K>>, ReconcileError> {
    let mut objects = cx.lister::<K>()?.by_index(CONTROLLER, owner)?;
    // The cache is unordered, and decisions must not depend on its order.
    objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    Ok(objects)
}

/// The objects of one owner.
pub(crate) struct Claimed<K> {
    /// The objects it controls, ordered by key.
    pub(crate) controlled: Vec<Arc<K>>,
    /// The objects it has just adopted, in their state before the adoption.
    pub(crate) adopted: Vec<Arc<K>>,
}

/// Finds the objects that `owner` controls, adopts matching orphans, and releases controlled
/// objects that no longer match. Objects for which `is_active` is false are neither adopted nor
/// released.
pub(crate) async fn claim<P, K>(
    cx: &Context,
    owner: &P,
    selector: &Selector,
    is_active: impl Fn(&K) -> bool,
) -> Result<Claimed<K>, ReconcileError>
where
    P: Writable + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Writable + Kind<DynamicType: Default>,
{
    let selects = |object: &K| meta::selects(selector, object.meta());
    claim_with(cx, owner, selects, None, is_active).await
}

/// Like [`claim`], with an arbitrary condition instead of a selector. If `finalizer` is set,
/// adopted objects get it and released ones lose it.
pub(crate) async fn claim_with<P, K>(
    cx: &Context,
    owner: &P,
    selects: impl Fn(&K) -> bool,
    finalizer: Option<&str>,
    is_active: impl Fn(&K) -> bool,
) -> Result<Claimed<K>, ReconcileError>
where
    P: Writable + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Writable + Kind<DynamicType: Default>,
{
    let owner_meta = owner.meta();
    let namespace = owner_meta.namespace.as_deref().unwrap_or_default();
    let mut objects = controlled::<K>(cx, meta::uid(owner_meta))?;
    objects.extend(controlled(cx, &orphans_of(namespace))?);

    let (mut controlled, mut adopted) = (Vec::new(), Vec::new());
    let mut is_alive = false;
    for object in objects {
        let candidate = object.get()?;
        let candidate_meta = candidate.meta();
        match meta::claim(owner_meta, candidate_meta, selects(&candidate)) {
            Claim::Controlled => controlled.push(candidate),
            Claim::Adopt if is_active(&candidate) => {
                if !is_alive {
                    ensure_alive(cx, owner).await?;
                    is_alive = true;
                }
                let owners = meta::with_controller(candidate_meta, owner);
                let finalizers = finalizer.map(|it| meta::with_finalizer(candidate_meta, it));
                if set_owners(cx, &object, owners, finalizers).await? {
                    adopted.push(candidate);
                }
            }
            Claim::Release if is_active(&candidate) => {
                let owners = meta::without_owner(candidate_meta, meta::uid(owner_meta));
                let finalizers = finalizer.map(|it| meta::without_finalizer(candidate_meta, it));
                set_owners(cx, &object, owners, finalizers).await?;
            }
            _ => {}
        }
    }
    Ok(Claimed {
        controlled,
        adopted,
    })
}

/// Maps an orphan to the owners in its namespace whose selector matches it.
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

/// Returns a predicate that drops every change except deletions, which predicates never drop.
pub(crate) fn only_deletions<K: 'static>() -> Predicate<K> {
    Predicate::new(|_, _| false)
}

/// Checks with the server that the owner exists and is not being deleted.
///
/// The cache may be stale, and an owner that is being deleted with `orphan` propagation must not
/// adopt its former dependents again.
async fn ensure_alive<K>(cx: &Context, owner: &K) -> Result<(), ReconcileError>
where
    K: Writable + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
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

/// Replaces the owner references and, if given, the finalizers of an object. Returns false on a
/// conflict or if the object is gone; the change triggers another reconcile.
async fn set_owners<K: Writable>(
    cx: &Context,
    object: &Object<K>,
    owners: Vec<OwnerReference>,
    finalizers: Option<Vec<String>>,
) -> Result<bool, kube::Error> {
    let mut patch = json!({ "metadata": {
        "uid": object.uid(),
        "resourceVersion": object.resource_version(),
        "ownerReferences": owners,
    }});
    if let Some(finalizers) = finalizers {
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    Ok(unless_stale(cx.patch::<K, _>(object.key(), &Patch::Merge(patch)).await)?.is_some())
}

/// Replaces the status of an object. Returns false on a conflict or if the object is gone.
pub(crate) async fn replace_status<K: Writable>(
    cx: &Context,
    object: &K,
) -> Result<bool, kube::Error> {
    Ok(unless_stale(cx.replace_status(object).await)?.is_some())
}

/// Turns conflict and not-found errors into `None`. The caller should return: the change that
/// caused them enqueues the key again.
pub(crate) fn unless_stale<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a creation was rejected because its namespace is terminating.
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
