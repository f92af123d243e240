//! Decides which nodes run a Pod of a DaemonSet, and builds the Pod for a node.
//!
//! Pure functions of the set and a node.

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{
            Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
            PodTemplateSpec, Toleration,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{meta, pods::fit, revisions};

/// The annotation of a set with its template's generation. Deprecated, but still written and
/// honoured upstream.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// The label of a Pod with the template generation it was created from.
const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";

/// The field of a node that the affinity of a Pod names.
const NODE_NAME: &str = "metadata.name";

/// Whether a node runs a Pod of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Whether a missing Pod is created.
    pub(super) runs: bool,
    /// Whether an existing Pod may stay.
    pub(super) stays: bool,
}

/// Decides whether a node runs a Pod of a set.
pub(super) struct Placement {
    spec: PodSpec,
}

impl Placement {
    pub(super) fn of(set: &DaemonSet) -> Self {
        let mut spec = template(set).spec.unwrap_or_default();
        add_tolerations(&mut spec);
        Self { spec }
    }

    /// Considers the node name, node selector, required affinity and taints. Resources do not
    /// matter: a Pod that does not fit stays pending.
    pub(super) fn on(&self, node: &Node) -> Fit {
        let named = self.spec.node_name.as_ref().filter(|it| !it.is_empty());
        let is_named = named.is_none_or(|it| *it == meta::name(&node.metadata));
        if !is_named || !fit::selects(&self.spec, node) {
            return Fit {
                runs: false,
                stays: false,
            };
        }
        let tolerations = self.spec.tolerations.as_deref().unwrap_or_default();
        let evicts = |effect: &str| effect == "NoExecute";
        let repels = |effect: &str| effect == "NoSchedule" || evicts(effect);
        Fit {
            runs: fit::tolerates(tolerations, node, repels),
            stays: fit::tolerates(tolerations, node, evicts),
        }
    }
}

fn template(set: &DaemonSet) -> PodTemplateSpec {
    let spec = set.spec.as_ref();
    spec.map(|spec| spec.template.clone()).unwrap_or_default()
}

/// Adds the tolerations of every DaemonSet's Pods: they stay on failing nodes, and start on nodes
/// that are cordoned or under pressure.
fn add_tolerations(spec: &mut PodSpec) {
    let host_network = spec.host_network.unwrap_or_default();
    let tolerations = spec.tolerations.get_or_insert_default();
    let automatic = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        (fit::UNSCHEDULABLE, "NoSchedule"),
    ];
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    for (key, effect) in automatic.into_iter().chain(host_network.then_some(network)) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        // A toleration with a limited duration is replaced.
        let is_same = |it: &&mut Toleration| {
            let unlimited = Toleration {
                toleration_seconds: None,
                ..(*it).clone()
            };
            unlimited == toleration
        };
        match tolerations.iter_mut().find(is_same) {
            Some(same) => *same = toleration,
            None => tolerations.push(toleration),
        }
    }
}

/// Builds the Pod for a node, which it names in a node affinity; the scheduler binds it.
pub(super) fn pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let template = template(set);
    let from = template.metadata.unwrap_or_default();
    let mut labels = from.labels.unwrap_or_default();
    if let Some(generation) = template_generation(set) {
        labels.insert(POD_TEMPLATE_GENERATION.into(), generation.to_string());
    }
    labels.insert(revisions::HASH.into(), hash.into());
    let mut spec = template.spec.unwrap_or_default();
    add_tolerations(&mut spec);
    spec.affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default()
        .required_during_scheduling_ignored_during_execution = Some(only(node));
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: meta::controller_reference(set).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// Returns a selector of one node. The template's own requirements are dropped, because the node
/// meets them.
fn only(node: &str) -> NodeSelector {
    let requirement = NodeSelectorRequirement {
        key: NODE_NAME.into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![requirement]),
            ..NodeSelectorTerm::default()
        }],
    }
}

/// Returns the node that a Pod is bound to, or else the one named in its affinity.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(bound) = spec.node_name.as_deref().filter(|it| !it.is_empty()) {
        return Some(bound);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let named = fields.find(|it| it.key == NODE_NAME && it.operator == "In")?;
    match named.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

/// Returns whether a Pod was created from the current template, judging by its revision or
/// generation.
pub(super) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let labels = meta::labels(&pod.metadata);
    let generation = template_generation(set).map(|it| it.to_string());
    has_hash(pod, hash)
        || generation.is_some() && labels.get(POD_TEMPLATE_GENERATION) == generation.as_ref()
}

pub(super) fn has_hash(pod: &Pod, hash: &str) -> bool {
    let label = meta::labels(&pod.metadata).get(revisions::HASH);
    !hash.is_empty() && label.is_some_and(|it| it == hash)
}

fn template_generation(set: &DaemonSet) -> Option<i64> {
    meta::annotation(&set.metadata, TEMPLATE_GENERATION)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
