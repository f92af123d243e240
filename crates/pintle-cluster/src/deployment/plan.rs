//! Plans the next step of a rollout as a pure function of the observed state and the time.
//!
//! A plan works on copies: it computes the desired state of all sets together and then compares it
//! with the observed state. Each set is written at most once, under the `resourceVersion` that the
//! plan is based on. If a set has changed since, the write conflicts and the next reconcile
//! plans again.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{revision, size, status};
use crate::meta;

/// A write to a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Create the set of a new template.
    Create(ReplicaSet),
    /// Change size or annotations; `from` is the previous size.
    Update { set: ReplicaSet, from: i32 },
    /// Delete a set beyond the history limit.
    Delete(Arc<ReplicaSet>),
}

/// The writes to perform, in this order, up to the first failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    /// The new revision annotation of the Deployment, if it differs.
    pub(crate) revision: Option<String>,
    /// The new status, if it differs.
    pub(crate) status: Option<DeploymentStatus>,
    /// When to reconcile again without an event.
    pub(crate) requeue_after: Option<Duration>,
}

/// The observed and the desired state of a ReplicaSet.
pub(super) struct Set {
    observed: Option<Arc<ReplicaSet>>,
    pub(super) desired: ReplicaSet,
    obsolete: bool,
}

impl Set {
    fn observed(set: &Arc<ReplicaSet>) -> Self {
        Self {
            observed: Some(set.clone()),
            desired: (**set).clone(),
            obsolete: false,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        size::replicas(&self.desired) > 0
    }

    fn write(self) -> Option<Write> {
        match self.observed {
            None => Some(Write::Create(self.desired)),
            Some(observed) if self.obsolete => Some(Write::Delete(observed)),
            Some(observed) if *observed == self.desired => None,
            Some(observed) => Some(Write::Update {
                set: self.desired,
                from: size::replicas(&observed),
            }),
        }
    }
}

/// The state a plan is computed on.
pub(super) struct Rollout<'a> {
    pub(super) deployment: &'a Deployment,
    /// The set with the current template.
    pub(super) new: Option<Set>,
    /// All others, oldest first.
    pub(super) old: Vec<Set>,
    /// The observed status with the conditions this plan adds.
    pub(super) status: DeploymentStatus,
    now: Timestamp,
}

/// Plans the next step for `deployment`.
///
/// `sets` are the sets it controls, `populated` the UIDs of those with unfinished Pods, including
/// terminating ones.
pub(crate) fn plan(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    populated: &BTreeSet<String>,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::observe(deployment, sets, now);
    if meta::is_being_deleted(&deployment.metadata) {
        rollout.update_new();
        return rollout.finish(false);
    }
    status::record_pause(deployment, &mut rollout.status, now);
    if size::is_paused(deployment) {
        rollout.update_new();
        rollout.scale();
        rollout.clean_up();
        return rollout.finish(false);
    }
    // `Recreate` sizes all sets itself.
    if rollout.was_scaled() && !size::is_recreate(deployment) {
        rollout.update_new();
        rollout.scale();
        return rollout.finish(false);
    }
    if size::is_recreate(deployment) {
        rollout.recreate(populated);
    } else {
        rollout.roll_out();
    }
    rollout.finish(true)
}

/// Handles a name collision with an existing set. Returns `None` if that set is the new one,
/// created a moment ago, and otherwise a status whose collision count leads to another name.
pub(crate) fn after_collision(
    deployment: &Deployment,
    existing: &ReplicaSet,
) -> Option<DeploymentStatus> {
    let is_controlled = meta::controller_of(&existing.metadata)
        .is_some_and(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref());
    if is_controlled && has_template(existing, deployment) {
        return None;
    }
    let mut status = deployment.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
    Some(status)
}

fn has_template(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let a = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let b = deployment.spec.as_ref().map(|spec| &spec.template);
    a.zip(b).is_some_and(|(a, b)| revision::same_template(a, b))
}

impl<'a> Rollout<'a> {
    /// Separates the new set from the old ones. If several have the current template, the oldest is
    /// the new set.
    fn observe(deployment: &'a Deployment, sets: &[Arc<ReplicaSet>], now: Timestamp) -> Self {
        let mut sets = sets.to_vec();
        sets.sort_by(|a, b| by_age(&a.metadata, &b.metadata));
        let new = sets.iter().position(|set| has_template(set, deployment));
        let new = new.map(|index| Set::observed(&sets.remove(index)));
        let old = sets.iter().map(Set::observed).collect();
        let status = deployment.status.clone().unwrap_or_default();
        Self {
            deployment,
            new,
            old,
            status,
            now,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ReplicaSet> + Clone {
        self.old.iter().chain(&self.new).map(|set| &set.desired)
    }

    pub(super) fn desired(&self) -> i32 {
        size::desired(self.deployment)
    }

    fn newest_old_revision(&self) -> i64 {
        self.old
            .iter()
            .map(|set| revision::revision(&set.desired.metadata))
            .max()
            .unwrap_or(0)
    }

    /// Updates annotations and `minReadySeconds` of the new set, if it exists.
    fn update_new(&mut self) {
        let newest_old = self.newest_old_revision();
        let Some(new) = &mut self.new else { return };
        revision::annotate(self.deployment, &mut new.desired, newest_old);
        let spec = self.deployment.spec.as_ref();
        if let (Some(of_set), Some(of_deployment)) = (&mut new.desired.spec, spec) {
            let seconds = of_deployment.min_ready_seconds.unwrap_or_default();
            if of_set.min_ready_seconds.unwrap_or_default() != seconds {
                of_set.min_ready_seconds = Some(seconds);
            }
        }
        let name = meta::name(&new.desired.metadata);
        status::record_new_set(self.deployment, &mut self.status, name, false, self.now);
    }

    /// Updates the new set, or creates it if it does not exist.
    fn ensure_new(&mut self) {
        if self.new.is_some() {
            return self.update_new();
        }
        let mut set = revision::new_set(self.deployment);
        revision::annotate(self.deployment, &mut set, self.newest_old_revision());
        let (desired, surge) = (self.desired(), size::limits(self.deployment).surge);
        revision::record_sizes(&mut set, desired, surge);
        let name = meta::name(&set.metadata);
        status::record_new_set(self.deployment, &mut self.status, name, true, self.now);
        self.new = Some(Set {
            observed: None,
            desired: set,
            obsolete: false,
        });
        self.grow_new();
    }

    /// Sets the size of a set and records the size of the Deployment on it.
    pub(super) fn resize(deployment: &Deployment, set: &mut Set, replicas: i32) {
        if let Some(spec) = &mut set.desired.spec {
            spec.replicas = Some(replicas.max(0));
        }
        let surge = size::limits(deployment).surge;
        revision::record_sizes(&mut set.desired, size::desired(deployment), surge);
    }

    // === Rolling update ===

    fn roll_out(&mut self) {
        self.ensure_new();
        if self.size_new() || self.shrink_old() {
            return;
        }
        self.clean_up_if_complete();
    }

    /// Scales the new set as close to the desired size as the surge allows. Returns whether its
    /// size changed.
    fn size_new(&mut self) -> bool {
        let desired = self.desired();
        let Some(new) = &mut self.new else {
            return false;
        };
        if size::replicas(&new.desired) > desired {
            Self::resize(self.deployment, new, desired);
            return true;
        }
        self.grow_new()
    }

    fn grow_new(&mut self) -> bool {
        let desired = self.desired();
        let ceiling = if size::is_recreate(self.deployment) {
            i32::MAX
        } else {
            desired + size::limits(self.deployment).surge
        };
        let total: i32 = self.all().map(size::replicas).sum();
        let Some(new) = &mut self.new else {
            return false;
        };
        let current = size::replicas(&new.desired);
        let room = (ceiling - total).min(desired - current);
        if room <= 0 {
            return false;
        }
        Self::resize(self.deployment, new, current + room);
        true
    }

    /// Scales down old sets without falling below the minimum availability: first unavailable Pods,
    /// then available ones beyond the minimum. Returns whether any size changed.
    fn shrink_old(&mut self) -> bool {
        // A stale status may count Pods that are being deleted.
        if !self.all().all(size::is_reported) {
            return false;
        }
        let minimum = self.desired() - size::limits(self.deployment).unavailable;
        let total: i32 = self.all().map(size::replicas).sum();
        let new_unavailable = self.new.as_ref().map_or(0, |new| {
            (size::replicas(&new.desired) - size::available(&new.desired)).max(0)
        });
        let mut spare = total - minimum - new_unavailable;
        let mut shrunk = false;
        for set in &mut self.old {
            let unavailable = size::replicas(&set.desired) - size::available(&set.desired);
            let removed = unavailable.min(spare);
            if removed > 0 {
                let left = size::replicas(&set.desired) - removed;
                Self::resize(self.deployment, set, left);
                spare -= removed;
                shrunk = true;
            }
        }
        let available: i32 = self.all().map(size::lasting_available).sum();
        let mut spare = spare.min(available - minimum);
        for set in &mut self.old {
            let removed = size::replicas(&set.desired).min(spare);
            if removed > 0 {
                let left = size::replicas(&set.desired) - removed;
                Self::resize(self.deployment, set, left);
                spare -= removed;
                shrunk = true;
            }
        }
        shrunk
    }

    // === Recreate ===

    fn recreate(&mut self, populated: &BTreeSet<String>) {
        self.update_new();
        let mut shrunk = false;
        for set in self.old.iter_mut().filter(|set| set.is_active()) {
            Self::resize(self.deployment, set, 0);
            shrunk = true;
        }
        // Pods of two templates never run at the same time, not even terminating ones.
        let is_populated = |set: &Set| {
            size::actual(&set.desired) > 0 || populated.contains(meta::uid(&set.desired.metadata))
        };
        if shrunk || self.old.iter().any(is_populated) {
            return;
        }
        self.ensure_new();
        self.size_new();
        self.clean_up_if_complete();
    }

    // === History ===

    fn clean_up_if_complete(&mut self) {
        let observed = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(self.deployment, &observed) {
            self.clean_up();
        }
    }

    /// Marks empty sets beyond the history limit as obsolete, oldest revisions first.
    fn clean_up(&mut self) {
        let limit = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else {
            return;
        };
        let mut sets: Vec<&mut Set> = self
            .old
            .iter_mut()
            .filter(|set| !meta::is_being_deleted(&set.desired.metadata))
            .collect();
        sets.sort_by_key(|set| revision::revision(&set.desired.metadata));
        let excess = sets
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or_default());
        for set in sets.into_iter().take(excess) {
            let observed = set
                .desired
                .status
                .as_ref()
                .and_then(|status| status.observed_generation);
            set.obsolete = !set.is_active()
                && size::actual(&set.desired) == 0
                && observed >= set.desired.metadata.generation;
        }
    }

    // === Result ===

    fn finish(self, rolling: bool) -> Plan {
        let Self {
            deployment, now, ..
        } = self;
        let new = self.new.as_ref().map(|new| &new.desired);
        let mut status = status::from_sets(deployment, &self.status, new, &self.all(), now);
        if rolling {
            status::update_progress(deployment, &self.status, &mut status, new, self.all(), now);
        }
        let revision = new
            .and_then(|new| meta::annotation(&new.metadata, revision::REVISION))
            .filter(|new| meta::annotation(&deployment.metadata, revision::REVISION) != Some(*new))
            .map(str::to_owned);
        let requeue_after = status::requeue_after(deployment, &status, now);
        let status = Some(status).filter(|status| deployment.status.as_ref() != Some(status));
        // The new set first: if it cannot be created, the old ones are not scaled down.
        let writes = self
            .new
            .into_iter()
            .chain(self.old)
            .filter_map(Set::write)
            .collect();
        Plan {
            writes,
            revision,
            status,
            requeue_after,
        }
    }
}

pub(super) fn by_age(a: &ObjectMeta, b: &ObjectMeta) -> Ordering {
    (&a.creation_timestamp, &a.name).cmp(&(&b.creation_timestamp, &b.name))
}

#[cfg(test)]
mod tests;
