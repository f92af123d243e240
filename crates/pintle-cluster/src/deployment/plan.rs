//! What a Deployment needs next: a function of what was observed and the time.
//!
//! A plan works on copies: it decides on the sizes of the sets as one picture and then compares the
//! picture with what was observed, so that each set is written at most once, in one piece, under
//! the resource version the decision was made from. A set that moved meanwhile makes the write a
//! conflict, and the next look decides again.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{revision, size, status};
use crate::meta;

/// One write to a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// The set for a template that had none.
    Create(ReplicaSet),
    /// A new size, new annotations, or both; `from` is the size it had.
    Update { set: ReplicaSet, from: i32 },
    /// A set beyond the history limit.
    Delete(Arc<ReplicaSet>),
}

/// What to do next, in this order; the first failure ends it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    /// The Deployment's own revision annotation, if it is out of date.
    pub(crate) revision: Option<String>,
    /// The new status, if it differs.
    pub(crate) status: Option<DeploymentStatus>,
    /// Look again after this long even if nothing is heard.
    pub(crate) again_in: Option<Duration>,
}

/// A ReplicaSet as it was seen and as it shall be.
struct Set {
    seen: Option<Arc<ReplicaSet>>,
    shall: ReplicaSet,
    obsolete: bool,
}

impl Set {
    fn seen(set: &Arc<ReplicaSet>) -> Self {
        Self {
            seen: Some(set.clone()),
            shall: (**set).clone(),
            obsolete: false,
        }
    }

    fn is_active(&self) -> bool {
        size::wanted(&self.shall) > 0
    }

    fn write(self) -> Option<Write> {
        match self.seen {
            None => Some(Write::Create(self.shall)),
            Some(seen) if self.obsolete => Some(Write::Delete(seen)),
            Some(seen) if *seen == self.shall => None,
            Some(seen) => Some(Write::Update {
                set: self.shall,
                from: size::wanted(&seen),
            }),
        }
    }
}

/// The picture a plan is made on.
struct Rollout<'a> {
    deployment: &'a Deployment,
    /// The set with the present template.
    new: Option<Set>,
    /// All others, oldest first.
    old: Vec<Set>,
    /// The status as observed, with the conditions this plan adds.
    status: DeploymentStatus,
    now: Timestamp,
}

/// Decides what `deployment` needs.
///
/// `sets` are those it controls; `populated` the UIDs of the sets that have Pods which have not
/// finished, terminating ones included.
pub(crate) fn plan(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    populated: &BTreeSet<String>,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::observe(deployment, sets, now);
    if meta::is_being_deleted(&deployment.metadata) {
        rollout.adopt_new();
        return rollout.finish(false);
    }
    status::note_pause(deployment, &mut rollout.status, now);
    if size::is_paused(deployment) {
        rollout.adopt_new();
        rollout.scale();
        rollout.clean_up();
        return rollout.finish(false);
    }
    // A Recreate sizes everything itself.
    if rollout.was_scaled() && !size::is_recreate(deployment) {
        rollout.adopt_new();
        rollout.scale();
        return rollout.finish(false);
    }
    if size::is_recreate(deployment) {
        rollout.recreate(populated);
    } else {
        rollout.roll();
    }
    rollout.finish(true)
}

/// What to make of a set that already has the name the new one should get: `None` if it is the new
/// one, created a moment ago; otherwise the status that makes the next attempt use another name.
pub(crate) fn after_collision(
    deployment: &Deployment,
    existing: &ReplicaSet,
) -> Option<DeploymentStatus> {
    let ours = meta::controller_of(&existing.metadata)
        .is_some_and(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref());
    if ours && has_template(existing, deployment) {
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
    /// Sorts the sets into the new one and the others. If several have the present template, the
    /// oldest is the new one.
    fn observe(deployment: &'a Deployment, sets: &[Arc<ReplicaSet>], now: Timestamp) -> Self {
        let mut sets = sets.to_vec();
        sets.sort_by(|a, b| by_age(&a.metadata, &b.metadata));
        let new = sets.iter().position(|set| has_template(set, deployment));
        let new = new.map(|index| Set::seen(&sets.remove(index)));
        let old = sets.iter().map(Set::seen).collect();
        let status = deployment.status.clone().unwrap_or_default();
        Self {
            deployment,
            new,
            old,
            status,
            now,
        }
    }

    fn all(&self) -> impl Iterator<Item = &ReplicaSet> + Clone {
        self.old.iter().chain(&self.new).map(|set| &set.shall)
    }

    fn desired(&self) -> i32 {
        size::desired(self.deployment)
    }

    fn newest_old_revision(&self) -> i64 {
        self.old
            .iter()
            .map(|set| revision::revision(&set.shall.metadata))
            .max()
            .unwrap_or(0)
    }

    /// Brings the annotations of an existing new set in line.
    fn adopt_new(&mut self) {
        let newest_old = self.newest_old_revision();
        let Some(new) = &mut self.new else { return };
        revision::annotate(self.deployment, &mut new.shall, newest_old);
        let spec = self.deployment.spec.as_ref();
        if let (Some(of_set), Some(of_deployment)) = (&mut new.shall.spec, spec) {
            let seconds = of_deployment.min_ready_seconds.unwrap_or_default();
            if of_set.min_ready_seconds.unwrap_or_default() != seconds {
                of_set.min_ready_seconds = Some(seconds);
            }
        }
        let name = meta::name(&new.shall.metadata);
        status::note_new_set(self.deployment, &mut self.status, name, false, self.now);
    }

    /// As [`Self::adopt_new`], and creates the new set if there is none.
    fn ensure_new(&mut self) {
        if self.new.is_some() {
            return self.adopt_new();
        }
        let mut set = revision::new_set(self.deployment);
        revision::annotate(self.deployment, &mut set, self.newest_old_revision());
        let (desired, surge) = (self.desired(), size::limits(self.deployment).surge);
        revision::note_sizes(&mut set, desired, surge);
        let name = meta::name(&set.metadata);
        status::note_new_set(self.deployment, &mut self.status, name, true, self.now);
        self.new = Some(Set {
            seen: None,
            shall: set,
            obsolete: false,
        });
        self.grow_new();
    }

    /// Sizes one set and notes on it for which size of the Deployment.
    fn resize(deployment: &Deployment, set: &mut Set, replicas: i32) {
        if let Some(spec) = &mut set.shall.spec {
            spec.replicas = Some(replicas.max(0));
        }
        let surge = size::limits(deployment).surge;
        revision::note_sizes(&mut set.shall, size::desired(deployment), surge);
    }

    // === Rolling update ===

    fn roll(&mut self) {
        self.ensure_new();
        if self.size_new() || self.shrink_old() {
            return;
        }
        self.clean_up_if_complete();
    }

    /// Brings the new set as near to the desired size as the surge lets it. True if it moved.
    fn size_new(&mut self) -> bool {
        let desired = self.desired();
        let Some(new) = &mut self.new else {
            return false;
        };
        if size::wanted(&new.shall) > desired {
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
        let total: i32 = self.all().map(size::wanted).sum();
        let Some(new) = &mut self.new else {
            return false;
        };
        let present = size::wanted(&new.shall);
        let room = (ceiling - total).min(desired - present);
        if room <= 0 {
            return false;
        }
        Self::resize(self.deployment, new, present + room);
        true
    }

    /// Takes from the old sets what may go without falling below the minimum: first what is not
    /// available anyway, then available Pods beyond the minimum. True if any set shrank.
    fn shrink_old(&mut self) -> bool {
        // A set that has not yet reported on its present size reports on Pods it may be deleting.
        if !self.all().all(size::is_reported) {
            return false;
        }
        let minimum = self.desired() - size::limits(self.deployment).unavailable;
        let total: i32 = self.all().map(size::wanted).sum();
        let new_unavailable = self.new.as_ref().map_or(0, |new| {
            (size::wanted(&new.shall) - size::available(&new.shall)).max(0)
        });
        let mut spare = total - minimum - new_unavailable;
        let mut shrunk = false;
        for set in &mut self.old {
            let broken = size::wanted(&set.shall) - size::available(&set.shall);
            let gone = broken.min(spare);
            if gone > 0 {
                let left = size::wanted(&set.shall) - gone;
                Self::resize(self.deployment, set, left);
                spare -= gone;
                shrunk = true;
            }
        }
        let lasting: i32 = self.all().map(size::lasting).sum();
        let mut spare = spare.min(lasting - minimum);
        for set in &mut self.old {
            let gone = size::wanted(&set.shall).min(spare);
            if gone > 0 {
                let left = size::wanted(&set.shall) - gone;
                Self::resize(self.deployment, set, left);
                spare -= gone;
                shrunk = true;
            }
        }
        shrunk
    }

    // === Recreate ===

    fn recreate(&mut self, populated: &BTreeSet<String>) {
        self.adopt_new();
        let mut shrunk = false;
        for set in self.old.iter_mut().filter(|set| set.is_active()) {
            Self::resize(self.deployment, set, 0);
            shrunk = true;
        }
        // Two templates never run side by side, not even while the last old Pod says goodbye.
        let old_runs = |set: &Set| {
            size::actual(&set.shall) > 0 || populated.contains(meta::uid(&set.shall.metadata))
        };
        if shrunk || self.old.iter().any(old_runs) {
            return;
        }
        self.ensure_new();
        self.size_new();
        self.clean_up_if_complete();
    }

    // === Scaling ===

    /// Whether the Deployment's size changed since its active sets were sized.
    fn was_scaled(&self) -> bool {
        self.all()
            .filter(|set| size::wanted(set) > 0)
            .filter_map(|set| revision::noted_size(set, revision::DESIRED))
            .any(|noted| noted != self.desired())
    }

    /// Follows a change of the Deployment's size without hastening a rollout: in the middle of one
    /// every active set grows or shrinks in proportion, so that a bad new template does not take
    /// over because somebody scaled.
    fn scale(&mut self) {
        let (deployment, desired) = (self.deployment, self.desired());
        match self
            .old
            .iter()
            .chain(&self.new)
            .filter(|set| set.is_active())
            .count()
        {
            0 => {
                let latest = self.new.as_mut().or(self.old.last_mut());
                if let Some(latest) = latest.filter(|_| desired > 0) {
                    Self::resize(deployment, latest, desired);
                }
                return;
            }
            1 => {
                let only = self
                    .old
                    .iter_mut()
                    .chain(&mut self.new)
                    .find(|set| set.is_active());
                if let Some(only) = only {
                    Self::resize(deployment, only, desired);
                }
                return;
            }
            _ => {}
        }
        if self
            .new
            .as_ref()
            .is_some_and(|new| is_saturated(deployment, &new.shall))
        {
            for old in self.old.iter_mut().filter(|set| set.is_active()) {
                Self::resize(deployment, old, 0);
            }
        } else if !size::is_recreate(deployment) {
            self.scale_in_proportion();
        }
    }

    fn scale_in_proportion(&mut self) {
        let (deployment, desired) = (self.deployment, self.desired());
        let surge = size::limits(deployment).surge;
        let replicas_before = self.status.replicas.unwrap_or_default();
        let ceiling = if desired > 0 { desired + surge } else { 0 };

        let mut active: Vec<&mut Set> = self
            .old
            .iter_mut()
            .chain(&mut self.new)
            .filter(|set| set.is_active())
            .collect();
        let total: i32 = active.iter().map(|set| size::wanted(&set.shall)).sum();
        let change = ceiling - total;
        // Largest first. Of equals, the newer grows first and the older shrinks first.
        active.sort_by(|a, b| {
            let age = by_age(&a.shall.metadata, &b.shall.metadata);
            let age = if change > 0 { age.reverse() } else { age };
            size::wanted(&b.shall)
                .cmp(&size::wanted(&a.shall))
                .then(age)
        });

        let mut left = change;
        let mut sizes: Vec<i32> = Vec::with_capacity(active.len());
        for set in &active {
            let present = size::wanted(&set.shall);
            let share = share(&set.shall, desired, ceiling, replicas_before);
            let share = if change > 0 {
                share.clamp(0, left)
            } else {
                share.clamp(left, 0)
            };
            left -= share;
            sizes.push(present + share);
        }
        if let Some(largest) = sizes.first_mut() {
            *largest = (*largest + left).max(0);
        }
        for (set, replicas) in active.into_iter().zip(sizes) {
            Self::resize(deployment, set, replicas);
        }
    }

    // === History ===

    fn clean_up_if_complete(&mut self) {
        let observed = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(self.deployment, &observed) {
            self.clean_up();
        }
    }

    /// Marks the oldest revisions beyond the history limit, as far as they are empty.
    fn clean_up(&mut self) {
        let limit = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else {
            return;
        };
        let mut alive: Vec<&mut Set> = self
            .old
            .iter_mut()
            .filter(|set| !meta::is_being_deleted(&set.shall.metadata))
            .collect();
        alive.sort_by_key(|set| revision::revision(&set.shall.metadata));
        let excess = alive
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or_default());
        for set in alive.into_iter().take(excess) {
            let observed = set
                .shall
                .status
                .as_ref()
                .and_then(|status| status.observed_generation);
            set.obsolete = !set.is_active()
                && size::actual(&set.shall) == 0
                && observed >= set.shall.metadata.generation;
        }
    }

    // === The end ===

    fn finish(self, rolling: bool) -> Plan {
        let Self {
            deployment, now, ..
        } = self;
        let new = self.new.as_ref().map(|new| &new.shall);
        let mut status = status::counted(deployment, &self.status, new, &self.all(), now);
        if rolling {
            status::note_progress(deployment, &self.status, &mut status, new, self.all(), now);
        }
        let revision = new
            .and_then(|new| meta::annotation(&new.metadata, revision::REVISION))
            .filter(|new| meta::annotation(&deployment.metadata, revision::REVISION) != Some(*new))
            .map(str::to_owned);
        let again_in = status::look_again_in(deployment, &status, now);
        let status = Some(status).filter(|status| deployment.status.as_ref() != Some(status));
        // The new set first: if it cannot be created, nothing is taken from the old ones.
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
            again_in,
        }
    }
}

fn by_age(a: &ObjectMeta, b: &ObjectMeta) -> Ordering {
    (&a.creation_timestamp, &a.name).cmp(&(&b.creation_timestamp, &b.name))
}

/// All the Pods the Deployment wants, in one set, and available.
fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let desired = size::desired(deployment);
    size::wanted(set) == desired
        && revision::noted_size(set, revision::DESIRED) == Some(desired)
        && size::available(set) == desired
}

/// By how much a set changes when the Deployment's ceiling does, in proportion to its size.
fn share(set: &ReplicaSet, desired: i32, ceiling: i32, replicas_before: i32) -> i32 {
    let present = size::wanted(set);
    if desired == 0 {
        return -present;
    }
    let before = revision::noted_size(set, revision::MAX)
        .filter(|max| *max > 0)
        .unwrap_or(replicas_before);
    if before == 0 {
        return 0;
    }
    // Rounded half away from zero, in integers.
    let (scaled, before) = (i64::from(present) * i64::from(ceiling), i64::from(before));
    let rounded = (2 * scaled + before) / (2 * before);
    i32::try_from(rounded).unwrap_or(i32::MAX) - present
}

#[cfg(test)]
mod tests;
