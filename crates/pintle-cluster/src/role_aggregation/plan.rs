//! Computes the rules of an aggregated role.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use pintle::cache::Selector;

use crate::meta;

/// Returns the rules that an aggregated role should have, without duplicates and ordered by
/// selector and then by role name, or `None` if it already has them.
///
/// `roles` must be ordered by name.
pub(crate) fn rules(role: &ClusterRole, roles: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let aggregation = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        // An invalid selector selects nothing, while an empty one selects every role.
        let Ok(selector) = Selector::try_from(selector) else {
            continue;
        };
        let selected = roles.iter().filter(|other| {
            other.metadata.name != role.metadata.name && meta::selects(&selector, &other.metadata)
        });
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

#[cfg(test)]
mod tests;
