//! Writes the endpoints of Services: the addresses of the Pods that serve them.
//!
//! Three controllers share this module. The first writes the `EndpointSlice`s of Services with a
//! selector, the second their Endpoints, and the third mirrors Endpoints that users write for
//! Services without a selector. Each decides in a pure function.

mod backends;
mod mirror;
mod slices;
mod subsets;
mod trigger;

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use pintle::{
    cache::{Lister, Object, ObjectKey},
    controller::{Action, Context, Listers, Predicate, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::{
    slices::{Changes, Zones},
    trigger::Triggers,
};
use crate::{
    api::{self, is_namespace_terminating, unless_stale},
    loops::{Environment, LoopError},
    meta,
};

/// The label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of a node that names its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = |component| environment.events.recorder(component);
    let services = environment.informers.informer::<Service>().lister();

    let (warnings, triggers) = (
        recorder("endpoint-slice-controller"),
        Arc::new(Triggers::default()),
    );
    let all = services.clone();
    let slices = environment
        .controller::<Service>("endpointslice-controller")
        .watches_if::<Pod>(endpoint_changed(), services_of(services.clone()))
        .watches_if::<EndpointSlice>(managed_by(slices::MANAGER), service_of)
        .watches_if::<Node>(zone_changed(), move |_, _| {
            let mut keys: Vec<_> = all.list().iter().map(|it| it.key().clone()).collect();
            keys.sort_unstable();
            keys
        })
        .workers(5)
        .run_by_key(
            move |key, cx| reconcile_slices(key, cx, triggers.clone(), warnings.clone()),
            &stop,
        );

    let (warnings, triggers) = (recorder(subsets::MANAGER), Arc::new(Triggers::default()));
    let endpoints = environment
        .controller::<Service>("endpoints-controller")
        .watches_if::<Pod>(endpoint_changed(), services_of(services))
        // Watch only our own Endpoints, because users may create others before their Service.
        .watches_if::<Endpoints>(
            Predicate::new(|_, new: &Object<Endpoints>| {
                new.labels().get(subsets::MANAGED_BY) == Some(subsets::MANAGER)
            }),
            |endpoints, _| vec![endpoints.key().clone()],
        )
        .workers(5)
        .run_by_key(
            move |key, cx| reconcile_endpoints(key, cx, triggers.clone(), warnings.clone()),
            &stop,
        );

    let warnings = recorder("endpoint-slice-mirroring-controller");
    let mirror = environment
        .controller::<Endpoints>("endpointslicemirroring-controller")
        .watches_if::<Service>(
            Predicate::new(|old: Option<&Object<Service>>, new| {
                let has_selector = |service: &Object<Service>| {
                    let service = service.get();
                    service.is_ok_and(|it| it.spec.iter().any(|spec| spec.selector.is_some()))
                };
                old.is_none_or(|old| has_selector(old) != has_selector(new))
            }),
            |service, _| vec![service.key().clone()],
        )
        .watches_if::<EndpointSlice>(managed_by(mirror::MANAGER), service_of)
        .run_by_key(
            move |key, cx| reconcile_mirror(key, cx, warnings.clone()),
            &stop,
        );
    futures::try_join!(slices, endpoints, mirror)?;
    Ok(())
}

/// Admits changes of a Pod that may affect its endpoints.
fn endpoint_changed() -> Predicate<Pod> {
    Predicate::new(|old: Option<&Object<Pod>>, new| {
        old.is_none_or(|old| match (old.get(), new.get()) {
            (Ok(old), Ok(new)) => backends::has_changed(&old, &new),
            // Admit the change, so that the reconcile reports the decoding error.
            _ => true,
        })
    })
}

fn zone_changed() -> Predicate<Node> {
    Predicate::new(|old: Option<&Object<Node>>, new| {
        old.is_none_or(|old| old.labels().get(ZONE) != new.labels().get(ZONE))
    })
}

/// Admits slices that one of the controllers manages, or managed before the change.
fn managed_by(manager: &'static str) -> Predicate<EndpointSlice> {
    Predicate::new(move |old: Option<&Object<EndpointSlice>>, new| {
        let is_ours =
            |slice: &Object<EndpointSlice>| slice.labels().get(slices::MANAGED_BY) == Some(manager);
        is_ours(new) || old.is_some_and(is_ours)
    })
}

/// Maps a Pod to the Services that select it.
fn services_of(services: Lister<Service>) -> impl Fn(&Object<Pod>, &Listers) -> Vec<ObjectKey> {
    move |pod, _| {
        let selects = |service: &Object<Service>| {
            let selector = service.get().ok().and_then(|it| backends::selector(&it));
            selector.is_some_and(|selector| selector.matches(pod.labels().iter()))
        };
        let namespace = pod.key().namespace().unwrap_or_default();
        let mut services = services.namespace(namespace).list();
        services.retain(selects);
        services
            .iter()
            .map(|service| service.key().clone())
            .collect()
    }
}

/// Maps a slice to its Service.
fn service_of(slice: &Object<EndpointSlice>, _: &Listers) -> Vec<ObjectKey> {
    let namespace = slice.key().namespace().unwrap_or_default();
    let name = slice.labels().get(SERVICE_NAME);
    name.map(|name| ObjectKey::namespaced(namespace, name))
        .into_iter()
        .collect()
}

/// Returns the prefix of generated names of slices.
fn prefix(service: &str) -> String {
    const MAX_NAME: usize = 253;
    if service.len() < MAX_NAME {
        format!("{service}-")
    } else {
        service.to_owned()
    }
}

/// Returns the Pods that a Service selects, sorted by key, or `None` if it has no selector.
fn pods_of(service: &Service, cx: &Context) -> Result<Option<Vec<Arc<Pod>>>, ReconcileError> {
    let Some(selector) = backends::selector(service) else {
        return Ok(None);
    };
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let pods = cx.lister::<Pod>()?.namespace(namespace);
    let mut pods = pods.list_matching(&selector);
    pods.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let pods: Result<Vec<_>, _> = pods.iter().map(Object::get).collect();
    Ok(Some(pods?))
}

/// Returns the slices that one of the controllers writes for a Service, ordered by key.
fn slices_of(
    key: &ObjectKey,
    manager: &str,
    cx: &Context,
) -> Result<Vec<Arc<EndpointSlice>>, ReconcileError> {
    let slices = cx.lister::<EndpointSlice>()?;
    let mut slices = slices.by_index(api::SLICES_BY_SERVICE, key.as_str())?;
    slices.retain(|slice| slice.labels().get(slices::MANAGED_BY) == Some(manager));
    slices.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let slices: Result<Vec<_>, _> = slices.iter().map(Object::get).collect();
    Ok(slices?)
}

async fn reconcile_slices(
    key: ObjectKey,
    cx: Context,
    triggers: Arc<Triggers>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    // The garbage collector deletes the slices of a deleted Service.
    let Some(cached) = cx.lister::<Service>()?.get(&key) else {
        triggers.forget(&key);
        return Ok(Action::await_change());
    };
    let service = cached.get()?;
    let Some(pods) = pods_of(&service, &cx)? else {
        return Ok(Action::await_change());
    };
    let trigger = triggers.observe(&key, &service, &pods);
    let mut zones = Zones::new();
    for node in cx.lister::<Node>()?.list() {
        let zone = node.labels().get(ZONE).filter(|zone| !zone.is_empty());
        zones.insert(node.key().name().to_owned(), zone.map(str::to_owned));
    }
    let existing = slices_of(&key, slices::MANAGER, &cx)?;
    let mut changes = slices::plan(&service, &pods, &zones, &existing);
    for slice in changes.create.iter_mut().chain(&mut changes.update) {
        trigger::annotate(&mut slice.metadata, trigger);
    }
    if let Err(error) = write(&changes, &key, &cx).await {
        let message = format!(
            "Error updating Endpoint Slices for Service {key}: {}",
            api::message(&error)
        );
        let reason = "FailedToUpdateEndpointSlices";
        recorder.event(&*service, EventType::Warning, reason, message);
        return Err(error.into());
    }
    Ok(Action::await_change())
}

/// Writes slices, unless they have changed since they were read.
async fn write(changes: &Changes, key: &ObjectKey, cx: &Context) -> Result<(), kube::Error> {
    for slice in &changes.create {
        match cx.create(slice).await {
            Ok(_) => {}
            Err(error) if is_namespace_terminating(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    for slice in &changes.update {
        unless_stale(cx.replace(slice).await)?;
    }
    let Ok(lister) = cx.lister::<EndpointSlice>() else {
        return Ok(());
    };
    let namespace = key.namespace().unwrap_or_default();
    for name in &changes.delete {
        if let Some(slice) = lister.get(&ObjectKey::namespaced(namespace, name)) {
            unless_stale(cx.delete(&slice).await)?;
        }
    }
    Ok(())
}

async fn reconcile_endpoints(
    key: ObjectKey,
    cx: Context,
    triggers: Arc<Triggers>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let current = cx.lister::<Endpoints>()?.get(&key);
    let Some(cached) = cx.lister::<Service>()?.get(&key) else {
        triggers.forget(&key);
        // Endpoints have no owner, so the garbage collector does not delete them.
        if let Some(endpoints) = current {
            unless_stale(cx.delete(&endpoints).await)?;
        }
        return Ok(Action::await_change());
    };
    let service = cached.get()?;
    let Some(pods) = pods_of(&service, &cx)? else {
        return Ok(Action::await_change());
    };
    let current = current.map(|current| current.get()).transpose()?;
    let trigger = triggers.observe(&key, &service, &pods);
    let Some(mut endpoints) = subsets::plan(&service, &pods, current.as_deref()) else {
        return Ok(Action::await_change());
    };
    trigger::annotate(&mut endpoints.metadata, trigger);
    let (written, verb) = if current.is_some() {
        (
            unless_stale(cx.replace(&endpoints).await).map(drop),
            "Update",
        )
    } else {
        (cx.create(&endpoints).await.map(drop), "Create")
    };
    match written {
        Ok(()) => Ok(Action::await_change()),
        Err(error) if is_namespace_terminating(&error) => Ok(Action::await_change()),
        Err(error) => {
            let what = if verb == "Create" {
                "endpoint for service"
            } else {
                "endpoint"
            };
            let message = format!(
                "Failed to {} {what} {key}: {}",
                verb.to_lowercase(),
                api::message(&error)
            );
            let reason = format!("FailedTo{verb}Endpoint");
            recorder.event(&endpoints, EventType::Warning, reason, message);
            Err(error.into())
        }
    }
}

async fn reconcile_mirror(
    key: ObjectKey,
    cx: Context,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let existing = slices_of(&key, mirror::MANAGER, &cx)?;
    let service = cx.lister::<Service>()?.get(&key);
    let service = service.map(|service| service.get()).transpose()?;
    let endpoints = cx.lister::<Endpoints>()?.get(&key);
    let endpoints = endpoints.map(|endpoints| endpoints.get()).transpose()?;
    let endpoints = endpoints.filter(|it| mirror::is_mirrored(it, service.as_deref()));
    let Some(endpoints) = endpoints else {
        let names = existing
            .iter()
            .map(|it| meta::name(&it.metadata).to_owned());
        let changes = Changes {
            delete: names.collect(),
            ..Changes::default()
        };
        write(&changes, &key, &cx).await?;
        return Ok(Action::await_change());
    };
    let mut plan = mirror::plan(&endpoints, &existing);
    if meta::is_being_deleted(&endpoints.metadata) {
        plan.changes.create.clear();
    }
    if plan.skipped > 0 && plan.changes != Changes::default() {
        let message = format!(
            "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} \
             addresses were skipped",
            mirror::CAPACITY,
            plan.skipped
        );
        let reason = "TooManyAddressesToMirror";
        recorder.event(&*endpoints, EventType::Warning, reason, message);
    }
    write(&plan.changes, &key, &cx).await?;
    Ok(Action::await_change())
}
