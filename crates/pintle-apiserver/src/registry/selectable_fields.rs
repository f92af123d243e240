//! The fields that field selectors support, and how to read them.

use serde_json::Value;

use crate::meta::Tree;

/// A field that a selector can refer to.
#[derive(Debug, Clone)]
pub(crate) struct SelectableField {
    /// The field's name in a selector.
    pub(crate) label: String,
    path: Vec<String>,
    /// The field to use if this one is empty.
    or: Option<Vec<String>>,
    /// The value of a missing field.
    missing: &'static str,
}

impl SelectableField {
    fn new(label: &str, path: &str, missing: &'static str) -> Self {
        Self {
            label: label.to_owned(),
            path: parts(path),
            or: None,
            missing,
        }
    }

    /// Sets the field to use if this one is empty.
    fn or(mut self, path: &str) -> Self {
        self.or = Some(parts(path));
        self
    }

    /// Creates a field of a custom resource from a JSON path (`.spec.color`).
    pub(crate) fn custom(json_path: &str) -> Self {
        let path = json_path.trim_start_matches('.');
        Self::new(path, path, "")
    }

    /// Returns the field's value as a string.
    pub(crate) fn read(&self, object: &Tree) -> String {
        let value = self.read_at(&self.path, object);
        match &self.or {
            Some(path) if value.is_empty() => self.read_at(path, object),
            _ => value,
        }
    }

    fn read_at(&self, path: &[String], object: &Tree) -> String {
        let mut parts = path.iter();
        let mut at = parts.next().and_then(|first| object.get(first));
        for part in parts {
            at = at.and_then(|value| value.get(part));
        }
        match at {
            None | Some(Value::Null) => self.missing.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => items
                .iter()
                .filter_map(|item| item.get("ip").and_then(Value::as_str))
                .collect::<Vec<_>>()
                .join(","),
            Some(other) => other.to_string(),
        }
    }
}

fn parts(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

/// Returns the selectable fields of a built-in kind besides name and namespace. Paths refer to the
/// stored form, which for events is core `v1`.
pub(crate) fn builtin(group: &str, plural: &str) -> Vec<SelectableField> {
    let same = |labels: &[&str]| -> Vec<SelectableField> {
        labels
            .iter()
            .map(|label| SelectableField::new(label, label, ""))
            .collect()
    };
    let renamed = |fields: &[(&str, &str, &'static str)]| -> Vec<SelectableField> {
        fields
            .iter()
            .map(|(l, p, missing)| SelectableField::new(l, p, missing))
            .collect()
    };
    match (group, plural) {
        ("", "pods") => {
            let mut fields = same(&[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ]);
            fields.extend(renamed(&[
                ("spec.host", "spec.nodeName", ""),
                ("spec.hostNetwork", "spec.hostNetwork", "false"),
            ]));
            fields
        }
        ("", "events") => {
            let mut fields = event_object("involvedObject");
            fields.extend(same(&["reason", "type"]));
            fields.extend(same(&["reportingComponent"]));
            fields.push(event_source("source"));
            fields
        }
        ("events.k8s.io", "events") => {
            let mut fields = event_object("regarding");
            fields.extend(same(&["reason", "type"]));
            // `source` has no label in this group, but both groups share stored field values.
            fields.extend(renamed(&[(
                "reportingController",
                "reportingComponent",
                "",
            )]));
            fields.push(event_source(""));
            fields
        }
        ("", "nodes") => renamed(&[("spec.unschedulable", "spec.unschedulable", "false")]),
        ("", "namespaces") => same(&["status.phase"]),
        ("", "secrets") => same(&["type"]),
        ("", "services") => same(&["spec.clusterIP", "spec.type"]),
        ("", "replicationcontrollers") | ("apps", "replicasets") => {
            renamed(&[("status.replicas", "status.replicas", "0")])
        }
        ("batch", "jobs") => renamed(&[("status.successful", "status.succeeded", "0")]),
        ("certificates.k8s.io", "certificatesigningrequests") => same(&["spec.signerName"]),
        ("resource.k8s.io", "resourceslices") => same(&["spec.nodeName", "spec.driver"]),
        _ => Vec::new(),
    }
}

/// The source of an event. Newer events set `reportingComponent` instead.
fn event_source(label: &str) -> SelectableField {
    SelectableField::new(label, "source.component", "").or("reportingComponent")
}

fn event_object(label: &str) -> Vec<SelectableField> {
    [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ]
    .iter()
    .map(|field| {
        SelectableField::new(
            &format!("{label}.{field}"),
            &format!("involvedObject.{field}"),
            "",
        )
    })
    .collect()
}
