//! Counts the usage of `ResourceQuota`s.
//!
//! Admission in the API server relies on this status: it charges the usage with each object it
//! admits, and rejects what would exceed the limits. This loop counts the existing objects whenever
//! an object of a watched kind changes in the namespace, and polls other kinds, which frees the
//! quota of deleted objects.
//!
//! It reads the quota and then the objects from the server, not from caches: a cache that has the
//! charged quota but not yet the object would count too little, and admission would admit too much.
//! The server charges a quota right before it stores the object, so a charged object exists a
//! moment later; a count in between is corrected by the next one. The status is written only if the
//! quota is still the one that was read.

mod plan;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Secret, Service,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use parking_lot::Mutex;
use pintle::{
    cache::{Kind, Lister, Object, ObjectKey},
    controller::{Action, Context, Listers, Predicate, ReconcileError},
};
use pintle_apiserver::quota::Quota;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    api::{replace_status, unless_stale},
    discovery,
    loops::{Environment, LoopError},
};

/// When each quota was counted last.
type Counted = Arc<Mutex<BTreeMap<ObjectKey, Timestamp>>>;

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let quotas = environment.informers.informer::<ResourceQuota>().lister();
    let (shared, counted) = (environment.clone(), Counted::default());
    environment
        .controller::<ResourceQuota>("resource-quotas")
        .filter(spec_changed())
        .watches::<Pod>(quotas_of(&quotas))
        .watches::<PersistentVolumeClaim>(quotas_of(&quotas))
        .watches::<ConfigMap>(quotas_of(&quotas))
        .watches::<Service>(quotas_of(&quotas))
        .watches::<ReplicationController>(quotas_of(&quotas))
        .watches::<Secret>(quotas_of(&quotas))
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), counted.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// Ignores the charges of admission: the existing objects have not changed yet, and the charged
/// object may be stored only after the count.
fn spec_changed() -> Predicate<ResourceQuota> {
    Predicate::new(|old, new| {
        let spec = |quota: &Object<ResourceQuota>| quota.get().ok()?.spec.clone();
        old.is_none_or(|old| spec(old) != spec(new))
    })
}

/// Maps an object to the quotas of its namespace.
fn quotas_of<K: Kind>(
    quotas: &Lister<ResourceQuota>,
) -> impl Fn(&Object<K>, &Listers) -> Vec<ObjectKey> + use<K> {
    let quotas = quotas.clone();
    move |object, _| {
        let namespace = object.key().namespace().unwrap_or_default();
        let quotas = quotas.namespace(namespace).list();
        quotas.iter().map(|quota| quota.key().clone()).collect()
    }
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    counted: Counted,
) -> Result<Action, ReconcileError> {
    let namespace = key.namespace().unwrap_or_default();
    let now = environment.clock.now();
    let last = counted.lock().get(&key).copied();
    let api = Api::<ResourceQuota>::namespaced(cx.client().clone(), namespace);
    let Some(quota) = api.get_opt(key.name()).await? else {
        counted.lock().remove(&key);
        return Ok(Action::await_change());
    };
    if let Some(wait) = plan::wait(&quota, last, now) {
        return Ok(Action::requeue_after(wait));
    }
    let limits = Quota::new(&plan::spec(&quota));
    let kinds = limits.kinds();
    let mut objects: Vec<(&str, &str, Vec<Value>)> = Vec::new();
    for (group, plural) in &kinds {
        // A kind that does not exist has no objects.
        if let Some(resource) = resource(cx.client(), group, plural).await? {
            let found = list(cx.client(), namespace, &resource).await?;
            objects.push((group, plural, found));
        }
    }
    let borrowed: Vec<Vec<&Value>> = objects
        .iter()
        .map(|(_, _, objects)| objects.iter().collect())
        .collect();
    let listed: Vec<_> = objects
        .iter()
        .zip(&borrowed)
        .map(|((group, plural, _), objects)| (*group, *plural, objects.as_slice()))
        .collect();
    let status = plan::status(&quota, limits.used(&listed, now));
    counted.lock().insert(key.clone(), now);
    if status.is_some() {
        replace_status(&cx, &ResourceQuota { status, ..quota }).await?;
    }
    Ok(Action::requeue_after(plan::recheck(&kinds)))
}

/// Returns the resource of a plural, or `None` if the server does not serve it.
async fn resource(
    client: &Client,
    group: &str,
    plural: &str,
) -> Result<Option<ApiResource>, kube::Error> {
    if let Some(kind) = plan::core_kind(group, plural) {
        return Ok(Some(discovery::resource("", "v1", kind, plural)));
    }
    let kinds = discovery::kinds(client).await?;
    let found = kinds.into_iter().find(|kind| {
        kind.namespaced && kind.resource.group == group && kind.resource.plural == plural
    });
    Ok(found.map(|kind| kind.resource))
}

async fn list(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
) -> Result<Vec<Value>, ReconcileError> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, resource);
    let list = unless_stale(api.list(&ListParams::default()).await)?;
    let objects = list.into_iter().flat_map(|list| list.items);
    let values: Result<Vec<Value>, _> = objects.map(serde_json::to_value).collect();
    Ok(values.map_err(kube::Error::SerdeError)?)
}
