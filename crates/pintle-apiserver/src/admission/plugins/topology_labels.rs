//! `PodTopologyLabels`: a Pod on a node gets the labels with the node's zone and region.

use serde_json::Value;

use super::cluster_object;
use crate::{
    admission::{Operation, Plugin, Request},
    api::{Api, ApiError},
    meta::{self, Tree},
};

/// The labels that are copied.
const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

#[derive(Debug)]
pub(crate) struct TopologyLabels;

impl Plugin for TopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        request.operation == Operation::Create
            && matches!(request.sub, "" | "binding")
            && request.is_for("", "pods")
    }

    /// Labels a new Pod with a node, or a binding, whose labels the Pod gets.
    fn mutate(&self, api: &Api, request: &Request<'_>, object: &mut Tree) -> Result<(), ApiError> {
        let field = |parent: &str, name: &str| -> &str {
            let value = object.get(parent).and_then(|parent| parent.get(name));
            value.and_then(Value::as_str).unwrap_or_default()
        };
        let node = match request.sub {
            "binding" if field("target", "kind") == "Node" => field("target", "name"),
            "binding" => "",
            _ => field("spec", "nodeName"),
        };
        let node = match node {
            "" => None,
            name => cluster_object(api, "", "nodes", name),
        };
        let labels = node.as_ref().map(|node| &node["metadata"]["labels"]);
        for label in LABELS {
            let Some(value) = labels.and_then(|labels| labels.get(label)) else {
                continue;
            };
            let own = meta::metadata(object).entry("labels");
            let own = own.or_insert_with(|| Value::Object(Tree::new()));
            if !own.is_object() {
                *own = Value::Object(Tree::new());
            }
            own[label] = value.clone();
        }
        Ok(())
    }
}
