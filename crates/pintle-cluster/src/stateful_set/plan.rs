//! Decides which Pods and claims of a StatefulSet to create, correct or delete, and computes its
//! status.
//!
//! Pure functions of the observed state and the time. With ordered management, an unavailable Pod
//! blocks every step after it; with parallel management it blocks none. Updates go one Pod at a
//! time in both cases.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::{claims, identity};
use crate::{
    meta,
    pods::state::{available_in, is_available, is_finished, is_ready, phase},
    revisions,
};

/// The input of a plan.
pub(super) struct Observed<'a> {
    pub(super) set: &'a StatefulSet,
    /// The members of the set.
    pub(super) pods: &'a [Arc<Pod>],
    /// The existing claims of the set's namespace that carry the name of one of its claims, by
    /// name.
    pub(super) claims: &'a BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// The revision that Pods below the partition are created from.
    pub(super) current: &'a ControllerRevision,
    /// The revision of the set's template.
    pub(super) update: &'a ControllerRevision,
    pub(super) now: Timestamp,
}

/// A write, or a wait for a claim, with the Pod that its event names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create a Pod, after the claims it lacks.
    Create {
        pod: Box<Pod>,
        claims: Vec<PersistentVolumeClaim>,
    },
    /// Create the missing claims of a pending Pod.
    CreateClaims {
        pod: Arc<Pod>,
        claims: Vec<PersistentVolumeClaim>,
    },
    /// Fail until the claim is gone.
    AwaitClaim {
        claim: String,
        /// The name of the Pod that waits for the claim, if the Pod does not exist yet.
        pod: Option<String>,
    },
    /// Replace the owners of a claim.
    SetOwners {
        pod: Arc<Pod>,
        claim: Arc<PersistentVolumeClaim>,
        owners: Vec<OwnerReference>,
        /// Whether another controller owns the claim, so that the policy is ignored.
        has_conflict: bool,
    },
    /// Restore the labels of a Pod.
    Correct(Box<Pod>),
    Delete(Arc<Pod>),
}

/// The writes of a reconcile, and the status to report.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The steps in order. A failure skips the remaining ones; with parallel management, its batch
    /// is finished first.
    pub(super) steps: Vec<Step>,
    pub(super) status: StatefulSetStatus,
    pub(super) requeue_after: Option<Duration>,
}

pub(super) fn is_parallel(set: &StatefulSet) -> bool {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel")
}

pub(super) fn min_ready(set: &StatefulSet) -> Duration {
    let seconds = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
    Duration::from_secs(u64::try_from(seconds.unwrap_or_default()).unwrap_or_default())
}

/// Plans one reconcile.
pub(super) fn plan(observed: &Observed<'_>) -> Plan {
    let mut planner = Planner::new(observed);
    let mut status = status(observed);
    if !meta::is_being_deleted(&observed.set.metadata)
        && planner.replicas()
        && planner.condemned()
        && let Some(outdated) = planner.next_update()
    {
        if identity::revision(&outdated) == meta::name(&observed.current.metadata) {
            let replicas = status.current_replicas.unwrap_or_default() - 1;
            status.current_replicas = Some(replicas).filter(|it| *it > 0);
        }
        planner.steps.push(Step::Delete(outdated));
    }
    complete_update(observed.set, &mut status);
    let min_ready = min_ready(observed.set);
    let waiting = observed.pods.iter();
    let requeue_after = waiting
        .filter_map(|pod| available_in(pod, min_ready, observed.now))
        .filter(|wait| !wait.is_zero())
        .min();
    Plan {
        steps: planner.steps,
        status,
        requeue_after,
    }
}

struct Planner<'a> {
    observed: &'a Observed<'a>,
    is_ordered: bool,
    min_ready: Duration,
    steps: Vec<Step>,
}

impl<'a> Planner<'a> {
    fn new(observed: &'a Observed<'a>) -> Self {
        Self {
            observed,
            is_ordered: !is_parallel(observed.set),
            min_ready: min_ready(observed.set),
            steps: Vec::new(),
        }
    }

    fn set(&self) -> &'a StatefulSet {
        self.observed.set
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.min_ready, self.observed.now)
    }

    fn is_healthy(&self, pod: &Pod) -> bool {
        self.is_available(pod) && !meta::is_being_deleted(&pod.metadata)
    }

    /// Returns the replicas that exist, by ordinal.
    fn existing(&self) -> BTreeMap<i32, &'a Arc<Pod>> {
        let ordinals = identity::ordinals(self.set());
        self.members()
            .filter(|(ordinal, _)| ordinals.contains(ordinal))
            .collect()
    }

    /// Returns the Pods whose ordinals are out of range, highest first.
    fn surplus(&self) -> Vec<&'a Arc<Pod>> {
        let ordinals = identity::ordinals(self.set());
        let all: BTreeMap<i32, &Arc<Pod>> = self
            .members()
            .filter(|(ordinal, _)| !ordinals.contains(ordinal))
            .collect();
        all.into_values().rev().collect()
    }

    fn members(&self) -> impl Iterator<Item = (i32, &'a Arc<Pod>)> {
        let set = self.set();
        self.observed
            .pods
            .iter()
            .filter_map(move |pod| Some((identity::ordinal(set, &pod.metadata)?, pod)))
    }

    /// Plans the writes for the replicas. Returns false if one of them blocks the rest.
    fn replicas(&mut self) -> bool {
        let existing = self.existing();
        for ordinal in identity::ordinals(self.set()) {
            let goes_on = match existing.get(&ordinal) {
                Some(pod) => self.replica(pod, ordinal),
                None => self.create(ordinal),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Plans the writes for an existing replica. Returns false if it blocks those after it.
    fn replica(&mut self, pod: &Arc<Pod>, ordinal: i32) -> bool {
        if is_finished(pod) {
            // Its replacement is created once it is gone.
            if !meta::is_being_deleted(&pod.metadata) {
                self.steps.push(Step::Delete(pod.clone()));
            }
            return !self.is_ordered;
        }
        if phase(pod) == "Pending" {
            match self.missing_claims(ordinal) {
                Err(claim) => {
                    self.steps.push(Step::AwaitClaim { claim, pod: None });
                    return !self.is_ordered;
                }
                Ok(claims) if !claims.is_empty() => self.steps.push(Step::CreateClaims {
                    pod: pod.clone(),
                    claims,
                }),
                Ok(_) => {}
            }
            self.correct_claims(pod, ordinal);
        }
        let is_running = phase(pod) == "Running" && is_ready(pod);
        if self.is_ordered && !(is_running && self.is_healthy(pod)) {
            return false;
        }
        if phase(pod) != "Pending" {
            self.correct_claims(pod, ordinal);
        }
        if let Some(corrected) = identity::corrected(pod, ordinal) {
            self.steps.push(Step::Correct(Box::new(corrected)));
        }
        true
    }

    /// Plans the creation of a replica. Returns false if it blocks those after it.
    fn create(&mut self, ordinal: i32) -> bool {
        let pod = self.new_pod(ordinal);
        let mut stale = self.claims_of(ordinal);
        if stale.any(|claim| claims::is_stale(self.set(), &pod, &claim)) {
            // The claim is deleted along with the earlier Pod, and its deletion enqueues the set.
            return !self.is_ordered;
        }
        drop(stale);
        match self.missing_claims(ordinal) {
            Err(claim) => {
                let pod = pod.metadata.name;
                self.steps.push(Step::AwaitClaim { claim, pod });
            }
            Ok(claims) => {
                self.steps.push(Step::Create {
                    pod: Box::new(pod.clone()),
                    claims,
                });
                // Existing claims may still have the owners of another policy.
                self.correct_claims(&Arc::new(pod), ordinal);
            }
        }
        !self.is_ordered
    }

    /// Builds the Pod of an ordinal, from the current revision if it is below the partition.
    fn new_pod(&self, ordinal: i32) -> Pod {
        let set = self.set();
        let status = set.status.as_ref();
        let start = identity::ordinals(set).start;
        let from_current = match rolling_update(set) {
            Some(Some(partition)) => ordinal < start.saturating_add(partition),
            Some(None) => {
                let current = status.and_then(|status| status.current_replicas);
                ordinal < start.saturating_add(current.unwrap_or_default())
            }
            None => false,
        };
        let revision = if from_current {
            self.observed.current
        } else {
            self.observed.update
        };
        let template =
            revisions::template_of(revision).unwrap_or_else(|| identity::spec(set).template);
        identity::pod(set, template, meta::name(&revision.metadata), ordinal)
    }

    fn claims_of(&self, ordinal: i32) -> impl Iterator<Item = Arc<PersistentVolumeClaim>> {
        identity::claims(self.set(), ordinal)
            .into_iter()
            .filter_map(|claim| {
                self.observed
                    .claims
                    .get(meta::name(&claim.metadata))
                    .cloned()
            })
    }

    /// Returns the claims that an ordinal lacks, with their owners, or the name of a claim that is
    /// being deleted.
    fn missing_claims(&self, ordinal: i32) -> Result<Vec<PersistentVolumeClaim>, String> {
        let mut missing = Vec::new();
        for mut claim in identity::claims(self.set(), ordinal) {
            let name = meta::name(&claim.metadata).to_owned();
            match self.observed.claims.get(&name) {
                Some(known) if meta::is_being_deleted(&known.metadata) => return Err(name),
                Some(_) => {}
                None => {
                    let pod = self.new_pod(ordinal);
                    let owners = claims::desired_owners(self.set(), &pod, &claim);
                    claim.metadata.owner_references = owners;
                    missing.push(claim);
                }
            }
        }
        Ok(missing)
    }

    /// Plans the changes to the owners of a Pod's claims.
    fn correct_claims(&mut self, pod: &Arc<Pod>, ordinal: i32) {
        let existing: Vec<_> = self.claims_of(ordinal).collect();
        for claim in existing {
            if let Some(owners) = claims::desired_owners(self.set(), pod, &claim) {
                self.steps.push(Step::SetOwners {
                    pod: pod.clone(),
                    has_conflict: claims::has_foreign_controller(self.set(), pod, &claim),
                    claim,
                    owners,
                });
            }
        }
    }

    /// Plans the deletion of surplus Pods. Returns false if updates have to wait.
    fn condemned(&mut self) -> bool {
        let surplus = self.surplus();
        for pod in &surplus {
            if let Some(ordinal) = identity::ordinal(self.set(), &pod.metadata) {
                self.correct_claims(pod, ordinal);
            }
        }
        let existing = self.existing();
        let by_ordinal = existing.values().chain(surplus.iter().rev());
        let first_unhealthy = by_ordinal
            .filter(|pod| !self.is_healthy(pod))
            .map(|pod| meta::uid(&pod.metadata))
            .next();
        for pod in surplus {
            if meta::is_being_deleted(&pod.metadata) {
                if self.is_ordered {
                    return false;
                }
                continue;
            }
            let may_go =
                self.is_available(pod) || first_unhealthy == Some(meta::uid(&pod.metadata));
            if self.is_ordered && !may_go {
                return false;
            }
            self.steps.push(Step::Delete(pod.clone()));
            if self.is_ordered {
                return false;
            }
        }
        true
    }

    /// Returns the Pod to replace next: the highest outdated one, if all Pods above it are
    /// available.
    fn next_update(&self) -> Option<Arc<Pod>> {
        let partition = rolling_update(self.set())?.unwrap_or_default();
        let ordinals = identity::ordinals(self.set());
        let existing = self.existing();
        for ordinal in (ordinals.start.saturating_add(partition)..ordinals.end).rev() {
            let pod = existing.get(&ordinal)?;
            let is_outdated = identity::revision(pod) != meta::name(&self.observed.update.metadata);
            let is_deleted = self.steps.iter().any(|step| {
                matches!(step, Step::Delete(other) if other.metadata.uid == pod.metadata.uid)
            });
            if is_outdated && !meta::is_being_deleted(&pod.metadata) && !is_deleted {
                return Some((*pod).clone());
            }
            if !self.is_healthy(pod) {
                return None;
            }
        }
        None
    }
}

/// Returns the partition of a rolling update, or `None` for `OnDelete`.
#[allow(
    clippy::option_option,
    reason = "a strategy without parameters differs from none"
)]
fn rolling_update(set: &StatefulSet) -> Option<Option<i32>> {
    let strategy = set
        .spec
        .as_ref()
        .and_then(|spec| spec.update_strategy.as_ref());
    let type_ = strategy.and_then(|it| it.type_.as_deref());
    if type_ == Some("OnDelete") {
        return None;
    }
    Some(strategy.and_then(|it| it.rolling_update.as_ref()?.partition))
}

/// Computes the status from the Pods that exist before the writes.
fn status(observed: &Observed<'_>) -> StatefulSetStatus {
    let set = observed.set;
    let min_ready = min_ready(set);
    let count = |counts: &dyn Fn(&Pod) -> bool| {
        let pods = observed.pods.iter();
        pods.filter(|pod| counts(pod)).count()
    };
    let is_running = |pod: &Pod| phase(pod) == "Running" && is_ready(pod);
    let is_at = |revision: &ControllerRevision| {
        let name = meta::name(&revision.metadata).to_owned();
        move |pod: &Pod| !meta::is_being_deleted(&pod.metadata) && identity::revision(pod) == name
    };
    let before = set.status.as_ref();
    StatefulSetStatus {
        available_replicas: Some(meta::clamp(count(&|pod| {
            is_running(pod) && is_available(pod, min_ready, observed.now)
        }))),
        collision_count: Some(
            before
                .and_then(|status| status.collision_count)
                .unwrap_or_default(),
        ),
        conditions: before.and_then(|status| status.conditions.clone()),
        current_replicas: meta::count(count(&is_at(observed.current))),
        current_revision: observed.current.metadata.name.clone(),
        observed_generation: set.metadata.generation,
        ready_replicas: meta::count(count(&is_running)),
        replicas: meta::clamp(observed.pods.len()),
        update_revision: observed.update.metadata.name.clone(),
        updated_replicas: meta::count(count(&is_at(observed.update))),
    }
}

/// Makes the update revision the current one once all replicas run it and are ready.
fn complete_update(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let replicas = identity::ordinals(set).len();
    let all = |count: Option<i32>| usize::try_from(count.unwrap_or_default()) == Ok(replicas);
    if rolling_update(set).is_some()
        && all(status.updated_replicas)
        && all(status.ready_replicas)
        && all(Some(status.replicas))
    {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
}

#[cfg(test)]
mod tests;
