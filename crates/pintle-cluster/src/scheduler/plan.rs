//! Decides which node a Pod runs on.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    filter::{self, Filter, Rejection},
    pod::PodInfo,
    preempt::{self, Nomination},
    score,
    world::{NodeInfo, View},
};

/// The decision about a pending Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Bind it to this node.
    Bind(String),
    /// It cannot be scheduled.
    Refuse {
        /// Why, in the words of Kubernetes.
        message: String,
        nomination: Nomination,
    },
}

/// Why nodes were rejected, by name. Nodes that the Pod's affinity excludes by name are absent.
pub(super) type Rejections = BTreeMap<String, Rejection>;

/// Decides where a Pod runs: on the node where preemption has made room, or on the best node it
/// fits on. If there is none, decides which Pods to evict for it.
pub(super) fn schedule(pod: &Arc<PodInfo>, view: &View<'_>) -> Decision {
    if view.nodes.is_empty() {
        return Decision::Refuse {
            message: "no nodes available to schedule pods".into(),
            nomination: Nomination::Clear,
        };
    }
    let named = filter::named_nodes(pod);
    let nodes = view.nodes.as_slice();
    if named.as_ref().is_some_and(Vec::is_empty) {
        let why = "pod affinity terms conflict";
        return refuse(pod, view, Some(why), &Rejections::new(), None);
    }
    if let Some(why) = view.claims.problem(pod) {
        return refuse(pod, view, Some(&why), &Rejections::new(), None);
    }
    let filter = Filter::new(pod, nodes, view.namespaces);
    let check =
        |node: &NodeInfo| filter::check_with_nominated(pod, node, nodes, view, Some(&filter));
    if let Some(nominated) = pod.nominated().and_then(|name| view.node(name))
        && check(nominated).is_ok()
    {
        return Decision::Bind(nominated.name().to_owned());
    }
    let is_named = |node: &NodeInfo| {
        let mut named = named.iter().flatten();
        named.any(|name| name == node.name())
    };
    let (mut fitting, mut rejections) = (Vec::new(), Rejections::new());
    for node in nodes.iter().filter(|it| named.is_none() || is_named(it)) {
        match check(node) {
            Ok(()) => fitting.push(*node),
            Err(rejection) => {
                rejections.insert(node.name().to_owned(), rejection);
            }
        }
    }
    if let Some(best) = score::best(pod, &fitting, view) {
        return Decision::Bind(best.name().to_owned());
    }
    let absent = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
    refuse(pod, view, None, &rejections, Some(absent))
}

fn refuse(
    pod: &Arc<PodInfo>,
    view: &View<'_>,
    why: Option<&str>,
    rejections: &Rejections,
    absent: Option<&str>,
) -> Decision {
    let reasons = match why {
        Some(why) => format!("0/{} nodes are available: {why}.", view.nodes.len()),
        None => summary(rejections, view.nodes.len(), absent),
    };
    let (message, nomination) = match preempt::plan(pod, view, rejections) {
        Ok(preemption) => (reasons, Nomination::Set(preemption)),
        Err(refused) => {
            // kube-scheduler reports the first of these for every Pod without resource claims.
            let why = format!(
                "no new claims to deallocate, preemption: {}",
                refused.message
            );
            (format!("{reasons} {why}"), refused.nomination)
        }
    };
    Decision::Refuse {
        message,
        nomination,
    }
}

/// Counts the rejected nodes by reason; nodes that are absent count under the reason `absent`.
pub(super) fn summary(rejections: &Rejections, nodes: usize, absent: Option<&str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in rejections.values().flat_map(|it| &it.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    if let Some(absent) = absent.filter(|_| rejections.len() < nodes) {
        *counts.entry(absent).or_default() += nodes - rejections.len();
    }
    let counts = counts.iter();
    let mut parts: Vec<String> = counts
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    // Sort by text, as upstream does: "10 …" comes before "2 …".
    parts.sort_unstable();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests;
