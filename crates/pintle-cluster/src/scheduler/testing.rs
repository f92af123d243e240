//! Clusters for the tests of the scheduler.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::{
    plan::{self, Decision},
    pod::PodInfo,
    world::{Nominated, World},
};

/// A node with four CPUs and room for ten Pods; `more` may set labels, taints and so on.
pub(super) fn node(name: &str, more: &Value) -> Value {
    let mut node = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
    });
    merge(&mut node, more);
    node
}

/// A Pod that requests a CPU. Its `app` label is its name up to the first `-`.
pub(super) fn pod(name: &str, more: &Value) -> Arc<PodInfo> {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "labels": { "app": name.split('-').next() },
        },
        "spec": {
            "priority": 0,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
        },
    });
    merge(&mut pod, more);
    let pod = serde_json::from_value(pod).unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

pub(super) fn merge(base: &mut Value, more: &Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more.clone(),
    }
}

/// A cluster to plan for.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) world: World,
    budgets: Vec<Arc<PodDisruptionBudget>>,
}

impl Cluster {
    pub(super) fn new(nodes: &[Value]) -> Self {
        let mut cluster = Self::default();
        for node in nodes {
            let node = serde_json::from_value(node.clone()).unwrap();
            cluster.world.set_node(Arc::new(node));
        }
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        cluster.world.set_namespace("default", Some(labels));
        cluster
    }

    /// Nodes `a`, `b` … alternating between the zones `a` and `b`.
    pub(super) fn zones(count: u8) -> Self {
        let nodes = (0..count).map(|index| {
            let name = char::from(b'a' + index).to_string();
            let zone = ["a", "b"][usize::from(index % 2)];
            let labels = json!({ "topology.kubernetes.io/zone": zone });
            node(&name, &json!({ "metadata": { "labels": labels } }))
        });
        Self::new(&nodes.collect::<Vec<_>>())
    }

    pub(super) fn with(mut self, node: &str, pod: Arc<PodInfo>) -> Self {
        self.world.place(node, pod);
        self
    }

    pub(super) fn nominate(mut self, node: &str, pod: Arc<PodInfo>) -> Self {
        let uid = pod.uid.clone();
        let node = node.to_owned();
        self.world.nominated.insert(uid, Nominated { node, pod });
        self
    }

    pub(super) fn with_budget(mut self, selector: &Value, allowed: i32) -> Self {
        let budget = json!({
            "metadata": { "name": "b", "namespace": "default" },
            "spec": { "selector": { "matchLabels": selector } },
            "status": {
                "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
                "expectedPods": 1,
            },
        });
        let budget = serde_json::from_value(budget).unwrap();
        self.budgets.push(Arc::new(budget));
        self
    }

    pub(super) fn schedule(&self, pod: &Arc<PodInfo>) -> Decision {
        plan::schedule(pod, &self.world.view(&self.budgets))
    }

    /// Returns the node of a Pod that fits.
    pub(super) fn node_for(&self, pod: &Arc<PodInfo>) -> String {
        match self.schedule(pod) {
            Decision::Bind(node) => node,
            Decision::Refuse { message, .. } => panic!("{message}"),
        }
    }

    /// Returns why a Pod does not fit.
    pub(super) fn refusal(&self, pod: &Arc<PodInfo>) -> String {
        match self.schedule(pod) {
            Decision::Bind(node) => panic!("fits on {node}"),
            Decision::Refuse { message, .. } => message,
        }
    }

    /// Schedules Pods one after the other. Returns their nodes.
    pub(super) fn fill(&mut self, pods: impl IntoIterator<Item = Arc<PodInfo>>) -> Vec<String> {
        let mut nodes = Vec::new();
        for pod in pods {
            let node = self.node_for(&pod);
            self.world.place(&node, pod);
            nodes.push(node);
        }
        nodes
    }
}
