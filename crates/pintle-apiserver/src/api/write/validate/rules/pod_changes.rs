//! Validation of Pod updates: which fields may change.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Errors, absent, blank, entries, items, text};
use crate::schema::field::{FieldError, Path};

/// Validates a Pod update. Unchanged fields are not validated again.
pub(super) fn change(pod: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (&pod["spec"], &old["spec"]);
    let at = Path::At("spec");
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(spec) != count(before) {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(at.child(list), why));
            return;
        }
        for (i, one) in items(&spec[list]) {
            let here = at.child(list);
            if absent(&one["image"]) {
                errors.push(FieldError::required(here.index(i).child("image"), ""));
            }
        }
    }
    let deadline = |spec: &Value| spec["activeDeadlineSeconds"].as_i64();
    match (deadline(before), deadline(spec)) {
        (Some(old), Some(new)) if new > old => {
            let why = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(
                at.child("activeDeadlineSeconds"),
                new,
                why,
            ));
            return;
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(
                at.child("activeDeadlineSeconds"),
                Value::Null,
                why,
            ));
            return;
        }
        _ => {}
    }
    gates(spec, before, errors);
    let tolerations = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let (old, new) = (tolerations(before), tolerations(spec));
    let kept = old.iter().all(|one| {
        // Only `tolerationSeconds` may change.
        let timeless = |toleration: &Value| {
            let mut toleration = toleration.clone();
            blank(&mut toleration, "tolerationSeconds");
            toleration
        };
        new.iter().any(|other| timeless(other) == timeless(one))
    });
    let short = before["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|s| s < 0);
    let gated = !absent(&before["schedulingGates"]);
    if gated {
        node_selector(&spec["nodeSelector"], &before["nodeSelector"], errors);
        node_affinity(spec, before, errors);
    }
    let frozen = |spec: &Value| {
        let mut spec = spec.clone();
        if gated {
            // Validated above.
            blank(&mut spec, "nodeSelector");
            if let Some(affinity) = spec.get_mut("affinity") {
                blank(affinity, "nodeAffinity");
            }
            if absent(&spec["affinity"]) {
                blank(&mut spec, "affinity");
            }
        }
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for one in containers.into_iter().flatten() {
                blank(one, "image");
            }
        }
        for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            blank(&mut spec, name);
        }
        // A negative grace period may be changed to 1.
        if short
            && matches!(
                spec["terminationGracePeriodSeconds"].as_i64(),
                Some(i64::MIN..=1)
            )
        {
            blank(&mut spec, "terminationGracePeriodSeconds");
        }
        spec
    };
    if !kept || frozen(spec) != frozen(before) {
        let why = "pod updates may not change fields other than \
                   `spec.containers[*].image`,`spec.initContainers[*].image`,\
                   `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
                   tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if \
                   it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// Checks that scheduling gates are only removed, never added.
fn gates(spec: &Value, before: &Value, errors: &mut Errors) {
    let at = Path::At("spec.schedulingGates");
    let old: BTreeSet<&str> = items(&before["schedulingGates"])
        .map(|(_, gate)| text(gate, "name"))
        .collect();
    for (i, gate) in items(&spec["schedulingGates"]) {
        let name = text(gate, "name");
        if !old.contains(name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(at.index(i).child("name"), why));
        }
    }
}

/// Checks that a gated Pod only narrows its node selector.
fn node_selector(new: &Value, old: &Value, errors: &mut Errors) {
    if entries(old).any(|(key, value)| new.get(key) != Some(value)) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", new.clone(), why));
    }
}

fn node_affinity(spec: &Value, before: &Value, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |spec: &Value| {
        let required = &spec["affinity"]["nodeAffinity"][REQUIRED];
        required["nodeSelectorTerms"].clone()
    };
    let (new, old) = (terms(spec), terms(before));
    let count = |terms: &Value| terms.as_array().map_or(0, Vec::len);
    if count(&old) == 0 {
        return;
    }
    let affinity = Path::At("spec.affinity.nodeAffinity");
    let required = affinity.child(REQUIRED);
    let at = required.child("nodeSelectorTerms");
    if count(&old) != count(&new) {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(at, new, why));
        return;
    }
    for (i, term) in items(&new) {
        if !only_adds(term, &old[i]) {
            let why = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(at.index(i), term.clone(), why));
        }
    }
}

/// Returns true if `new` only appends requirements to `old`. An empty term matches nothing and must
/// stay empty.
fn only_adds(new: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| absent(&old[*list])) {
        return lists.iter().all(|list| absent(&new[*list]));
    }
    lists.iter().all(|list| {
        let requirements = |term: &Value| term[*list].as_array().cloned().unwrap_or_default();
        requirements(new).starts_with(&requirements(old))
    })
}
