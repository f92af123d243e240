//! Decides which Pods of a DaemonSet to create and delete, and computes its status.
//!
//! First, every node gets the Pods it should have. Then a rolling update replaces Pods of older
//! templates, within its limits. Pure functions of the observed state and the time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus},
    core::v1::{Node, Pod},
};

use super::{
    backoff::{Backoff, Key},
    place::{self, Fit, Placement},
};
use crate::{
    deployment::size::{Round, resolve},
    meta,
    pods::state::{self, available_in, is_available, is_finished, is_ready, phase},
    revisions,
};

/// The maximum number of Pods created, and deleted, in one reconcile.
const BURST: usize = 250;

/// The state that the planner observes.
pub(super) struct Observed<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) nodes: &'a [Arc<Node>],
    /// The Pods that the set controls.
    pub(super) pods: &'a [Arc<Pod>],
    /// The hash of the revision of the current template.
    pub(super) hash: &'a str,
    pub(super) backoff: &'a Backoff,
    pub(super) now: Timestamp,
}

/// The steps to take.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The nodes that get a Pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// The deleted Pods that have failed or succeeded.
    pub(super) finished: Vec<Finished>,
    pub(super) status: DaemonSetStatus,
    pub(super) requeue_after: Option<Duration>,
}

/// A Pod that should be running but has failed or succeeded.
#[derive(Debug, PartialEq)]
pub(super) struct Finished {
    pub(super) pod: Arc<Pod>,
    pub(super) node: String,
    /// The key of its back-off, if it has failed.
    pub(super) backoff: Option<Key>,
}

/// Plans the next steps.
pub(super) fn plan(observed: &Observed<'_>) -> Plan {
    let state = State::new(observed);
    let mut plan = state.manage();
    if plan.create.is_empty() && plan.delete.is_empty() && is_rolling(observed.set) {
        state.roll(&mut plan);
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan.status = state.status();
    let waiting = state.by_node.values().flatten();
    let available = waiting
        .filter_map(|pod| available_in(pod, state.min_ready, observed.now))
        .filter(|wait| !wait.is_zero());
    plan.requeue_after = available.chain(plan.requeue_after).min();
    plan
}

/// The Pods of a set by node.
struct State<'a> {
    observed: &'a Observed<'a>,
    /// Whether each node runs a Pod, by name.
    fits: BTreeMap<&'a str, Fit>,
    /// By the node they are bound to or meant for.
    by_node: BTreeMap<&'a str, Vec<&'a Arc<Pod>>>,
    min_ready: Duration,
}

impl<'a> State<'a> {
    fn new(observed: &'a Observed<'a>) -> Self {
        let placement = Placement::of(observed.set);
        let nodes = observed.nodes.iter();
        let fits = nodes.map(|node| (meta::name(&node.metadata), placement.on(node)));
        let mut by_node = BTreeMap::<_, Vec<_>>::new();
        for pod in observed.pods {
            // A finished Pod that is being deleted only waits for its finalizers.
            if is_finished(pod) && meta::is_being_deleted(&pod.metadata) {
                continue;
            }
            if let Some(node) = place::target(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by(|a, b| seniority(a).cmp(&seniority(b)));
        }
        let spec = observed.set.spec.as_ref();
        let min_ready = spec.and_then(|spec| spec.min_ready_seconds);
        let min_ready = u64::try_from(min_ready.unwrap_or_default()).unwrap_or_default();
        Self {
            observed,
            fits: fits.collect(),
            by_node,
            min_ready: Duration::from_secs(min_ready),
        }
    }

    /// Ensures that every node has the Pods it should have.
    fn manage(&self) -> Plan {
        let mut plan = Plan::default();
        for (node, fit) in &self.fits {
            match self.by_node.get(node) {
                None if fit.runs => plan.create.push((*node).to_owned()),
                None => {}
                Some(pods) if fit.stays => self.manage_node(node, *fit, pods, &mut plan),
                Some(pods) => plan.delete.extend(remaining(pods).cloned()),
            }
        }
        // The scheduler never binds Pods meant for a node that is gone.
        for (node, pods) in &self.by_node {
            if !self.fits.contains_key(node) {
                let unbound = pods.iter().filter(|it| state::node_name(it).is_empty());
                let unbound = unbound.filter(|it| !meta::is_being_deleted(&it.metadata));
                plan.delete.extend(unbound.map(|it| Arc::clone(it)));
            }
        }
        plan
    }

    /// Deletes finished and surplus Pods of a node. A replacement is created once the old Pod is
    /// gone or, if the set may surge, immediately.
    fn manage_node(&self, node: &str, fit: Fit, pods: &[&Arc<Pod>], plan: &mut Plan) {
        let Observed { set, now, .. } = *self.observed;
        let mut running = Vec::new();
        for pod in remaining(pods) {
            let backoff = match phase(pod) {
                "Failed" => {
                    let key = backoff_key(set, node);
                    let wait = self.observed.backoff.remaining(&key, now);
                    if !wait.is_zero() {
                        plan.requeue_after = plan.requeue_after.into_iter().chain([wait]).min();
                        continue;
                    }
                    let mut planned = plan.finished.iter();
                    if planned.any(|it| it.backoff.as_ref() == Some(&key)) {
                        // The remaining failed Pods of this node wait as well.
                        continue;
                    }
                    Some(key)
                }
                "Succeeded" => None,
                _ => {
                    running.push(pod);
                    continue;
                }
            };
            plan.delete.push(Arc::clone(pod));
            plan.finished.push(Finished {
                pod: Arc::clone(pod),
                node: node.to_owned(),
                backoff,
            });
        }
        if !may_surge(set) {
            // Retain the oldest Pod.
            plan.delete.extend(running.into_iter().skip(1).cloned());
            return;
        }
        if running.is_empty() && fit.runs {
            plan.create.push(node.to_owned());
        }
        if running.len() > 1 {
            self.manage_surge(&running, plan);
        }
    }

    /// Lets an old Pod run next to a new one while the old one is ready and the new one is not
    /// available yet.
    fn manage_surge(&self, running: &[&Arc<Pod>], plan: &mut Plan) {
        let is_new = |pod: &Pod| place::has_hash(pod, self.observed.hash);
        let (new, old): (Vec<_>, Vec<_>) = running.iter().copied().partition(|pod| is_new(pod));
        let surplus = new.iter().skip(1).chain(old.iter().skip(1));
        plan.delete.extend(surplus.copied().cloned());
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!is_ready(old) || self.is_available(new))
        {
            plan.delete.push(Arc::clone(old));
        }
    }

    /// Replaces Pods of older templates.
    fn roll(&self, plan: &mut Plan) {
        let desired = self.fits.values().filter(|fit| fit.runs).count();
        let limits = limits(self.observed.set, desired);
        if limits.surge == 0 {
            self.replace(limits.unavailable, plan);
        } else {
            self.surge(limits.surge, desired, plan);
        }
    }

    /// Deletes old Pods, so that at most `limit` nodes have no available Pod. [`State::manage`]
    /// creates new ones when they are gone.
    fn replace(&self, limit: usize, plan: &mut Plan) {
        let mut unavailable = 0;
        let mut candidates = Vec::new();
        let without_pods = self
            .fits
            .iter()
            .filter(|(node, fit)| fit.runs && !self.by_node.contains_key(*node));
        unavailable += without_pods.count();
        for pods in self.by_node.values() {
            match self.pair(pods) {
                Pair::New(pod) if self.is_available(pod) => {}
                // The next reconcile handles everything except an unavailable new Pod.
                Pair::New(_) | Pair::Surplus | Pair::None | Pair::Both(..) => unavailable += 1,
                Pair::Old(pod) if self.is_available(pod) => candidates.push(pod),
                Pair::Old(pod) => {
                    plan.delete.push(Arc::clone(pod));
                    unavailable += 1;
                }
            }
        }
        let allowed = limit.saturating_sub(unavailable);
        plan.delete
            .extend(candidates.into_iter().take(allowed).cloned());
    }

    /// Creates up to `limit` new Pods next to available old ones, and deletes an old Pod once the
    /// new one on its node is available.
    fn surge(&self, limit: usize, desired: usize, plan: &mut Plan) {
        let (mut surging, mut available) = (0, 0);
        let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
        for (node, pods) in &self.by_node {
            let pair = self.pair(pods);
            if let Pair::Old(pod) | Pair::Both(_, pod) | Pair::New(pod) = &pair
                && self.is_available(pod)
            {
                available += 1;
            }
            let runs = self.fits.get(node).is_some_and(|fit| fit.runs);
            match pair {
                Pair::None | Pair::New(_) => {}
                Pair::Old(old) => match (self.is_available(old), runs) {
                    (true, true) => candidates.push((*node).to_owned()),
                    (true, false) => misplaced.push(old),
                    (false, true) => plan.create.push((*node).to_owned()),
                    (false, false) => plan.delete.push(Arc::clone(old)),
                },
                Pair::Both(new, old) if self.is_available(new) => {
                    plan.delete.push(Arc::clone(old));
                }
                Pair::Both(..) | Pair::Surplus => surging += 1,
            }
        }
        // If the set moves to other nodes, its old Pods stay until enough new ones are available.
        let spare = usize::saturating_sub(available, desired);
        plan.delete
            .extend(misplaced.into_iter().take(spare).cloned());
        let allowed = usize::saturating_sub(limit, surging);
        plan.create.extend(candidates.into_iter().take(allowed));
    }

    /// Finds the new and the old Pod of a node.
    fn pair<'p>(&self, pods: &'p [&'a Arc<Pod>]) -> Pair<'p> {
        let Observed { set, hash, .. } = *self.observed;
        let (new, old): (Vec<_>, Vec<_>) =
            remaining(pods).partition(|pod| place::is_updated(set, pod, hash));
        match (&new[..], &old[..]) {
            ([], []) => Pair::None,
            ([new], []) => Pair::New(new),
            ([], [old]) => Pair::Old(old),
            ([new], [old]) => Pair::Both(new, old),
            _ => Pair::Surplus,
        }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.min_ready, self.observed.now)
    }

    /// Counts nodes, each by its most senior Pod.
    fn status(&self) -> DaemonSetStatus {
        let Observed { set, hash, .. } = *self.observed;
        let before = set.status.as_ref();
        let (runs, other): (Vec<_>, Vec<_>) = self.fits.iter().partition(|(_, fit)| fit.runs);
        let senior = |node: &str| self.by_node.get(node)?.first().copied();
        let pods: Vec<&Arc<Pod>> = runs.iter().filter_map(|(node, _)| senior(node)).collect();
        let count = |counts: &dyn Fn(&Pod) -> bool| pods.iter().filter(|pod| counts(pod)).count();
        let available = count(&|pod| self.is_available(pod));
        let misplaced = other.iter().filter(|(node, _)| senior(node).is_some());
        DaemonSetStatus {
            desired_number_scheduled: meta::clamp(runs.len()),
            current_number_scheduled: meta::clamp(pods.len()),
            number_misscheduled: meta::clamp(misplaced.count()),
            number_ready: meta::clamp(count(&is_ready)),
            number_available: meta::count(available),
            number_unavailable: meta::count(runs.len() - available),
            updated_number_scheduled: meta::count(count(&|pod| place::is_updated(set, pod, hash))),
            observed_generation: set.metadata.generation,
            collision_count: before.and_then(|it| it.collision_count),
            conditions: before.and_then(|it| it.conditions.clone()),
        }
    }
}

/// The Pods of a node that are not being deleted.
enum Pair<'a> {
    None,
    New(&'a Arc<Pod>),
    Old(&'a Arc<Pod>),
    /// The new and the old one.
    Both(&'a Arc<Pod>, &'a Arc<Pod>),
    /// Two or more Pods of the same template.
    Surplus,
}

fn remaining<'p>(pods: &'p [&'p Arc<Pod>]) -> impl Iterator<Item = &'p Arc<Pod>> {
    let pods = pods.iter().copied();
    pods.filter(|pod| !meta::is_being_deleted(&pod.metadata))
}

/// Orders the Pods of a node: bound ones first, then the oldest.
fn seniority(pod: &Pod) -> impl Ord {
    let is_unbound = state::node_name(pod).is_empty();
    let created = pod.metadata.creation_timestamp.clone();
    (is_unbound, created, meta::name(&pod.metadata).to_owned())
}

fn backoff_key(set: &DaemonSet, node: &str) -> Key {
    let observed = set.status.as_ref().and_then(|it| it.observed_generation);
    let uid = meta::uid(&set.metadata).to_owned();
    (uid, observed.unwrap_or_default(), node.to_owned())
}

fn strategy_type(set: &DaemonSet) -> &str {
    let spec = set.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    strategy
        .and_then(|strategy| strategy.type_.as_deref())
        .unwrap_or("RollingUpdate")
}

fn is_rolling(set: &DaemonSet) -> bool {
    strategy_type(set) == "RollingUpdate"
}

/// The limits of a rolling update.
struct Limits {
    /// How many nodes may run two Pods.
    surge: usize,
    /// How many nodes may be without an available Pod.
    unavailable: usize,
}

/// Computes the limits, rounding percentages of the number of nodes up.
fn limits(set: &DaemonSet, nodes: usize) -> Limits {
    let spec = set.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let resolve = |value| {
        let resolved = resolve(Some(value), meta::clamp(nodes), Round::Up);
        usize::try_from(resolved).unwrap_or_default()
    };
    let surge = rolling.and_then(|it| it.max_surge.as_ref());
    let unavailable = rolling.and_then(|it| it.max_unavailable.as_ref());
    let surge = surge.map_or(0, resolve);
    let unavailable = unavailable.map_or(0, resolve);
    // The server rejects zero for both: nothing could ever be replaced.
    let unavailable = if surge == 0 {
        unavailable.max(1)
    } else {
        unavailable
    };
    Limits { surge, unavailable }
}

fn may_surge(set: &DaemonSet) -> bool {
    is_rolling(set) && limits(set, 1).surge > 0
}

/// Returns the old revisions to delete: the oldest ones without Pods, until only as many remain as
/// the history limit allows. `current` is the hash of the current revision.
pub(super) fn surplus(
    set: &DaemonSet,
    history: &[Arc<ControllerRevision>],
    pods: &[Arc<Pod>],
    current: &str,
) -> Vec<Arc<ControllerRevision>> {
    let limit = set.spec.as_ref().and_then(|it| it.revision_history_limit);
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or_default();
    let old: Vec<_> = history.iter().filter(|it| hash(it) != current).collect();
    let is_live = |it: &ControllerRevision| pods.iter().any(|pod| place::has_hash(pod, hash(it)));
    let excess = old.len().saturating_sub(limit);
    let unused = old.into_iter().filter(|it| !is_live(it));
    unused.take(excess).cloned().collect()
}

/// Returns the hash of a revision, with which its Pods are labelled.
pub(super) fn hash(revision: &ControllerRevision) -> &str {
    let label = meta::labels(&revision.metadata).get(revisions::HASH);
    label.map_or_else(|| meta::name(&revision.metadata), String::as_str)
}

#[cfg(test)]
mod tests;
