//! Topology spread constraints: keep the Pods of a group evenly distributed over domains.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodSpec, TopologySpreadConstraint};
use pintle::cache::Selector;

use super::{
    affinity::{add_keys, label_selector},
    pod::PodInfo,
    world::{NodeInfo, View},
};
use crate::{meta, pods::fit};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The constraints of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread {
    required: Vec<Constraint>,
    preferred: Vec<Constraint>,
    /// The Pod has no constraints, so these are the scheduler's own: Pods of one controller prefer
    /// different nodes and zones.
    is_default: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Constraint {
    topology: String,
    max_skew: i64,
    min_domains: usize,
    counts: Counted,
    /// Only nodes that the Pod's selector and affinity match count.
    honors_affinity: bool,
    /// Only nodes whose taints the Pod tolerates count.
    honors_taints: bool,
}

/// Selects the Pods that count.
#[derive(Clone, Debug, PartialEq)]
enum Counted {
    Selected(Selector),
    /// Pods with this controller. Upstream selects those that the controller and the Services of
    /// the Pod select, which are the same unless a Service is more specific.
    Controlled(String),
}

impl Counted {
    fn matches(&self, pod: &PodInfo) -> bool {
        match self {
            Self::Selected(selector) => meta::selects(selector, &pod.pod.metadata),
            Self::Controlled(uid) => {
                meta::controller_of(&pod.pod.metadata).is_some_and(|owner| owner.uid == *uid)
            }
        }
    }

    fn count(&self, node: &NodeInfo, namespace: &str) -> i64 {
        if matches!(self, Self::Selected(selector) if selector.is_everything()) {
            return 0;
        }
        let counted = node.pods.values().filter(|pod| {
            !pod.is_terminating() && pod.namespace() == namespace && self.matches(pod)
        });
        i64::try_from(counted.count()).unwrap_or(i64::MAX)
    }
}

impl Spread {
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let constraints = spec.and_then(|spec| spec.topology_spread_constraints.as_ref());
        let constraints = constraints.map(Vec::as_slice).unwrap_or_default();
        if constraints.is_empty() {
            return Self::default_of(pod);
        }
        let with = |action: &str| {
            let constraints = constraints.iter();
            constraints
                .filter(|it| it.when_unsatisfiable == action)
                .map(|it| Constraint::new(pod, it))
                .collect()
        };
        Self {
            required: with("DoNotSchedule"),
            preferred: with("ScheduleAnyway"),
            is_default: false,
        }
    }

    fn default_of(pod: &Pod) -> Self {
        let constraint = |topology: &str, max_skew, owner: &str| Constraint {
            topology: topology.to_owned(),
            max_skew,
            min_domains: 1,
            counts: Counted::Controlled(owner.to_owned()),
            honors_affinity: true,
            honors_taints: false,
        };
        let preferred = meta::controller_of(&pod.metadata).map(|owner| {
            vec![
                constraint(HOSTNAME, 3, &owner.uid),
                constraint(ZONE, 5, &owner.uid),
            ]
        });
        Self {
            required: Vec::new(),
            preferred: preferred.unwrap_or_default(),
            is_default: true,
        }
    }

    /// Returns whether there are constraints that can keep the Pod from being scheduled.
    pub(super) fn is_required(&self) -> bool {
        !self.required.is_empty()
    }
}

impl Constraint {
    fn new(pod: &Pod, constraint: &TopologySpreadConstraint) -> Self {
        let selector = label_selector(constraint.label_selector.as_ref(), |selector| {
            let keys = constraint.match_label_keys.iter().flatten();
            add_keys(selector, pod, keys, "In");
        });
        let min_domains = constraint.min_domains.unwrap_or(1);
        let honors = |policy: &Option<String>, default| match policy.as_deref() {
            Some("Honor") => true,
            Some("Ignore") => false,
            _ => default,
        };
        Self {
            topology: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.into(),
            min_domains: usize::try_from(min_domains).unwrap_or(1),
            counts: Counted::Selected(selector),
            honors_affinity: honors(&constraint.node_affinity_policy, true),
            honors_taints: honors(&constraint.node_taints_policy, false),
        }
    }

    fn includes(&self, spec: &PodSpec, node: &NodeInfo) -> bool {
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        let repels = |effect: &str| effect != "PreferNoSchedule";
        (!self.honors_affinity || fit::selects(spec, &node.node))
            && (!self.honors_taints || fit::tolerates(tolerations, &node.node, repels))
    }
}

fn has_all(node: &NodeInfo, constraints: &[Constraint]) -> bool {
    let mut constraints = constraints.iter();
    constraints.all(|it| node.label(&it.topology).is_some())
}

/// The numbers of matching Pods per domain, for each required constraint.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    pod: &'a PodInfo,
    counts: Vec<BTreeMap<&'a str, i64>>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(pod: &'a PodInfo, nodes: &[&'a NodeInfo]) -> Self {
        let required = &pod.spread.required;
        let mut counts = vec![BTreeMap::new(); required.len()];
        let spec = pod.pod.spec.as_ref().filter(|_| !required.is_empty());
        for node in nodes.iter().filter(|node| has_all(node, required)) {
            let Some(spec) = spec else { break };
            for (constraint, counts) in required.iter().zip(&mut counts) {
                if let Some(domain) = node.label(&constraint.topology)
                    && constraint.includes(spec, node)
                {
                    let count = constraint.counts.count(node, pod.namespace());
                    *counts.entry(domain).or_default() += count;
                }
            }
        }
        Self { pod, counts }
    }

    /// Returns why the Pod may not run on a node, and whether evicting other Pods could change
    /// that.
    pub(super) fn check(&self, node: &NodeInfo) -> Result<(), (&'static str, bool)> {
        let required = &self.pod.spread.required;
        for (constraint, counts) in required.iter().zip(&self.counts) {
            let Some(domain) = node.label(&constraint.topology) else {
                let why = "node(s) didn't match pod topology spread constraints \
                           (missing required label)";
                return Err((why, false));
            };
            let is_enough = counts.len() >= constraint.min_domains;
            let least = counts.values().min().filter(|_| is_enough);
            let least = least.copied().unwrap_or_default();
            let own = i64::from(constraint.counts.matches(self.pod));
            let there = counts.get(domain).copied().unwrap_or_default();
            if there + own - least > constraint.max_skew {
                return Err(("node(s) didn't match pod topology spread constraints", true));
            }
        }
        Ok(())
    }
}

/// Returns the score of each node, from 0 to 100.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts of Pods and nodes"
)]
pub(super) fn scores(pod: &PodInfo, nodes: &[&NodeInfo], view: &View<'_>) -> Vec<i64> {
    let constraints = &pod.spread.preferred;
    let (false, Some(spec)) = (constraints.is_empty(), &pod.pod.spec) else {
        return vec![0; nodes.len()];
    };
    let counts_node = |node: &NodeInfo| pod.spread.is_default || has_all(node, constraints);
    let counting = nodes.iter().filter(|node| counts_node(node)).count();
    // The domains of the nodes to choose from, and the Pods in them on any node.
    let mut domains = Vec::new();
    for constraint in constraints {
        let names: BTreeSet<&str> = nodes
            .iter()
            .filter(|node| constraint.topology != HOSTNAME && counts_node(node))
            .map(|node| node.label(&constraint.topology).unwrap_or_default())
            .collect();
        let mut counts: BTreeMap<&str, i64> = names.into_iter().map(|name| (name, 0)).collect();
        for node in view.nodes.iter().filter(|node| counts_node(node)) {
            // Nodes without the label form their own domain, but get no score for it.
            if let Some(domain) = node.label(&constraint.topology)
                && let Some(count) = counts.get_mut(domain)
                && constraint.includes(spec, node)
            {
                *count += constraint.counts.count(node, pod.namespace());
            }
        }
        domains.push(counts);
    }
    let raw = |node: &&NodeInfo| {
        if !counts_node(node) {
            return None;
        }
        let mut score = 0.0;
        for (constraint, domains) in constraints.iter().zip(&domains) {
            let Some(domain) = node.label(&constraint.topology) else {
                continue;
            };
            let (count, size) = if constraint.topology == HOSTNAME {
                (constraint.counts.count(node, pod.namespace()), counting)
            } else {
                (
                    domains.get(domain).copied().unwrap_or_default(),
                    domains.len(),
                )
            };
            let weight = (size as f64 + 2.0).ln();
            score += count as f64 * weight + (constraint.max_skew - 1) as f64;
        }
        Some(score.round() as i64)
    };
    let raw: Vec<Option<i64>> = nodes.iter().map(raw).collect();
    let valid = || raw.iter().flatten().copied();
    let (min, max) = (
        valid().min().unwrap_or_default(),
        valid().max().unwrap_or_default(),
    );
    let scaled = |score: Option<i64>| match (score, max) {
        (None, _) => 0,
        (Some(_), 0) => 100,
        (Some(score), max) => 100 * (max + min - score) / max,
    };
    raw.into_iter().map(scaled).collect()
}

#[cfg(test)]
mod tests;
