//! Pods on simulated nodes: bound to one, started, and stopped when asked to.
//!
//! One loop plays scheduler and kubelet. It runs nothing; it only says what they would say.

pub(crate) mod plan;
pub(crate) mod state;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Client,
    api::{DeleteParams, Preconditions},
};
use parking_lot::Mutex;
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, Controller, ReconcileError},
    events::{EventRecorder, EventType},
    informer::Event,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{Addresses, Candidate, HostPort, Step};
use crate::{
    api::{self, unless_stale},
    manager::{Environment, LoopError},
    meta, nodes,
};

/// How many Pods are seen to at once: a scheduler, and all the kubelets there would be.
const WORKERS: usize = 10;

/// What the loop remembers between runs besides the cache: which address each Pod has, and which
/// node each was given. A Pod counts for its node from the moment it is bound, before the cache
/// shows it; otherwise all Pods of a moment would go to the same node.
#[derive(Default)]
struct Memory {
    state: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
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

impl Remembered {
    fn note(&mut self, uid: &str, pod: &Pod) {
        if let Some(address) = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_ref())
        {
            self.addresses.note(uid, address);
        }
        let node = state::node_name(pod);
        if state::is_finished(pod) {
            // It keeps its node's name and address, but no longer takes room.
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

    /// Chooses a node and books the Pod on it in one step, so that concurrent workers never give
    /// away the same host port.
    fn place(&mut self, pod: &Pod, nodes: &[Arc<Node>]) -> Option<String> {
        let wanted = plan::host_ports(pod);
        let candidates: Vec<Candidate<'_>> = nodes
            .iter()
            .map(|node| {
                let name = meta::name(&node.metadata);
                let mut here = self.places.values().filter(|place| place.node == name);
                let clashes = !wanted.is_empty()
                    && here.any(|place| place.ports.iter().any(|port| port.clashes(&wanted)));
                Candidate {
                    node,
                    pods: self.load.get(name).copied().unwrap_or_default(),
                    ports_free: !clashes,
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

/// Runs the loop until `stop`.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let memory = Arc::new(Memory::default());
    let pods = environment.informers.informer::<Pod>();
    let remembered = memory.clone();
    let _remembering = pods.on_event(move |event| {
        let mut state = remembered.state.lock();
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                if let Ok(pod) = object.get() {
                    state.note(object.uid(), &pod);
                }
            }
            Event::Deleted(deleted) => state.forget(deleted.last.uid()),
        }
    });
    let recorder = environment.events.recorder("default-scheduler");
    let (shared, unbound) = (environment.clone(), pods.lister());
    Controller::<Pod>::new("pods", &environment.informers)
        .watches::<Node>(move |_, _| {
            // A node that came, or changed, may fit a Pod that none fitted before.
            let waits = |pod: &Pod| state::node_name(pod).is_empty() && !state::is_gated(pod);
            let mut keys: Vec<ObjectKey> = unbound
                .list()
                .into_iter()
                .filter(|pod| pod.get().is_ok_and(|pod| waits(&pod)))
                .map(|pod| pod.key().clone())
                .collect();
            keys.sort();
            keys
        })
        .workers(WORKERS)
        .metrics(&environment.metrics)
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), memory.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    memory: Arc<Memory>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Pod>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let pod = cached.get()?;
    let node = state::node_name(&pod);
    if node.is_empty() {
        let over = cached.is_being_deleted() || state::is_finished(&pod);
        // The API server already set the SchedulingGated condition. Removing the last gate is an
        // update and wakes this key again.
        if !over && !state::is_gated(&pod) {
            return bind(&pod, &cx, &environment, &memory, &recorder).await;
        }
        return Ok(Action::await_change());
    }
    let host = cx.lister::<Node>()?.get(&ObjectKey::cluster(node));
    let host = host
        .and_then(|node| node.get().ok())
        .and_then(|node| nodes::plan::address_of(&node));
    let Some(host) = host else {
        // A node of somebody else's, or none at all: not ours to run. What was asked to go still
        // must, or it would never.
        if cached.is_being_deleted() {
            remove(&cx, &key, cached.uid()).await?;
        }
        return Ok(Action::await_change());
    };
    let address = || memory.state.lock().addresses.of(cached.uid());
    let now = environment.clock.now();
    match plan::step(&pod, host, address, environment.pace, now) {
        Step::Leave => Ok(Action::await_change()),
        Step::Wait(wait) => Ok(Action::requeue_after(wait)),
        Step::Report { status, again_in } => {
            let mut pod = (*pod).clone();
            pod.status = Some(*status);
            api::replace_status(&cx, &pod).await?;
            Ok(again_in.map_or_else(Action::await_change, Action::requeue_after))
        }
        Step::Remove => {
            remove(&cx, &key, cached.uid()).await?;
            Ok(Action::await_change())
        }
    }
}

/// How often a Pod that no node has room for looks again.
const SEEK_ROOM: Duration = Duration::from_secs(5);

/// Chooses a node for a Pod and binds it there, or says that none fits.
async fn bind(
    pod: &Pod,
    cx: &Context,
    environment: &Environment,
    memory: &Memory,
    recorder: &EventRecorder,
) -> Result<Action, ReconcileError> {
    let mut nodes = Vec::new();
    for node in cx.lister::<Node>()?.list() {
        nodes.push(node.get()?);
    }
    let placed = memory.state.lock().place(pod, &nodes);
    if let Some(node) = placed {
        let bound = bind_to(pod, &node, cx, recorder).await;
        if !matches!(bound, Ok(true)) {
            memory.state.lock().unbind(meta::uid(&pod.metadata));
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
    // Room also comes from Pods that go, which wakes nobody who waits.
    Ok(Action::requeue_after(SEEK_ROOM))
}

/// Binds a Pod. False if it has changed or gone meanwhile.
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

/// Deletes exactly this Pod, without grace: it has stopped.
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
