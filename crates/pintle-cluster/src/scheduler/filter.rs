//! Finds the nodes a Pod can run on, and why it cannot run on the others, in the order and wording
//! of Kubernetes.

use std::collections::BTreeMap;

use super::{
    affinity,
    pod::PodInfo,
    spread,
    world::{NodeInfo, View},
};
use crate::{meta::Labels, pods::fit};

/// Why a node cannot run a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reasons: Vec<String>,
    /// Whether the node could run the Pod if other Pods were evicted.
    pub(super) resolvable: bool,
}

impl Rejection {
    pub(super) fn new(reason: impl Into<String>, resolvable: bool) -> Self {
        Self {
            reasons: vec![reason.into()],
            resolvable,
        }
    }
}

/// Checks a Pod against nodes. Holds the state that depends on all nodes.
pub(super) struct Filter<'a> {
    pod: &'a PodInfo,
    affinity: affinity::Filter<'a>,
    spread: spread::Filter<'a>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(
        pod: &'a PodInfo,
        nodes: &[&'a NodeInfo],
        namespaces: &BTreeMap<String, Labels>,
    ) -> Self {
        let has_terms = !pod.terms.is_empty();
        let mut others = nodes.iter().flat_map(|node| node.pods.values());
        let affinity = if has_terms || others.any(|other| !other.terms.is_empty()) {
            affinity::Filter::new(pod, nodes, namespaces)
        } else {
            affinity::Filter::default()
        };
        Self {
            pod,
            affinity,
            spread: spread::Filter::new(pod, nodes),
        }
    }

    /// Returns why the Pod cannot run on a node.
    pub(super) fn check(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(spec) = &self.pod.pod.spec else {
            return Err(Rejection::new(
                "node(s) didn't match Pod's node affinity/selector",
                false,
            ));
        };
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        let node_spec = node.node.spec.as_ref();
        let cordoned = node_spec.and_then(|spec| spec.unschedulable);
        if cordoned == Some(true) && !fit::tolerates_cordon(tolerations) {
            return Err(Rejection::new("node(s) were unschedulable", false));
        }
        if !fit::tolerates(tolerations, &node.node, |effect| {
            effect != "PreferNoSchedule"
        }) {
            return Err(Rejection::new("node(s) had untolerated taint(s)", false));
        }
        if !fit::selects(spec, &node.node) {
            let why = "node(s) didn't match Pod's node affinity/selector";
            return Err(Rejection::new(why, false));
        }
        let mut others = node.pods.values();
        if !self.pod.ports.is_empty()
            && others.any(|other| self.pod.ports.iter().any(|it| it.conflicts(&other.ports)))
        {
            let why = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::new(why, true));
        }
        resources(self.pod, node)?;
        let refused = |(why, resolvable)| Rejection::new(why, resolvable);
        self.spread.check(node).map_err(refused)?;
        self.affinity.check(node).map_err(refused)
    }
}

/// Checks that a node has the resources that a Pod requests.
fn resources(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let of = |amounts: &super::pod::Resources, name: &str| {
        amounts.get(name).copied().unwrap_or_default()
    };
    let mut rejection = Rejection {
        reasons: Vec::new(),
        resolvable: true,
    };
    let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if pods >= of(&node.allocatable, "pods") {
        rejection.reasons.push("Too many pods".into());
    }
    for (name, wanted) in pod.requests.iter().filter(|(_, wanted)| **wanted > 0) {
        let allocatable = of(&node.allocatable, name);
        if *wanted > allocatable.saturating_sub(of(&node.requested, name)) {
            rejection.reasons.push(format!("Insufficient {name}"));
            rejection.resolvable &= *wanted <= allocatable;
        }
    }
    if rejection.reasons.is_empty() {
        Ok(())
    } else {
        Err(rejection)
    }
}

/// Checks a Pod against a node, twice if other Pods are nominated there: with them, so that it does
/// not take their space, and without them, because they may end up elsewhere.
///
/// `node` may differ from the one in `nodes`: preemption tries nodes without some of their Pods.
pub(super) fn check_with_nominated(
    pod: &PodInfo,
    node: &NodeInfo,
    nodes: &[&NodeInfo],
    view: &View<'_>,
    filter: Option<&Filter<'_>>,
) -> Result<(), Rejection> {
    let mut nominated = view.nominated_for(pod, node.name()).peekable();
    if nominated.peek().is_some() {
        let mut filled = node.clone();
        nominated.for_each(|other| filled.add(other.clone()));
        let nodes = replaced(nodes, &filled);
        Filter::new(pod, &nodes, view.namespaces).check(&filled)?;
    }
    match filter {
        Some(filter) => filter.check(node),
        None => Filter::new(pod, &replaced(nodes, node), view.namespaces).check(node),
    }
}

/// Returns the nodes with one of them replaced.
fn replaced<'a>(nodes: &[&'a NodeInfo], with: &'a NodeInfo) -> Vec<&'a NodeInfo> {
    let nodes = nodes.iter();
    nodes
        .map(|node| {
            if node.name() == with.name() {
                with
            } else {
                node
            }
        })
        .collect()
}

/// Returns the names of the only nodes that the affinity of a Pod allows, if it names any.
pub(super) fn named_nodes(pod: &PodInfo) -> Option<Vec<String>> {
    let affinity = pod.pod.spec.as_ref()?.affinity.as_ref()?;
    let required = affinity.node_affinity.as_ref()?;
    let required = required
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut names: Vec<String> = Vec::new();
    for term in &required.node_selector_terms {
        let fields = term.match_fields.iter().flatten();
        let mut named = fields
            .filter(|field| field.key == "metadata.name" && field.operator == "In")
            .map(|field| field.values.clone().unwrap_or_default());
        let first = named.next()?;
        let common = named.fold(first, |mut common, next| {
            common.retain(|name| next.contains(name));
            common
        });
        names.extend(common);
    }
    (!required.node_selector_terms.is_empty()).then_some(names)
}

/// Returns whether the labels of other Pods decide where the Pod fits, so that a change to them may
/// help it.
pub(super) fn depends_on_neighbours(pod: &PodInfo) -> bool {
    pod.spread.is_required() || !pod.terms.is_empty()
}
