//! Sizes and bounds of a rollout.

use k8s_openapi::{
    api::apps::v1::{Deployment, ReplicaSet, ReplicaSetStatus},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// How far a rolling update may deviate from the desired number of Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Maximum number of Pods above it.
    pub(super) surge: i32,
    /// Maximum shortfall of available Pods.
    pub(super) unavailable: i32,
}

pub(super) fn desired(deployment: &Deployment) -> i32 {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

pub(super) fn is_paused(deployment: &Deployment) -> bool {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.paused)
        .unwrap_or_default()
}

pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// Resolves percentages: surge rounds up, unavailability rounds down. If both are zero, the rollout
/// could not proceed, so one Pod may be unavailable.
pub(super) fn limits(deployment: &Deployment) -> Limits {
    if is_recreate(deployment) {
        return Limits {
            surge: 0,
            unavailable: 0,
        };
    }
    let desired = desired(deployment);
    let strategy = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = resolve(
        rolling.and_then(|r| r.max_surge.as_ref()),
        desired,
        Round::Up,
    );
    let unavailable = resolve(
        rolling.and_then(|r| r.max_unavailable.as_ref()),
        desired,
        Round::Down,
    );
    let unavailable = if surge == 0 && unavailable == 0 {
        1
    } else {
        unavailable
    };
    Limits {
        surge,
        unavailable: unavailable.min(desired),
    }
}

/// How to round a percentage.
#[derive(Clone, Copy)]
pub(crate) enum Round {
    Up,
    Down,
}

/// Resolves a number or a percentage of `total`. The default is 25 %; an invalid value, which the
/// server would have rejected, is zero.
pub(crate) fn resolve(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    let percent = match value {
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse::<i64>().ok())
            .unwrap_or(0),
        None => 25,
    };
    let product = percent.max(0).saturating_mul(i64::from(total.max(0)));
    let whole = match round {
        Round::Up => product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0),
        Round::Down => product.div_euclid(100),
    };
    i32::try_from(whole).unwrap_or(i32::MAX)
}

pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

fn status(set: &ReplicaSet, count: fn(&ReplicaSetStatus) -> i32) -> i32 {
    set.status.as_ref().map_or(0, count)
}

pub(super) fn actual(set: &ReplicaSet) -> i32 {
    status(set, |status| status.replicas)
}

pub(super) fn ready(set: &ReplicaSet) -> i32 {
    status(set, |status| status.ready_replicas.unwrap_or_default())
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    status(set, |status| status.available_replicas.unwrap_or_default())
}

/// Returns whether the status of a set reflects its current spec.
pub(super) fn is_reported(set: &ReplicaSet) -> bool {
    let observed = set
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed >= set.metadata.generation
}

/// Returns the number of available Pods that remain: a set that is being scaled down counts only up
/// to its new size.
pub(super) fn lasting_available(set: &ReplicaSet) -> i32 {
    available(set).min(replicas(set))
}

#[cfg(test)]
mod tests;
