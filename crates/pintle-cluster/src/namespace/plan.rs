//! The status and finalizer of a terminating namespace.
//!
//! The server marks a deleted namespace as terminating and rejects creations in it. The loop then
//! deletes Pods first, so that no workload runs without its Secrets and policies, then all other
//! kinds, and finally removes the finalizer of the namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};

use crate::meta;

/// The entry of `spec.finalizers` that this loop removes.
pub(crate) const FINALIZER: &str = "kubernetes";

/// A deletable, namespaced kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Content {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
}

impl Content {
    pub(crate) fn is_pods(&self) -> bool {
        self.group.is_empty() && self.plural == "pods"
    }
}

/// The result of one pass over a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Why discovery failed.
    pub(crate) discovery_error: Option<String>,
    /// Kinds whose objects could not be deleted, with the cause.
    pub(crate) delete_errors: Vec<String>,
    /// Remaining objects by `plural.group`.
    pub(crate) remaining: BTreeMap<String, usize>,
    /// Remaining objects by finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

impl Report {
    /// Adds the objects of a kind that remain after the deletion, each given as its finalizers.
    pub(crate) fn add<'a>(
        &mut self,
        content: &Content,
        remaining: impl Iterator<Item = &'a [String]>,
    ) {
        for finalizers in remaining {
            let kind = format!("{}.{}", content.plural, content.group);
            *self.remaining.entry(kind).or_default() += 1;
            for finalizer in finalizers {
                *self.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
    }

    /// Returns whether everything was checked and nothing remains.
    pub(crate) fn is_clean(&self) -> bool {
        self.discovery_error.is_none() && self.delete_errors.is_empty() && self.remaining.is_empty()
    }
}

/// Returns whether the namespace is being deleted and still has the finalizer of this loop.
pub(crate) fn needs_emptying(namespace: &Namespace) -> bool {
    meta::is_being_deleted(&namespace.metadata) && has_finalizer(namespace)
}

fn has_finalizer(namespace: &Namespace) -> bool {
    let mut finalizers = namespace
        .spec
        .iter()
        .flat_map(|spec| spec.finalizers.iter().flatten());
    finalizers.any(|finalizer| finalizer == FINALIZER)
}

/// Returns the namespace without the finalizer of this loop.
pub(crate) fn finalized(namespace: &Namespace) -> Namespace {
    let mut namespace = namespace.clone();
    if let Some(finalizers) = namespace
        .spec
        .as_mut()
        .and_then(|spec| spec.finalizers.as_mut())
    {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    namespace
}

/// Returns the status for a report, or `None` if it is unchanged.
pub(crate) fn status(
    namespace: &Namespace,
    report: &Report,
    now: Timestamp,
) -> Option<NamespaceStatus> {
    let before = namespace.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone().unwrap_or_default();
    for new in conditions_of(report) {
        match conditions.iter_mut().find(|old| old.type_ == new.type_) {
            Some(old) => {
                let same = old.status == new.status;
                let since = old.last_transition_time.take().filter(|_| same);
                let since = since.or_else(|| Some(meta::time(now)));
                *old = NamespaceCondition {
                    last_transition_time: since,
                    ..new
                };
            }
            None => conditions.push(NamespaceCondition {
                last_transition_time: Some(meta::time(now)),
                ..new
            }),
        }
    }
    let status = NamespaceStatus {
        phase: Some("Terminating".into()),
        conditions: Some(conditions),
    };
    (status != before).then_some(status)
}

fn conditions_of(report: &Report) -> [NamespaceCondition; 5] {
    let list = |counts: &BTreeMap<String, usize>, what: &str| {
        let lines: Vec<_> = counts
            .iter()
            .map(|(name, count)| format!("{name} {what} {count}"))
            .collect();
        lines.join(", ")
    };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let discovery = report.discovery_error.clone();
    let failures = some(report.delete_errors.join(", "));
    let remaining = some(
        report
            .remaining
            .iter()
            .map(|(kind, count)| format!("{kind} has {count} resource instances"))
            .collect::<Vec<_>>()
            .join(", "),
    );
    let finalizers = some(list(&report.finalizers, "in"));
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            discovery.map(|error| ("DiscoveryFailed", error)),
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            failures.map(|errors| {
                let count = report.delete_errors.len();
                let message =
                    format!("Failed to delete all resource types, {count} remaining: {errors}");
                ("ContentDeletionFailed", message)
            }),
            (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        condition(
            "NamespaceContentRemaining",
            remaining.map(|list| {
                ("SomeResourcesRemain", format!("Some resources are remaining: {list}"))
            }),
            ("ContentRemoved", "All content successfully removed"),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            finalizers.map(|list| {
                let message = format!(
                    "Some content in the namespace has finalizers remaining: {list} resource instances"
                );
                ("SomeFinalizersRemain", message)
            }),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ]
}

fn condition(type_: &str, problem: Option<(&str, String)>, ok: (&str, &str)) -> NamespaceCondition {
    let (status, reason, message) = match problem {
        Some((reason, message)) => ("True", reason, message),
        None => ("False", ok.0, ok.1.to_owned()),
    };
    NamespaceCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_transition_time: None,
    }
}

#[cfg(test)]
mod tests;
