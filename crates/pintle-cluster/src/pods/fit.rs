//! Decides which nodes a Pod may run on: node selectors, node affinity, taints and tolerations.
//!
//! Pure functions, shared by the scheduler, the `DaemonSet` loop and the eviction by taints.

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

use crate::meta;

/// The taint of cordoned nodes.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Returns whether the node selector and the required node affinity of a Pod match a node.
pub(crate) fn selects(spec: &PodSpec, node: &Node) -> bool {
    let labels = meta::labels(&node.metadata);
    let mut selector = spec.node_selector.iter().flatten();
    let affinity = spec.affinity.as_ref();
    let required = affinity
        .and_then(|it| it.node_affinity.as_ref())
        .and_then(|it| {
            it.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    selector.all(|(key, value)| labels.get(key) == Some(value))
        && required.is_none_or(|required| {
            let mut terms = required.node_selector_terms.iter();
            terms.any(|term| matches(term, node))
        })
}

/// Returns whether all requirements of a term match. An empty term matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = meta::labels(&node.metadata);
    let name = meta::name(&node.metadata);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |key: &str| (key == "metadata.name").then_some(name);
    let label = |key: &str| labels.get(key).map(String::as_str);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|it| is_met(it, label(&it.key)))
        && fields.iter().all(|it| is_met(it, field(&it.key)))
}

/// Returns whether a label or field meets a requirement; `value` is `None` if it is missing.
fn is_met(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|it| it == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || {
        let limit = values.first().and_then(|limit| number(limit))?;
        Some(value.and_then(number)?.cmp(&limit))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

/// Returns whether every taint of a node whose effect `concerns` accepts is matched by a
/// toleration.
pub(crate) fn tolerates(
    tolerations: &[Toleration],
    node: &Node,
    concerns: impl Fn(&str) -> bool,
) -> bool {
    let taints = node.spec.iter();
    let mut taints = taints
        .flat_map(|spec| spec.taints.iter().flatten())
        .filter(|taint| concerns(&taint.effect));
    taints.all(|taint| tolerations.iter().any(|it| matches_taint(it, taint)))
}

/// Counts the `PreferNoSchedule` taints of a node that no toleration matches.
pub(crate) fn untolerated_preferences(tolerations: &[Toleration], node: &Node) -> i64 {
    let taints = node.spec.iter();
    let taints = taints
        .flat_map(|spec| spec.taints.iter().flatten())
        .filter(|taint| taint.effect == "PreferNoSchedule")
        .filter(|taint| !tolerations.iter().any(|it| matches_taint(it, taint)));
    i64::try_from(taints.count()).unwrap_or(i64::MAX)
}

/// Returns the sum of the weights of the preferred node affinity terms that match a node.
pub(crate) fn preference(spec: &PodSpec, node: &Node) -> i64 {
    let affinity = spec.affinity.as_ref();
    let preferred = affinity
        .and_then(|it| it.node_affinity.as_ref())
        .and_then(|it| {
            it.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let terms = preferred.into_iter().flatten();
    terms
        .filter(|term| matches(&term.preference, node))
        .map(|term| i64::from(term.weight))
        .sum()
}

/// Returns whether one of the tolerations matches the taint of cordoned nodes.
pub(crate) fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let taint = Taint {
        key: UNSCHEDULABLE.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    tolerations.iter().any(|it| matches_taint(it, &taint))
}

pub(crate) fn matches_taint(toleration: &Toleration, taint: &Taint) -> bool {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let key = some(&toleration.key);
    key.as_ref().is_none_or(|key| *key == taint.key)
        && some(&toleration.effect).is_none_or(|effect| effect == taint.effect)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => {
                key.is_some() && some(&toleration.value) == some(&taint.value)
            }
            // `Lt` and `Gt` are behind a feature gate that is off by default.
            Some(_) => false,
        }
}

#[cfg(test)]
mod tests;
