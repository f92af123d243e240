//! Pod affinity and anti-affinity: which nodes a Pod may and should run on, given the Pods already
//! there.
//!
//! A required term of the Pod restricts its own nodes; a required anti-affinity term of an existing
//! Pod keeps the new one away as well. Preferred terms of both count towards the score.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use pintle::cache::Selector;

use super::{
    pod::PodInfo,
    world::{NodeInfo, View},
};
use crate::meta::{self, Labels};

/// The weight of a required affinity term of another Pod that the new one matches.
const REQUIRED_WEIGHT: i64 = 1;

/// The terms of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Terms {
    required: Vec<Term>,
    required_anti: Vec<Term>,
    preferred: Vec<(i64, Term)>,
    preferred_anti: Vec<(i64, Term)>,
}

/// A term: matching Pods in the same topology domain.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    topology: String,
    selector: Selector,
    namespaces: Vec<String>,
    namespace_selector: Selector,
}

impl Terms {
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let Some(affinity) = spec.and_then(|spec| spec.affinity.as_ref()) else {
            return Self::default();
        };
        let read = |terms: &Option<Vec<PodAffinityTerm>>| {
            let terms = terms.iter().flatten();
            terms.map(|term| Term::new(pod, term)).collect()
        };
        let weighted = |terms: &Option<Vec<WeightedPodAffinityTerm>>| {
            let terms = terms.iter().flatten();
            terms
                .map(|it| (it.weight.into(), Term::new(pod, &it.pod_affinity_term)))
                .collect()
        };
        let (mut all, with) = (Self::default(), affinity.pod_affinity.as_ref());
        if let Some(with) = with {
            all.required = read(&with.required_during_scheduling_ignored_during_execution);
            all.preferred = weighted(&with.preferred_during_scheduling_ignored_during_execution);
        }
        if let Some(apart) = &affinity.pod_anti_affinity {
            all.required_anti = read(&apart.required_during_scheduling_ignored_during_execution);
            let preferred = &apart.preferred_during_scheduling_ignored_during_execution;
            all.preferred_anti = weighted(preferred);
        }
        all
    }

    /// Returns whether there are any terms.
    pub(super) fn is_empty(&self) -> bool {
        let lists = [self.required.is_empty(), self.required_anti.is_empty()];
        lists == [true; 2] && !self.prefers()
    }

    fn prefers(&self) -> bool {
        !self.preferred.is_empty() || !self.preferred_anti.is_empty()
    }
}

impl Term {
    fn new(pod: &Pod, term: &PodAffinityTerm) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.extend(pod.metadata.namespace.clone());
        }
        Self {
            topology: term.topology_key.clone(),
            selector: label_selector(term.label_selector.as_ref(), |selector| {
                let same = term.match_label_keys.iter().flatten();
                add_keys(selector, pod, same, "In");
                let other = term.mismatch_label_keys.iter().flatten();
                add_keys(selector, pod, other, "NotIn");
            }),
            namespaces,
            namespace_selector: label_selector(term.namespace_selector.as_ref(), |_| {}),
        }
    }

    fn matches(&self, pod: &PodInfo, namespaces: &BTreeMap<String, Labels>) -> bool {
        let namespace = pod.namespace();
        let is_there = || {
            let none = Labels::new();
            let labels = namespaces.get(namespace).unwrap_or(&none);
            let labels = labels.iter();
            self.namespace_selector
                .matches(labels.map(|(key, value)| (key.as_str(), value.as_str())))
        };
        (self.namespaces.iter().any(|it| it == namespace) || is_there())
            && meta::selects(&self.selector, &pod.pod.metadata)
    }
}

/// Parses a selector. A missing or invalid one selects nothing.
pub(super) fn label_selector(
    selector: Option<&LabelSelector>,
    extend: impl FnOnce(&mut LabelSelector),
) -> Selector {
    let Some(selector) = selector else {
        return Selector::nothing();
    };
    let mut selector = selector.clone();
    extend(&mut selector);
    Selector::try_from(&selector).unwrap_or_else(|_| Selector::nothing())
}

/// Adds a requirement for each of the keys that the Pod has a label for, with its value.
pub(super) fn add_keys<'a>(
    selector: &mut LabelSelector,
    pod: &Pod,
    keys: impl Iterator<Item = &'a String>,
    operator: &str,
) {
    let labels = meta::labels(&pod.metadata);
    for (key, value) in keys.filter_map(|key| Some((key, labels.get(key)?))) {
        let expressions = selector.match_expressions.get_or_insert_default();
        expressions.push(LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.into(),
            values: Some(vec![value.clone()]),
        });
    }
}

/// The number of matching Pods per domain: a topology key and its value.
type Counts<'a> = BTreeMap<(&'a str, &'a str), i64>;

/// The domains that a Pod may be in.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    terms: Option<&'a Terms>,
    /// Domains with a Pod that keeps the new one away.
    repelling: Counts<'a>,
    /// Domains with Pods that match all required terms.
    attracting: Counts<'a>,
    /// Domains with Pods that match a required anti-affinity term.
    repelled: Counts<'a>,
    /// Whether the Pod matches its own terms. If so, the first Pod of a group can be scheduled.
    matches_itself: bool,
}

impl<'a> Filter<'a> {
    pub(super) fn new(
        pod: &'a PodInfo,
        nodes: &[&'a NodeInfo],
        namespaces: &BTreeMap<String, Labels>,
    ) -> Self {
        let terms = &pod.terms;
        let is_attracted = |other: &PodInfo| {
            let mut required = terms.required.iter();
            !terms.required.is_empty() && required.all(|term| term.matches(other, namespaces))
        };
        let mut filter = Self {
            terms: Some(terms),
            matches_itself: is_attracted(pod),
            ..Self::default()
        };
        let has_terms = !terms.required.is_empty() || !terms.required_anti.is_empty();
        for node in nodes {
            for other in node.pods.values() {
                for term in &other.terms.required_anti {
                    if term.matches(pod, namespaces) {
                        count(&mut filter.repelling, node, &term.topology, 1);
                    }
                }
                if !has_terms {
                    continue;
                }
                if is_attracted(other) {
                    for term in &terms.required {
                        count(&mut filter.attracting, node, &term.topology, 1);
                    }
                }
                for term in &terms.required_anti {
                    if term.matches(other, namespaces) {
                        count(&mut filter.repelled, node, &term.topology, 1);
                    }
                }
            }
        }
        filter
    }

    /// Returns why the Pod may not run on a node, and whether evicting other Pods could change
    /// that.
    pub(super) fn check(&self, node: &NodeInfo) -> Result<(), (&'static str, bool)> {
        let Some(terms) = self.terms else {
            return Ok(());
        };
        let has = |counts: &Counts<'_>, term: &Term| {
            let value = node.label(&term.topology);
            value.is_some_and(|value| counts.contains_key(&(term.topology.as_str(), value)))
        };
        let is_labelled = |term: &Term| node.label(&term.topology).is_some();
        let first = self.attracting.is_empty() && self.matches_itself;
        let attracted = |term: &Term| has(&self.attracting, term) || first;
        let required = &terms.required;
        if !required.iter().all(|it| is_labelled(it) && attracted(it)) {
            return Err(("node(s) didn't match pod affinity rules", false));
        }
        if terms.required_anti.iter().any(|it| has(&self.repelled, it)) {
            return Err(("node(s) didn't match pod anti-affinity rules", true));
        }
        let mut repelling = self.repelling.keys();
        if repelling.any(|(key, value)| node.label(key) == Some(value)) {
            let why = "node(s) didn't satisfy existing pods anti-affinity rules";
            return Err((why, true));
        }
        Ok(())
    }
}

fn count<'a>(counts: &mut Counts<'a>, node: &'a NodeInfo, topology: &'a str, weight: i64) {
    if let Some(value) = node.label(topology) {
        *counts.entry((topology, value)).or_default() += weight;
    }
}

/// Returns the score of each node, from 0 to 100.
pub(super) fn scores(pod: &PodInfo, nodes: &[&NodeInfo], view: &View<'_>) -> Vec<i64> {
    let mut weights = Counts::new();
    let (terms, namespaces) = (&pod.terms, view.namespaces);
    for node in &view.nodes {
        for other in node.pods.values() {
            if other.terms.is_empty() && !terms.prefers() {
                continue;
            }
            let mut add = |term: &'_ Term, matched: &PodInfo, weight: i64| {
                if term.matches(matched, namespaces)
                    && let Some(value) = node.label(&term.topology)
                    && let Some((key, _)) =
                        meta::labels(&node.node.metadata).get_key_value(&term.topology)
                {
                    *weights.entry((key.as_str(), value)).or_default() += weight;
                }
            };
            for (weight, term) in &terms.preferred {
                add(term, other, *weight);
            }
            for (weight, term) in &terms.preferred_anti {
                add(term, other, -weight);
            }
            for term in &other.terms.required {
                add(term, pod, REQUIRED_WEIGHT);
            }
            for (weight, term) in &other.terms.preferred {
                add(term, pod, *weight);
            }
            for (weight, term) in &other.terms.preferred_anti {
                add(term, pod, -weight);
            }
        }
    }
    let raw = nodes.iter().map(|node| {
        let weights = weights.iter();
        weights
            .filter(|((key, value), _)| node.label(key) == Some(value))
            .map(|(_, weight)| weight)
            .sum::<i64>()
    });
    let raw: Vec<i64> = raw.collect();
    let (min, max) = (raw.iter().min().copied(), raw.iter().max().copied());
    let (min, max) = (min.unwrap_or_default(), max.unwrap_or_default());
    let scaled = |score: i64| match max - min {
        0 => 0,
        range => 100 * (score - min) / range,
    };
    raw.into_iter().map(scaled).collect()
}

#[cfg(test)]
mod tests;
