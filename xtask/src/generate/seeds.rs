//! The table of seeds: the objects a kube-apiserver creates when it starts, as stored.
//!
//! Values that differ between servers (UID, time) become placeholders, and `managedFields`, which
//! many objects share, are written once.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::VERSION;

/// The resources with seeds, and the label that identifies the server's own objects.
pub(super) const RESOURCES: [(&str, &str, &str); 7] = [
    ("rbac.authorization.k8s.io", "clusterroles", BOOTSTRAPPING),
    (
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        BOOTSTRAPPING,
    ),
    ("rbac.authorization.k8s.io", "roles", BOOTSTRAPPING),
    ("rbac.authorization.k8s.io", "rolebindings", BOOTSTRAPPING),
    ("scheduling.k8s.io", "priorityclasses", ""),
    (
        "apiregistration.k8s.io",
        "apiservices",
        "kube-aggregator.kubernetes.io/automanaged=onstart",
    ),
    ("networking.k8s.io", "servicecidrs", ""),
];

const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping=rbac-defaults";

/// Renders the table from the list of each of [`RESOURCES`].
pub(super) fn table(lists: &[Value]) -> Result<String> {
    let mut managers: Vec<String> = Vec::new();
    let mut body = String::new();
    for ((group, plural, _), list) in RESOURCES.iter().zip(lists) {
        writeln!(body, "R\t{group}\t{plural}")?;
        let items = list["items"].as_array().context("list without items")?;
        for item in items.iter().filter(|item| is_system(plural, item)) {
            let line = object(item, &mut managers)?;
            writeln!(body, "{line}")?;
        }
    }
    let mut out = format!("# Kubernetes v{VERSION}. Written by `cargo xtask generate`.\n");
    for managers in managers {
        writeln!(out, "M\t{managers}")?;
    }
    Ok(out + &body)
}

/// Returns whether the server created the object, for kinds without an identifying label.
fn is_system(plural: &str, item: &Value) -> bool {
    let name = item["metadata"]["name"].as_str().unwrap_or_default();
    match plural {
        "priorityclasses" => name.starts_with("system-"),
        "servicecidrs" => name == "kubernetes",
        _ => true,
    }
}

fn object(item: &Value, all_managers: &mut Vec<String>) -> Result<String> {
    let mut item = item.as_object().context("not an object")?.clone();
    for field in ["apiVersion", "kind"] {
        item.remove(field);
    }
    let mut metadata = match item.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    let text = |metadata: &Map<String, Value>, field: &str| -> String {
        metadata[field].as_str().unwrap_or_default().to_owned()
    };
    let mut key = text(&metadata, "name");
    if metadata.contains_key("namespace") {
        key = format!("{}/{key}", text(&metadata, "namespace"));
    }
    if item.contains_key("aggregationRule") {
        // The controller manager fills these in.
        item.insert("rules".into(), json!([]));
    }
    metadata.remove("resourceVersion");
    // Owned by the controller manager.
    metadata.remove("finalizers");
    metadata.insert("uid".into(), "$uid".into());
    metadata.insert("creationTimestamp".into(), "$time".into());
    let managers = managers(metadata.remove("managedFields"));
    let at = all_managers.iter().position(|other| *other == managers);
    let at = at.unwrap_or_else(|| {
        all_managers.push(managers);
        all_managers.len() - 1
    });
    metadata.insert("managedFields".into(), "$managers".into());
    for condition in conditions(&mut item) {
        condition["lastTransitionTime"] = "$time".into();
    }
    let labels = metadata.get("labels").and_then(Value::as_object);
    let labels: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let metadata = Value::Object(metadata).to_string();
    let metadata = metadata.replace("\"$managers\"", "$managers");
    let rest = Value::Object(item).to_string();
    let (Some(metadata), Some(rest)) = (metadata.strip_prefix('{'), rest.strip_prefix('{')) else {
        anyhow::bail!("{key} is not an object");
    };
    let line = format!("O\t{key}\t{}\t{at}\t{metadata},{rest}", labels.join(","));
    let times = line.matches("$time").count();
    let placeholders = times + line.matches("$uid").count() + line.matches("$managers").count();
    ensure!(
        line.matches('$').count() == placeholders && !line.contains('\n'),
        "{key} contains a separator of the table"
    );
    Ok(line)
}

fn conditions(item: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let status = item.get_mut("status");
    let conditions = status.and_then(|status| status.get_mut("conditions"));
    conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Returns the `managedFields` entries of the server's own managers.
fn managers(value: Option<Value>) -> String {
    let mut managers = match value {
        Some(Value::Array(managers)) => managers,
        _ => Vec::new(),
    };
    managers.retain(|entry| {
        let name = entry["manager"].as_str().unwrap_or_default();
        matches!(
            name,
            "kube-apiserver" | "kubernetes-service-cidr-controller"
        )
    });
    for entry in &mut managers {
        entry["time"] = "$time".into();
    }
    Value::Array(managers).to_string()
}
