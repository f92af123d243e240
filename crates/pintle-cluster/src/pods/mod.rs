//! Starts and stops the Pods on simulated nodes.
//!
//! The loop acts as the kubelets. It runs no containers; it only writes the status that kubelets
//! would write. The [`Behavior`] of a Pod decides what its containers would do.

mod admission;
mod behavior;
pub(crate) mod fit;
mod helpers;
mod logs;
pub(crate) mod plan;
pub(crate) mod script;
pub(crate) mod state;
mod status;

pub use self::{
    behavior::{Behavior, InvalidBehavior},
    logs::LogLine,
    script::Pods,
};

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Preconditions};
use parking_lot::Mutex;
use pintle::{
    cache::{Lister, Object, ObjectKey},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
    informer::Event,
};
use tokio_util::sync::CancellationToken;

use self::plan::{Addresses, Host, Step};
pub(crate) use self::{behavior::duration, status::with_condition};
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    nodes,
    rules::changes,
};

/// The number of Pods reconciled concurrently.
const WORKERS: usize = 10;

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let addresses = Arc::new(Mutex::new(Addresses::default()));
    let pods = environment.informers.informer::<Pod>();
    let observed = addresses.clone();
    let _observing = pods.on_event(move |event| {
        let mut addresses = observed.lock();
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                if let Ok(pod) = object.get()
                    && let Some(address) = pod.status.as_ref().and_then(|it| it.pod_ip.as_ref())
                {
                    addresses.insert(object.uid(), address);
                }
            }
            Event::Deleted(deleted) => addresses.free(deleted.last.uid()),
        }
    });
    let recorder = environment.events.recorder("kubelet");
    let (shared, bound) = (environment.clone(), pods.lister());
    let scripted = pods.lister();
    let rescripted = stream::select(
        changes(environment.scripts.subscribe()),
        changes(environment.machines.subscribe()),
    );
    environment
        .controller::<Pod>("pods")
        .wakes(rescripted.flat_map(move |()| {
            // A script may affect any Pod that has not finished.
            let mut keys: Vec<ObjectKey> = scripted
                .list()
                .into_iter()
                .filter(|pod| pod.get().is_ok_and(|pod| !state::is_finished(&pod)))
                .map(|pod| pod.key().clone())
                .collect();
            keys.sort();
            stream::iter(keys)
        }))
        .watches::<Node>(move |node, _| on_node(&bound, node.key().name()))
        .workers(WORKERS)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), addresses.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

/// Returns the keys of the Pods that are bound to a node.
pub(crate) fn on_node(pods: &Lister<Pod>, name: &str) -> Vec<ObjectKey> {
    let is_here = |pod: &Object<Pod>| pod.get().is_ok_and(|pod| state::node_name(&pod) == name);
    let pods = pods.list().into_iter();
    let mut keys: Vec<ObjectKey> = pods.filter(is_here).map(|pod| pod.key().clone()).collect();
    keys.sort();
    keys
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    addresses: Arc<Mutex<Addresses>>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Pod>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let pod = cached.get()?;
    let node = state::node_name(&pod);
    if node.is_empty() {
        if cached.is_being_deleted()
            && let Some(status) = plan::never_ran(&pod)
        {
            let mut pod = (*pod).clone();
            pod.status = Some(status);
            api::replace_status(&cx, &pod).await?;
        }
        return Ok(Action::await_change());
    }
    let found = cx.lister::<Node>()?.get(&ObjectKey::cluster(node));
    let node = found.map(|node| node.get()).transpose()?;
    let host = node.as_deref().and_then(nodes::plan::address_of);
    let (Some(node), Some(host)) = (node, host) else {
        // The node is unknown or not simulated, so its own kubelet is responsible. A deleted Pod is
        // removed anyway; otherwise it would remain forever.
        if cached.is_being_deleted() {
            remove(&cx, &key, cached.uid()).await?;
        }
        return Ok(Action::await_change());
    };
    if environment.machines.is_lost(&node) {
        // The change that recovers the machine enqueues the Pod again.
        return Ok(Action::await_change());
    }
    let now = environment.clock.now();
    if admission::is_unchecked(&pod) {
        let left = admission::seen_in(&pod, now);
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        let mut others = Vec::new();
        for key in on_node(&cx.lister::<Pod>()?, state::node_name(&pod)) {
            let other = cx.lister::<Pod>()?.get(&key).map(|other| other.get());
            others.extend(other.transpose()?);
        }
        let has_started = |it: &&Arc<Pod>| {
            let status = it.status.as_ref();
            state::is_active(it) && status.is_some_and(|status| status.start_time.is_some())
        };
        let started = others.iter().filter(has_started).map(|other| &**other);
        if let Some(rejection) = admission::rejection(&pod, &node, started) {
            let mut rejected = (*pod).clone();
            rejected.status = Some(admission::rejected(
                &pod,
                &rejection,
                environment.clock.now(),
            ));
            if api::replace_status(&cx, &rejected).await? {
                let (reason, message) = (rejection.reason, rejection.message);
                recorder.event(&*pod, EventType::Warning, reason, message);
            }
            return Ok(Action::await_change());
        }
    }
    let address = || addresses.lock().get_or_allocate(cached.uid());
    let behavior = environment.scripts.behavior(&pod);
    let host = Host {
        address: host,
        is_ready: nodes::lifecycle::is_ready(&node),
    };
    let mut wait = None;
    if let Some(since) = environment.machines.evicting_since(&node, now) {
        let left = plan::remaining(since, plan::EVICTION_PERIOD, now);
        if left.is_zero() && is_evicted_next(&cx, &pod, state::node_name(&pod))? {
            environment.machines.evicted(&node, now);
            let mut evicted = (*pod).clone();
            let status = plan::evicted(&pod, host.address, now);
            let why = status.message.clone().unwrap_or_default();
            evicted.status = Some(status);
            if api::replace_status(&cx, &evicted).await? {
                recorder.event(&*pod, EventType::Warning, "Evicted", why);
            }
            return Ok(Action::await_change());
        }
        wait = (!state::is_finished(&pod)).then(|| left.max(Duration::from_secs(1)));
    }
    let after = match plan::step(&pod, host, address, &behavior, environment.pace, now) {
        Step::None => None,
        Step::Wait(wait) => Some(wait),
        Step::Report {
            status,
            requeue_after,
        } => {
            let exceeded = status.reason.as_deref() == Some(plan::DEADLINE_EXCEEDED)
                && !state::is_finished(&pod);
            let why = status.message.clone().filter(|_| exceeded);
            let mut reported = (*pod).clone();
            reported.status = Some(*status);
            let written = api::replace_status(&cx, &reported).await?;
            if let Some(why) = why.filter(|_| written) {
                recorder.event(&*pod, EventType::Normal, plan::DEADLINE_EXCEEDED, why);
            }
            requeue_after
        }
        Step::Remove => {
            remove(&cx, &key, cached.uid()).await?;
            return Ok(Action::await_change());
        }
    };
    let after = [after, wait].into_iter().flatten().min();
    Ok(after.map_or_else(Action::await_change, Action::requeue_after))
}

/// Returns whether a Pod is the next one that its node evicts.
fn is_evicted_next(cx: &Context, pod: &Pod, node: &str) -> Result<bool, ReconcileError> {
    let lister = cx.lister::<Pod>()?;
    let mut pods = Vec::new();
    for key in on_node(&lister, node) {
        if let Some(pod) = lister.get(&key) {
            pods.push(pod.get()?);
        }
    }
    let next = plan::next_evicted(pods.iter().map(|pod| &**pod));
    Ok(next == pod.metadata.uid.as_deref())
}

/// Deletes the Pod with this UID without a grace period.
async fn remove(cx: &Context, key: &ObjectKey, uid: &str) -> Result<(), kube::Error> {
    let pods =
        kube::Api::<Pod>::namespaced(cx.client().clone(), key.namespace().unwrap_or_default());
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    unless_stale(pods.delete(key.name(), &params).await)?;
    Ok(())
}
