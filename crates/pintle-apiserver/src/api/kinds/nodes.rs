//! Nodes: a new Node is not ready.

use serde_json::json;

use super::{
    Kind,
    fields::{ensure_list, ensure_map},
};
use crate::meta::Tree;

/// `nodes`.
#[derive(Debug)]
pub(super) struct Nodes;

impl Kind for Nodes {
    /// Returns false: a kubelet registers its Node together with the status.
    fn resets_status(&self) -> bool {
        false
    }

    /// Taints the Node until the node controller sees that it is ready.
    fn prepare_create(&self, object: &mut Tree, _now: &str) {
        let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
        let spec = ensure_map(object, "spec");
        if let Some(taints) = spec.and_then(|spec| ensure_list(spec, "taints"))
            && !taints
                .iter()
                .any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"])
        {
            taints.push(taint);
        }
    }
}
