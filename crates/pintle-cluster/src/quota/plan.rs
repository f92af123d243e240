//! Computes the status of a quota, and when to count again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ResourceQuota, ResourceQuotaStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use serde_json::Value;

/// The minimum time between two counts of a quota. Every object in its namespace may trigger one.
const PACE: Duration = Duration::from_millis(200);
/// When to count again without a change, because Pods that should be gone stop counting.
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// How soon to recount kinds that the loop does not watch.
const POLL: Duration = Duration::from_secs(1);

/// The kinds of the core group whose objects the loop watches.
const WATCHED: [(&str, &str); 7] = [
    ("configmaps", "ConfigMap"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("pods", "Pod"),
    ("replicationcontrollers", "ReplicationController"),
    ("resourcequotas", "ResourceQuota"),
    ("secrets", "Secret"),
    ("services", "Service"),
];

/// Returns the kind of a plural, if the loop knows it without discovery.
pub(crate) fn core_kind(group: &str, plural: &str) -> Option<&'static str> {
    let known = WATCHED.iter().find(|(known, _)| *known == plural);
    known.filter(|_| group.is_empty()).map(|(_, kind)| *kind)
}

/// Returns the spec as JSON.
pub(crate) fn spec(quota: &ResourceQuota) -> Value {
    serde_json::to_value(&quota.spec).unwrap_or_default()
}

/// Returns how long to wait before counting again. A quota whose status is incomplete cannot wait:
/// it limits nothing, or rejects everything.
pub(crate) fn wait(
    quota: &ResourceQuota,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Duration> {
    if !is_complete(quota) {
        return None;
    }
    let since = Duration::try_from(now.duration_since(last?)).unwrap_or_default();
    PACE.checked_sub(since).filter(|wait| !wait.is_zero())
}

/// Returns whether the status has the current limits and the usage.
fn is_complete(quota: &ResourceQuota) -> bool {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let status = quota.status.as_ref();
    status.is_some_and(|status| status.used.is_some() && status.hard.as_ref() == hard)
}

/// Returns the new status, or `None` if it is the current one. Usage that was not counted is
/// retained.
pub(crate) fn status(
    quota: &ResourceQuota,
    counted: BTreeMap<String, String>,
) -> Option<ResourceQuotaStatus> {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone());
    let hard = hard.unwrap_or_default();
    let before = quota.status.as_ref().and_then(|status| status.used.clone());
    let mut used = before.clone().unwrap_or_default();
    let counted = counted.into_iter();
    used.extend(counted.map(|(name, amount)| (name, Quantity(amount))));
    used.retain(|name, _| hard.contains_key(name));
    if is_complete(quota) && before.as_ref() == Some(&used) {
        return None;
    }
    Some(ResourceQuotaStatus {
        hard: Some(hard),
        used: Some(used),
    })
}

/// Returns when to count again if nothing changes.
pub(crate) fn recheck(kinds: &BTreeSet<(String, String)>) -> Duration {
    let watched = |(group, plural): &(String, String)| core_kind(group, plural).is_some();
    if kinds.iter().all(watched) {
        RESYNC
    } else {
        POLL
    }
}

#[cfg(test)]
mod tests;
