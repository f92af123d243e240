//! Decides what happens to a Pod because of its node: it has a taint that the Pod does not
//! tolerate, is not ready, or is gone.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::{
    meta,
    nodes::lifecycle,
    pods::{fit, state},
};

/// The time between the removal of a node and the removal of its Pods.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The decision about a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Do nothing until something changes.
    Stay,
    /// Do nothing until this time has passed.
    Wait(Duration),
    /// Mark it not ready, because its node is not.
    NotReady,
    /// Delete it, because it does not (or no longer) tolerate a taint.
    Evict,
    /// Remove it, because there is no kubelet to stop it. `gone` if the node is gone.
    Collect { gone: bool },
}

/// When each pending eviction started, by Pod UID: the Pod tolerates a taint for a limited time, or
/// its node is gone. As in kube-controller-manager, the time starts over after a restart.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeMap<String, (Reason, Timestamp)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Taint,
    Gone,
}

impl Deadlines {
    /// Returns the verdict for a pending eviction: wait until `time` has passed since it became
    /// pending, then remove the Pod.
    fn left(&mut self, pod: &Pod, why: Reason, time: Duration, now: Timestamp) -> Verdict {
        let uid = meta::uid(&pod.metadata).to_owned();
        let since = self.0.get(&uid).filter(|(known, _)| *known == why);
        let since = since.map_or(now, |(_, since)| *since);
        self.0.insert(uid, (why, since));
        let end = since.saturating_add(time).unwrap_or(now);
        let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
        match (left, why) {
            (Duration::ZERO, Reason::Taint) => Verdict::Evict,
            (Duration::ZERO, Reason::Gone) => Verdict::Collect { gone: true },
            (left, _) => Verdict::Wait(left),
        }
    }

    /// Forgets a Pod. Returns whether its eviction because of a taint was pending.
    pub(super) fn cancel(&mut self, uid: &str) -> bool {
        let cancelled = self.0.remove(uid);
        cancelled.is_some_and(|(why, _)| why == Reason::Taint)
    }

    /// Decides what happens to a Pod because of its node. `node` is `None` if it is gone.
    pub(super) fn decide(&mut self, pod: &Pod, node: Option<&Node>, now: Timestamp) -> Verdict {
        let Some(node) = node else {
            return self.left(pod, Reason::Gone, QUARANTINE, now);
        };
        let is_deleted = meta::is_being_deleted(&pod.metadata);
        let ready = lifecycle::condition(node, "Ready");
        let is_down = ready.is_some_and(|ready| ready.status != "True");
        if is_down && is_deleted && is_out_of_service(node) {
            return Verdict::Collect { gone: false };
        }
        if is_down && state::is_ready(pod) {
            return Verdict::NotReady;
        }
        if is_deleted {
            return Verdict::Stay;
        }
        match tolerated(pod, node) {
            Tolerated::Forever => Verdict::Stay,
            Tolerated::No => Verdict::Evict,
            Tolerated::For(time) => self.left(pod, Reason::Taint, time, now),
        }
    }
}

fn is_out_of_service(node: &Node) -> bool {
    let spec = node.spec.iter();
    let mut taints = spec.flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

/// How long a Pod tolerates the taints of its node.
enum Tolerated {
    No,
    For(Duration),
    Forever,
}

fn tolerated(pod: &Pod, node: &Node) -> Tolerated {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    let taints = node.spec.iter();
    let taints = taints.flat_map(|spec| spec.taints.iter().flatten());
    let mut shortest = None;
    for taint in taints.filter(|taint| taint.effect == "NoExecute") {
        let mut tolerations = tolerations.into_iter().flatten();
        let Some(toleration) = tolerations.find(|it| fit::matches_taint(it, taint)) else {
            return Tolerated::No;
        };
        let seconds = toleration.toleration_seconds.map(|it| it.max(0));
        shortest = [shortest, seconds].into_iter().flatten().min();
    }
    match shortest {
        None => Tolerated::Forever,
        Some(0) => Tolerated::No,
        Some(seconds) => Tolerated::For(Duration::from_secs(
            u64::try_from(seconds).unwrap_or_default(),
        )),
    }
}

#[cfg(test)]
mod tests;
