//! Reports `ServiceCIDR`s as ready, protects them while Services have addresses in them, and keeps
//! an `IPAddress` for each address of a Service.
//!
//! On a real cluster the API server writes the `IPAddress`es itself; here, a loop does so a moment
//! later, as kube-apiserver's repair loop would.

mod plan;

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::{
    core::v1::Service,
    networking::v1::{IPAddress, ServiceCIDR},
};
use kube::api::Patch;
use pintle::{
    cache::{IndexError, Lister, Object, ObjectKey},
    controller::{Action, Context, ReconcileError},
    informer::SharedInformer,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{AddressStep, RangeStep};
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    meta,
};

/// The index of Services by address.
const BY_ADDRESS: &str = "address";

/// Adds the index that the loop uses.
pub(crate) fn index(services: &SharedInformer<Service>) -> Result<(), IndexError> {
    services.index_by(BY_ADDRESS, |service| {
        let addresses = plan::addresses(service).into_iter();
        addresses.map(|address| address.to_string()).collect()
    })
}

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let shared = environment.clone();
    let ranges = environment.informers.informer::<ServiceCIDR>().lister();
    let others = ranges.clone();
    let ranges = environment
        .controller::<ServiceCIDR>("service-cidr-controller")
        .watches::<IPAddress>(move |_, _| keys(&ranges))
        // A new range may cover the addresses of a deleted one, which is then released.
        .watches::<ServiceCIDR>(move |_, _| keys(&others))
        .run_by_key(
            move |key, cx| reconcile_range(key, cx, shared.clone()),
            &stop,
        );
    let addresses = environment
        .controller::<IPAddress>("service-addresses")
        .watches::<Service>(|service, _| {
            let addresses = service.get().map(|service| plan::addresses(&service));
            let addresses = addresses.unwrap_or_default().into_iter();
            addresses
                .map(|address| ObjectKey::cluster(&address.to_string()))
                .collect()
        })
        .run_by_key(reconcile_address, &stop);
    futures::try_join!(ranges, addresses)?;
    Ok(())
}

fn keys(ranges: &Lister<ServiceCIDR>) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = ranges
        .list()
        .iter()
        .map(|range| range.key().clone())
        .collect();
    keys.sort_unstable();
    keys
}

async fn reconcile_range(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
) -> Result<Action, ReconcileError> {
    let lister = cx.lister::<ServiceCIDR>()?;
    let Some(cached) = lister.get(&key) else {
        return Ok(Action::await_change());
    };
    let range = cached.get()?;
    let mut all = Vec::new();
    for other in lister.list() {
        all.push(other.get()?);
    }
    let mut used = Vec::new();
    for address in cx.lister::<IPAddress>()?.list() {
        let address = address.get()?;
        if plan::is_of_service(&address) {
            used.extend(meta::name(&address.metadata).parse::<IpAddr>().ok());
        }
    }
    match plan::plan_range(&range, &all, &used, environment.clock.now()) {
        RangeStep::None => {}
        RangeStep::Wait(left) => return Ok(Action::requeue_after(left)),
        RangeStep::Protect => {
            let finalizers = meta::with_finalizer(&range.metadata, plan::FINALIZER);
            set_finalizers(&cached, &finalizers, &cx).await?;
        }
        RangeStep::Release => {
            let finalizers = meta::without_finalizer(&range.metadata, plan::FINALIZER);
            set_finalizers(&cached, &finalizers, &cx).await?;
        }
        RangeStep::Report(status) => {
            let mut reported = (*range).clone();
            reported.status = Some(*status);
            api::replace_status(&cx, &reported).await?;
        }
    }
    Ok(Action::await_change())
}

async fn set_finalizers(
    range: &Object<ServiceCIDR>,
    finalizers: &[String],
    cx: &Context,
) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({ "metadata": {
        "uid": range.uid(),
        "resourceVersion": range.resource_version(),
        "finalizers": finalizers,
    }}));
    unless_stale(cx.patch::<ServiceCIDR, _>(range.key(), &patch).await)?;
    Ok(())
}

async fn reconcile_address(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Ok(address) = key.name().parse::<IpAddr>() else {
        return Ok(Action::await_change());
    };
    let mut services = cx
        .lister::<Service>()?
        .by_index(BY_ADDRESS, &address.to_string())?;
    services.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let service = services.first().map(Object::get).transpose()?;
    let cached = cx.lister::<IPAddress>()?.get(&key);
    let existing = cached.as_ref().map(Object::get).transpose()?;
    match plan::plan_address(address, service.as_deref(), existing.as_deref()) {
        AddressStep::None => {}
        AddressStep::Create(address) => match cx.create(&*address).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        },
        AddressStep::Delete => {
            if let Some(cached) = cached {
                unless_stale(cx.delete(&cached).await)?;
            }
        }
    }
    Ok(Action::await_change())
}
