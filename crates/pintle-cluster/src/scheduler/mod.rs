//! Schedules Pods to nodes, as kube-scheduler does with its default profile.
//!
//! One task takes the pending Pods by priority, decides on a node for each ([`plan`]), and writes
//! the binding, or the condition with the reason why it fits nowhere. Decisions are made one after
//! the other, each with the earlier ones taken into account; writes overlap.
//!
//! ```text
//! events of Pods, nodes, namespaces, claims ──► state (world, queue) ──► plan ──► writes ──► outcome ──► state
//! ```
//!
//! An unschedulable Pod is retried when a change may help it, and written to only if the outcome
//! differs. Differences from kube-scheduler: of equally good nodes, the one with the fewest Pods is
//! chosen and then the first by name, not a random one; all nodes are compared, however many there
//! are; volume topology, image locality, resource claims and Pod groups are ignored.

mod affinity;
mod claims;
mod filter;
mod plan;
mod pod;
pub(crate) mod ports;
mod preempt;
mod queue;
mod score;
mod spread;
mod state;
#[cfg(test)]
mod testing;
mod world;
mod write;

use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use parking_lot::Mutex;
use pintle::{
    cache::{Kind, Lister, Object},
    informer::Event,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{state::State, write::Writer};
use crate::{
    loops::{Environment, LoopError},
    pods::state::SCHEDULER,
};

/// The number of Pods that are written to concurrently.
const WRITERS: usize = 10;

/// Runs the scheduler until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let state = Arc::new(Mutex::new(State::new(environment.binds_claims)));
    let changed = Arc::new(Notify::new());
    let nodes = observe::<Node>(&environment, &state, &changed, |state, event| match event {
        Observed::Present(node) => {
            if let Ok(node) = node.get() {
                state.observe_node(node);
            }
        }
        Observed::Gone(node) => state.forget_node(node.key().name()),
    });
    let pods = observe::<Pod>(&environment, &state, &changed, |state, event| match event {
        Observed::Present(pod) => {
            if let Ok(pod) = pod.get() {
                state.observe_pod(pod);
            }
        }
        Observed::Gone(pod) => state.forget_pod(pod.uid()),
    });
    let namespaces = observe::<Namespace>(&environment, &state, &changed, |state, event| {
        let (Observed::Present(object) | Observed::Gone(object)) = event;
        let is_present = matches!(event, Observed::Present(_));
        let namespace = object.get().ok().filter(|_| is_present);
        state.observe_namespace(object.key().name(), namespace.as_deref());
    });
    let claims =
        observe::<PersistentVolumeClaim>(&environment, &state, &changed, |state, event| {
            let (Observed::Present(object) | Observed::Gone(object)) = event;
            let is_present = matches!(event, Observed::Present(_));
            state.observe_claim(object.key(), object.get().ok().filter(|_| is_present));
        });
    let classes = observe::<StorageClass>(&environment, &state, &changed, |state, event| {
        let (Observed::Present(object) | Observed::Gone(object)) = event;
        let is_present = matches!(event, Observed::Present(_));
        let class = object.get().ok().filter(|_| is_present);
        state.observe_class(object.key().name(), class);
    });
    let budgets = environment.informers.informer::<PodDisruptionBudget>();
    // A decision that misses nodes or Pods would be wrong.
    for registration in [&nodes, &pods, &namespaces, &claims, &classes] {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = registration.synced() => {}
        }
    }
    let writer = Writer {
        client: environment.client.clone(),
        clock: environment.clock.clone(),
        recorder: environment.events.recorder(SCHEDULER),
    };
    let budgets = budgets.lister();
    let mut writes = FuturesUnordered::new();
    loop {
        while writes.len() < WRITERS && state.lock().has_ready() {
            let budgets = sorted(&budgets);
            let Some(work) = state.lock().next(&budgets, Instant::now()) else {
                break;
            };
            let uid = work.pod().uid.clone();
            writes.push(writer.write(work).map(move |outcome| (uid, outcome)));
        }
        let due = state.lock().next_due();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some((uid, outcome)) = writes.next(), if !writes.is_empty() => {
                state.lock().finish(&uid, outcome, Instant::now());
            }
            () = changed.notified() => {}
        }
    }
    while writes.next().await.is_some() {}
    Ok(())
}

enum Observed<'a, K> {
    Present(&'a Object<K>),
    Gone(&'a Object<K>),
}

/// Passes the events of a kind to the state.
fn observe<K: Kind<DynamicType: Default>>(
    environment: &Environment,
    state: &Arc<Mutex<State>>,
    changed: &Arc<Notify>,
    apply: fn(&mut State, &Observed<'_, K>),
) -> pintle::informer::Registration {
    let (state, changed) = (state.clone(), changed.clone());
    environment
        .informers
        .informer::<K>()
        .on_event(move |event| {
            let observed = match &event {
                Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                    Observed::Present(object)
                }
                Event::Deleted(deleted) => Observed::Gone(&deleted.last),
            };
            apply(&mut state.lock(), &observed);
            changed.notify_one();
        })
}

fn sorted(budgets: &Lister<PodDisruptionBudget>) -> Vec<Arc<PodDisruptionBudget>> {
    let mut all = budgets.list();
    // The cache is unordered, and decisions must not depend on its order.
    all.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    all.iter().filter_map(|budget| budget.get().ok()).collect()
}
