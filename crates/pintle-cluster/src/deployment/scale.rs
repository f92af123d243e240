//! Scaling: resizes the sets of a Deployment when its size changes.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    plan::{Rollout, Set, by_age},
    revision, size,
};

impl Rollout<'_> {
    /// Returns whether the Deployment was scaled since its active sets were sized.
    pub(super) fn was_scaled(&self) -> bool {
        self.all()
            .filter(|set| size::replicas(set) > 0)
            .filter_map(|set| revision::recorded_size(set, revision::DESIRED))
            .any(|recorded| recorded != self.desired())
    }

    /// Applies a new size of the Deployment without advancing a rollout. During a rollout all
    /// active sets are scaled in proportion, so that scaling does not promote a broken template.
    pub(super) fn scale(&mut self) {
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
            .is_some_and(|new| is_saturated(deployment, &new.desired))
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
        let total: i32 = active.iter().map(|set| size::replicas(&set.desired)).sum();
        let change = ceiling - total;
        // Largest first. Among equals, newer sets grow first and older sets shrink first.
        active.sort_by(|a, b| {
            let age = by_age(&a.desired.metadata, &b.desired.metadata);
            let age = if change > 0 { age.reverse() } else { age };
            size::replicas(&b.desired)
                .cmp(&size::replicas(&a.desired))
                .then(age)
        });

        let mut left = change;
        let mut sizes: Vec<i32> = Vec::with_capacity(active.len());
        for set in &active {
            let current = size::replicas(&set.desired);
            let share = share(&set.desired, desired, ceiling, replicas_before);
            let share = if change > 0 {
                share.clamp(0, left)
            } else {
                share.clamp(left, 0)
            };
            left -= share;
            sizes.push(current + share);
        }
        if let Some(largest) = sizes.first_mut() {
            *largest = (*largest + left).max(0);
        }
        for (set, replicas) in active.into_iter().zip(sizes) {
            Self::resize(deployment, set, replicas);
        }
    }
}

/// Returns whether one set has all Pods of the Deployment, all of them available.
fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let desired = size::desired(deployment);
    size::replicas(set) == desired
        && revision::recorded_size(set, revision::DESIRED) == Some(desired)
        && size::available(set) == desired
}

/// Returns the change in size of a set in proportion to a change of the total.
fn share(set: &ReplicaSet, desired: i32, ceiling: i32, replicas_before: i32) -> i32 {
    let current = size::replicas(set);
    if desired == 0 {
        return -current;
    }
    let before = revision::recorded_size(set, revision::MAX)
        .filter(|max| *max > 0)
        .unwrap_or(replicas_before);
    if before == 0 {
        return 0;
    }
    // Rounded half away from zero, in integers.
    let (scaled, before) = (i64::from(current) * i64::from(ceiling), i64::from(before));
    let rounded = (2 * scaled + before) / (2 * before);
    i32::try_from(rounded).unwrap_or(i32::MAX) - current
}
