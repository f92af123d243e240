//! The scheduler's view of the cluster: nodes, the Pods on them, and the Pods nominated to them.
//!
//! A Pod counts towards its node from the moment it is assumed there, before the cache shows its
//! binding. Otherwise Pods created together would all be placed in the same free space.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use pintle_apiserver::quota::resource_amount;

use super::{
    claims::Claims,
    pod::{PodInfo, Resources},
};
use crate::meta::{self, Labels};

/// A node and the Pods on it.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub(super) node: Arc<Node>,
    pub(super) allocatable: Resources,
    pub(super) requested: Resources,
    /// The requests of its Pods, with defaults.
    pub(super) scored: Resources,
    /// By UID.
    pub(super) pods: BTreeMap<String, Arc<PodInfo>>,
}

impl NodeInfo {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self {
            allocatable: allocatable(&node),
            node,
            requested: Resources::new(),
            scored: Resources::new(),
            pods: BTreeMap::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        meta::name(&self.node.metadata)
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let labels = meta::labels(&self.node.metadata);
        labels.get(key).map(String::as_str)
    }

    pub(super) fn add(&mut self, pod: Arc<PodInfo>) {
        self.remove(&pod.uid);
        add(&mut self.requested, &pod.requests, 1);
        add(&mut self.scored, &pod.scored, 1);
        self.pods.insert(pod.uid.clone(), pod);
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        add(&mut self.requested, &pod.requests, -1);
        add(&mut self.scored, &pod.scored, -1);
        Some(pod)
    }
}

fn add(total: &mut Resources, more: &Resources, times: i64) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(amount.saturating_mul(times));
    }
}

fn allocatable(node: &Node) -> Resources {
    let status = node.status.iter();
    let all = status.flat_map(|status| status.allocatable.iter().flatten());
    all.filter_map(|(name, Quantity(text))| Some((name.clone(), resource_amount(name, text)?)))
        .collect()
}

/// A view of the cluster to plan with.
pub(super) struct View<'a> {
    /// Sorted by name.
    pub(super) nodes: Vec<&'a NodeInfo>,
    pub(super) nominated: &'a BTreeMap<String, Nominated>,
    pub(super) namespaces: &'a BTreeMap<String, Labels>,
    pub(super) budgets: &'a [Arc<PodDisruptionBudget>],
    pub(super) claims: &'a Claims,
}

impl<'a> View<'a> {
    pub(super) fn node(&self, name: &str) -> Option<&'a NodeInfo> {
        let found = self.nodes.binary_search_by(|node| node.name().cmp(name));
        found.ok().map(|index| self.nodes[index])
    }

    /// Returns the Pods nominated to a node that `pod` must not displace.
    pub(super) fn nominated_for(
        &self,
        pod: &PodInfo,
        node: &str,
    ) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let nominated = self.nominated.values();
        nominated
            .filter(move |it| it.node == node)
            .map(|it| &it.pod)
            .filter(move |it| it.priority >= pod.priority && it.uid != pod.uid)
    }
}

/// A pending Pod for which preemption has made room.
#[derive(Clone, Debug)]
pub(super) struct Nominated {
    pub(super) node: String,
    pub(super) pod: Arc<PodInfo>,
}

/// The pending Pods that a change may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No Pods.
    None,
    /// Pods whose placement depends on other Pods.
    Neighbours,
    /// Pods with claims.
    Claims,
    /// All pending Pods.
    Room,
}

/// The cluster as the scheduler sees it.
#[derive(Debug, Default)]
pub(super) struct World {
    nodes: BTreeMap<String, NodeInfo>,
    /// The node of every Pod, even if the node is not known (yet), by UID.
    places: BTreeMap<String, (String, Arc<PodInfo>)>,
    pub(super) nominated: BTreeMap<String, Nominated>,
    namespaces: BTreeMap<String, Labels>,
    pub(super) claims: Claims,
}

impl World {
    pub(super) fn set_node(&mut self, node: Arc<Node>) -> Change {
        let name = meta::name(&node.metadata).to_owned();
        if let Some(known) = self.nodes.get_mut(&name) {
            let allocatable = allocatable(&node);
            let is_same = known.node.spec == node.spec
                && known.node.metadata.labels == node.metadata.labels
                && known.allocatable == allocatable;
            (known.node, known.allocatable) = (node, allocatable);
            return if is_same { Change::None } else { Change::Room };
        }
        let mut added = NodeInfo::new(node);
        for (place, pod) in self.places.values() {
            if *place == name {
                added.add(pod.clone());
            }
        }
        self.nodes.insert(name, added);
        Change::Room
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Records that a Pod is on a node, or assumes it.
    pub(super) fn place(&mut self, node: &str, pod: Arc<PodInfo>) -> Change {
        let before = self.places.get(&pod.uid);
        let change = match before {
            Some((place, known)) if place == node => {
                let is_same = known.pod.metadata.labels == pod.pod.metadata.labels
                    && known.is_terminating() == pod.is_terminating();
                if known.requests != pod.requests {
                    Change::Room
                } else if is_same {
                    Change::None
                } else {
                    Change::Neighbours
                }
            }
            Some(_) => Change::Room,
            None => Change::Neighbours,
        };
        if before.is_some_and(|(place, _)| place != node) {
            self.displace(&pod.uid);
        }
        if let Some(info) = self.nodes.get_mut(node) {
            info.add(pod.clone());
        }
        self.places.insert(pod.uid.clone(), (node.to_owned(), pod));
        change
    }

    /// Removes a Pod from its node. Returns whether it had one.
    pub(super) fn displace(&mut self, uid: &str) -> bool {
        let Some((node, _)) = self.places.remove(uid) else {
            return false;
        };
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove(uid);
        }
        true
    }

    pub(super) fn placed(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.places.get(uid).map(|(_, pod)| pod)
    }

    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> Change {
        let before = self.namespaces.get(name);
        if before == labels.as_ref() {
            return Change::None;
        }
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        Change::Neighbours
    }

    pub(super) fn view<'a>(&'a self, budgets: &'a [Arc<PodDisruptionBudget>]) -> View<'a> {
        let nodes = self.nodes.values();
        View {
            nodes: nodes
                .filter(|it| !meta::is_being_deleted(&it.node.metadata))
                .collect(),
            nominated: &self.nominated,
            namespaces: &self.namespaces,
            budgets,
            claims: &self.claims,
        }
    }

    /// Returns the properties of a newer state of a Pod that is on a node.
    pub(super) fn updated(&self, pod: Arc<Pod>) -> Arc<PodInfo> {
        let uid = meta::uid(&pod.metadata);
        Arc::new(match self.placed(uid) {
            Some(known) => known.updated(pod),
            None => PodInfo::new(pod),
        })
    }
}
