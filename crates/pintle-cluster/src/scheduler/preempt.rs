//! Preemption: chooses Pods of lower priority to evict so that a Pod fits.
//!
//! On each node where that can help, all Pods of lower priority are removed; then those that still
//! fit are put back, the most important first. The node where this does the least harm is chosen.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::{
    filter::{self, Rejection},
    plan::{self, Rejections},
    pod::PodInfo,
    world::{NodeInfo, View},
};
use crate::{meta, pods::state};

/// The reason in the condition of a preempted Pod.
pub(super) const REASON: &str = "PreemptionByScheduler";

/// The change to a Pod's nominated node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Nomination {
    Keep,
    Clear,
    Set(Preemption),
}

/// The Pods to evict from a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preemption {
    pub(super) node: String,
    /// The most important first.
    pub(super) victims: Vec<Arc<PodInfo>>,
}

/// Why no Pods are evicted.
#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    pub(super) message: String,
    pub(super) nomination: Nomination,
}

/// Chooses the Pods to evict for a Pod that fits nowhere because of `rejections`.
pub(super) fn plan(
    pod: &Arc<PodInfo>,
    view: &View<'_>,
    rejections: &Rejections,
) -> Result<Preemption, Refused> {
    if let Some(why) = ineligible(pod, view, rejections) {
        return Err(Refused {
            message: why.into(),
            nomination: Nomination::Keep,
        });
    }
    let mut candidates = Vec::new();
    let mut unhelpful = Rejections::new();
    for node in &view.nodes {
        let name = node.name();
        if !rejections.get(name).is_some_and(|it| it.resolvable) {
            continue;
        }
        match victims_on(pod, node, view) {
            Ok(victims) => candidates.push((name, victims)),
            Err(rejection) => {
                unhelpful.insert(name.to_owned(), rejection);
            }
        }
    }
    // `min_by_key` returns the first of equal ones, and the nodes are sorted by name.
    let best = candidates.into_iter().min_by_key(|(_, it)| it.cost());
    if let Some((node, victims)) = best {
        return Ok(Preemption {
            node: node.to_owned(),
            victims: victims.pods,
        });
    }
    let absent = "Preemption is not helpful for scheduling";
    Err(Refused {
        message: plan::summary(&unhelpful, view.nodes.len(), Some(absent)),
        nomination: Nomination::Clear,
    })
}

/// Returns why a Pod may not preempt others: its policy forbids it, or others are already being
/// evicted for it.
fn ineligible(pod: &PodInfo, view: &View<'_>, rejections: &Rejections) -> Option<&'static str> {
    let spec = pod.pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.preemption_policy.as_deref());
    if policy == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = view.node(pod.nominated()?)?;
    if rejections.get(node.name()).is_some_and(|it| !it.resolvable) {
        // Evicting Pods there cannot help.
        return None;
    }
    let is_leaving = |other: &Arc<PodInfo>| {
        let target = state::condition(&other.pod, "DisruptionTarget");
        let by_us = |it: &k8s_openapi::api::core::v1::PodCondition| {
            it.status == "True" && it.reason.as_deref() == Some(REASON)
        };
        other.priority < pod.priority && other.is_terminating() && target.is_some_and(by_us)
    };
    let waits = node.pods.values().any(is_leaving);
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Candidates for eviction on a node.
struct Victims {
    /// The most important first.
    pods: Vec<Arc<PodInfo>>,
    /// The number of these Pods whose eviction violates a disruption budget.
    violations: usize,
}

impl Victims {
    /// Orders nodes by the harm done: violated budgets, the highest priority, the sum of
    /// priorities, the number of Pods, and then how long the most important ones have run.
    fn cost(&self) -> impl Ord + use<> {
        let highest = self.pods.first().map(|pod| pod.priority);
        let sum: i64 = self
            .pods
            .iter()
            .map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1)
            .sum();
        let most_important = self.pods.iter().filter(|pod| Some(pod.priority) == highest);
        let earliest = most_important.map(|pod| pod.started_at()).min();
        (
            self.violations,
            highest,
            sum,
            self.pods.len(),
            Reverse(earliest),
        )
    }
}

fn victims_on(pod: &Arc<PodInfo>, node: &NodeInfo, view: &View<'_>) -> Result<Victims, Rejection> {
    let mut rest = node.clone();
    let mut potential: Vec<Arc<PodInfo>> = node
        .pods
        .values()
        .filter(|other| other.priority < pod.priority)
        .cloned()
        .collect();
    if potential.is_empty() {
        let why = "No preemption victims found for incoming pod";
        return Err(Rejection::new(why, false));
    }
    for other in &potential {
        rest.remove(&other.uid);
    }
    let fits = |rest: &NodeInfo| filter::check_with_nominated(pod, rest, &view.nodes, view, None);
    fits(&rest)?;
    let importance =
        |pod: &Arc<PodInfo>| (Reverse(pod.priority), pod.started_at(), pod.uid.clone());
    potential.sort_by_key(importance);
    let (violating, others) = split_by_budgets(potential, view.budgets);
    let mut victims = Victims {
        pods: Vec::new(),
        violations: 0,
    };
    let violating = violating.into_iter().map(|pod| (pod, 1));
    for (other, violation) in violating.chain(others.into_iter().map(|pod| (pod, 0))) {
        rest.add(other.clone());
        if fits(&rest).is_err() {
            rest.remove(&other.uid);
            victims.pods.push(other);
            victims.violations += violation;
        }
    }
    victims.pods.sort_by_key(importance);
    Ok(victims)
}

/// Splits Pods into those whose eviction would violate a budget, and the others.
fn split_by_budgets(
    pods: Vec<Arc<PodInfo>>,
    budgets: &[Arc<PodDisruptionBudget>],
) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut allowed: Vec<i32> = budgets
        .iter()
        .map(|budget| {
            let status = budget.status.as_ref();
            status
                .and_then(|it| it.disruptions_allowed)
                .unwrap_or_default()
        })
        .collect();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            if budget.metadata.namespace.as_deref() != Some(pod.namespace()) {
                continue;
            }
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let selects = selector.is_some_and(|selector| {
                meta::selects(&meta::selector(selector), &pod.pod.metadata)
            });
            let status = budget.status.as_ref();
            let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
            let is_counted =
                disrupted.is_some_and(|it| it.contains_key(meta::name(&pod.pod.metadata)));
            if selects && !is_counted {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        violates
    })
}

#[cfg(test)]
mod tests;
