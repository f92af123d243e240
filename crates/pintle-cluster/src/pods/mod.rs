//! Schedules Pods to simulated nodes, and starts and stops them.
//!
//! One loop acts as scheduler and kubelet. It runs no containers; it only writes the status that a
//! real scheduler and kubelet would write. What the containers of a Pod would do is its
//! [`Behavior`].

mod behavior;
pub(crate) mod fit;
pub(crate) mod plan;
pub(crate) mod script;
pub(crate) mod state;
mod status;

pub use self::{
    behavior::{Behavior, InvalidBehavior},
    script::Pods,
};

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Client,
    api::{DeleteParams, Preconditions},
};
use parking_lot::Mutex;
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
    informer::Event,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{Addresses, Candidate, HostPort, Step};
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    meta, nodes,
};

/// The number of Pods reconciled concurrently.
const WORKERS: usize = 10;

/// Addresses and nodes assigned to Pods.
///
/// A Pod counts towards the load of its node from the moment it is assigned, before the cache shows
/// the binding. Otherwise Pods created together would all be assigned to the same node.
#[derive(Default)]
struct Assignments {
    addresses: Addresses,
    /// By the UID of the Pod.
    places: BTreeMap<String, Place>,
    load: BTreeMap<String, usize>,
}

/// Where a Pod was placed, and the host ports it holds there.
struct Place {
    node: String,
    ports: Vec<HostPort>,
}

impl Assignments {
    /// Updates the assignments from an observed Pod.
    fn observe(&mut self, uid: &str, pod: &Pod) {
        if let Some(address) = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_ref())
        {
            self.addresses.insert(uid, address);
        }
        let node = state::node_name(pod);
        if state::is_finished(pod) {
            // A finished Pod keeps its node name and address but does not count towards the load.
            self.unbind(uid);
        } else if !node.is_empty() {
            self.bind(uid, node, pod);
        }
    }

    fn bind(&mut self, uid: &str, node: &str, pod: &Pod) {
        if self.places.get(uid).is_some_and(|known| known.node == node) {
            return;
        }
        self.unbind(uid);
        let place = Place {
            node: node.into(),
            ports: plan::host_ports(pod),
        };
        self.places.insert(uid.into(), place);
        *self.load.entry(node.into()).or_default() += 1;
    }

    fn unbind(&mut self, uid: &str) {
        if let Some(place) = self.places.remove(uid)
            && let Some(load) = self.load.get_mut(&place.node)
        {
            *load -= 1;
        }
    }

    /// Assigns a node in one step, so that concurrent workers never assign the same host port twice.
    fn assign(&mut self, pod: &Pod, nodes: &[Arc<Node>]) -> Option<String> {
        let ports = plan::host_ports(pod);
        let candidates: Vec<Candidate<'_>> = nodes
            .iter()
            .map(|node| {
                let name = meta::name(&node.metadata);
                let mut local = self.places.values().filter(|place| place.node == name);
                let conflicts = !ports.is_empty()
                    && local.any(|place| place.ports.iter().any(|port| port.conflicts(&ports)));
                Candidate {
                    node,
                    pods: self.load.get(name).copied().unwrap_or_default(),
                    ports_free: !conflicts,
                }
            })
            .collect();
        let node = plan::choose_node(pod, &candidates)?;
        let name = meta::name(&node.metadata).to_owned();
        self.bind(meta::uid(&pod.metadata), &name, pod);
        Some(name)
    }

    fn forget(&mut self, uid: &str) {
        self.addresses.free(uid);
        self.unbind(uid);
    }
}

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let assignments = Arc::new(Mutex::new(Assignments::default()));
    let pods = environment.informers.informer::<Pod>();
    let observed = assignments.clone();
    let _observing = pods.on_event(move |event| {
        let mut assignments = observed.lock();
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                if let Ok(pod) = object.get() {
                    assignments.observe(object.uid(), &pod);
                }
            }
            Event::Deleted(deleted) => assignments.forget(deleted.last.uid()),
        }
    });
    let recorder = environment.events.recorder(state::SCHEDULER);
    let (shared, unbound) = (environment.clone(), pods.lister());
    let (scripts, scripted) = (environment.scripts.subscribe(), pods.lister());
    let rescripted = stream::unfold(scripts, |mut scripts| async {
        scripts.changed().await.ok()?;
        Some(((), scripts))
    });
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
        .watches::<Node>(move |_, _| {
            // A new or changed node may fit Pods that did not fit anywhere before.
            let mut keys: Vec<ObjectKey> = unbound
                .list()
                .into_iter()
                .filter(|pod| pod.get().is_ok_and(|pod| state::awaits_scheduling(&pod)))
                .map(|pod| pod.key().clone())
                .collect();
            keys.sort();
            keys
        })
        .workers(WORKERS)
        .run_by_key(
            move |key, cx| {
                reconcile(
                    key,
                    cx,
                    shared.clone(),
                    assignments.clone(),
                    recorder.clone(),
                )
            },
            &stop,
        )
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    assignments: Arc<Mutex<Assignments>>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Pod>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let pod = cached.get()?;
    let node = state::node_name(&pod);
    if node.is_empty() {
        let is_done = cached.is_being_deleted() || state::is_finished(&pod);
        // The API server has already set the SchedulingGated condition. Removing the last gate or
        // binding by another scheduler is an update that enqueues this key again.
        if !is_done && state::awaits_scheduling(&pod) {
            return bind(&pod, &cx, &environment, &assignments, &recorder).await;
        }
        if cached.is_being_deleted()
            && let Some(status) = plan::never_ran(&pod)
        {
            let mut pod = (*pod).clone();
            pod.status = Some(status);
            api::replace_status(&cx, &pod).await?;
        }
        return Ok(Action::await_change());
    }
    let host = cx.lister::<Node>()?.get(&ObjectKey::cluster(node));
    let host = host
        .and_then(|node| node.get().ok())
        .and_then(|node| nodes::plan::address_of(&node));
    let Some(host) = host else {
        // The node is unknown or not simulated, so its own kubelet is responsible. A deleted Pod is
        // removed anyway; otherwise it would stay forever.
        if cached.is_being_deleted() {
            remove(&cx, &key, cached.uid()).await?;
        }
        return Ok(Action::await_change());
    };
    let address = || assignments.lock().addresses.get_or_allocate(cached.uid());
    let behavior = environment.scripts.behavior(&pod);
    let now = environment.clock.now();
    match plan::step(&pod, host, address, &behavior, environment.pace, now) {
        Step::None => Ok(Action::await_change()),
        Step::Wait(wait) => Ok(Action::requeue_after(wait)),
        Step::Report {
            status,
            requeue_after,
        } => {
            let mut pod = (*pod).clone();
            pod.status = Some(*status);
            api::replace_status(&cx, &pod).await?;
            Ok(requeue_after.map_or_else(Action::await_change, Action::requeue_after))
        }
        Step::Remove => {
            remove(&cx, &key, cached.uid()).await?;
            Ok(Action::await_change())
        }
    }
}

/// How often scheduling of an unschedulable Pod is retried.
const SCHEDULING_RETRY: Duration = Duration::from_secs(5);

/// Binds a Pod to a node, or reports that it is unschedulable.
async fn bind(
    pod: &Pod,
    cx: &Context,
    environment: &Environment,
    assignments: &Mutex<Assignments>,
    recorder: &EventRecorder,
) -> Result<Action, ReconcileError> {
    let mut nodes = Vec::new();
    for node in cx.lister::<Node>()?.list() {
        nodes.push(node.get()?);
    }
    let assigned = assignments.lock().assign(pod, &nodes);
    if let Some(node) = assigned {
        let bound = bind_to(pod, &node, cx, recorder).await;
        if !matches!(bound, Ok(true)) {
            assignments.lock().unbind(meta::uid(&pod.metadata));
        }
        bound?;
        return Ok(Action::await_change());
    }
    if let Some(status) = plan::unschedulable(pod, nodes.len(), environment.clock.now()) {
        let message = format!("0/{} nodes are available.", nodes.len());
        recorder.event(pod, EventType::Warning, "FailedScheduling", message);
        let mut pod = pod.clone();
        pod.status = Some(status);
        api::replace_status(cx, &pod).await?;
    }
    // Deleted Pods also free up room, but do not enqueue pending ones.
    Ok(Action::requeue_after(SCHEDULING_RETRY))
}

/// Binds a Pod. Returns false if it was changed or deleted concurrently.
async fn bind_to(
    pod: &Pod,
    node: &str,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<bool, kube::Error> {
    let key = ObjectKey::of(pod);
    let namespace = key.namespace().unwrap_or_default();
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": key.name(), "namespace": namespace, "uid": meta::uid(&pod.metadata) },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/binding", key.name());
    let bound = unless_stale(post(cx.client(), &path, &binding).await)?.is_some();
    if bound {
        let message = format!("Successfully assigned {key} to {node}");
        recorder.event(pod, EventType::Normal, "Scheduled", message);
    }
    Ok(bound)
}

async fn post(
    client: &Client,
    path: &str,
    body: &serde_json::Value,
) -> Result<serde_json::Value, kube::Error> {
    let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Deletes the Pod with this UID without a grace period, because it has stopped.
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
