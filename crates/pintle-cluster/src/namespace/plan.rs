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
    /// Adds the finalizers of each object of a kind that remains after the deletion.
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
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn content(plural: &str) -> Content {
        Content {
            group: String::new(),
            version: "v1".into(),
            plural: plural.into(),
            kind: String::new(),
        }
    }

    fn terminating() -> Namespace {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "finalizers": ["kubernetes", "example.com/mine"] },
            "status": { "phase": "Terminating" },
        }))
        .unwrap()
    }

    fn value(status: &NamespaceStatus, type_: &str) -> (String, String) {
        let condition = status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_)
            .unwrap();
        (condition.status.clone(), condition.message.clone().unwrap())
    }

    /// Proves namespaces/emptied.
    #[test]
    fn conditions_show_remaining_objects_and_finalizers() {
        let mut namespace = terminating();
        let held = ["example.com/hold".to_owned()];
        let mut report = Report::default();
        report.add(&content("configmaps"), [&held[..], &[]].into_iter());
        assert!(!report.is_clean());

        let first = status(&namespace, &report, at(0)).unwrap();
        assert_eq!(first.conditions.as_ref().unwrap().len(), 5);
        let (remaining, message) = value(&first, "NamespaceContentRemaining");
        assert_eq!(remaining, "True");
        assert!(
            message.contains("configmaps. has 2 resource instances"),
            "{message}"
        );
        let (held, message) = value(&first, "NamespaceFinalizersRemaining");
        assert_eq!(held, "True");
        assert!(message.contains("example.com/hold in 1"), "{message}");
        assert_eq!(value(&first, "NamespaceDeletionContentFailure").0, "False");

        namespace.status = Some(first);
        assert_eq!(status(&namespace, &report, at(9)), None, "unchanged");
        let done = status(&namespace, &Report::default(), at(9)).unwrap();
        assert_eq!(value(&done, "NamespaceContentRemaining").0, "False");
    }

    /// Proves namespaces/emptied.
    #[test]
    fn only_our_finalizer_is_removed() {
        let namespace = terminating();
        assert!(needs_emptying(&namespace));
        let finalized = finalized(&namespace);
        assert!(!needs_emptying(&finalized));
        assert_eq!(
            finalized.spec.unwrap().finalizers.unwrap(),
            ["example.com/mine"]
        );

        let active = Namespace {
            metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta::default(),
            ..namespace
        };
        assert!(!needs_emptying(&active));
    }
}
