//! The simulated machines behind the nodes: their behavior, and when they last reported.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    behavior::{InvalidNodeBehavior, NodeBehavior},
    template::NodeTemplate,
};
use crate::meta;

/// The machines of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Machines {
    templates: Arc<[NodeTemplate]>,
    state: Arc<Mutex<BTreeMap<String, Machine>>>,
    changed: watch::Sender<()>,
}

/// The state of a machine.
#[derive(Debug, Default)]
struct Machine {
    script: Option<NodeBehavior>,
    /// It has registered a Node, and does not register again if that is deleted.
    registered: bool,
    /// When it last renewed its lease or reported its status.
    renewed: Option<Timestamp>,
    /// When it last evicted a Pod, or noticed that its disk is full.
    evicted: Option<Timestamp>,
}

impl Machines {
    pub(crate) fn new(templates: Vec<NodeTemplate>) -> Self {
        Self {
            templates: templates.into(),
            state: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Returns the nodes that the cluster starts with.
    pub(super) fn templates(&self) -> &[NodeTemplate] {
        &self.templates
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.templates.iter().any(|template| template.name == name)
    }

    /// Returns a receiver that is notified when a script changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(self.state.lock().entry(name.to_owned()).or_default())
    }

    /// Changes the behavior of a machine. A recovered machine registers its node again.
    pub(super) fn script(&self, name: &str, change: impl FnOnce(&mut NodeBehavior)) {
        self.with(name, |machine| {
            let script = machine.script.get_or_insert_default();
            change(script);
            machine.registered &= *script != NodeBehavior::healthy();
        });
        self.changed.send_replace(());
    }

    /// Sets the behavior of a machine when the cluster starts.
    pub(crate) fn start_as(&self, name: &str, behavior: NodeBehavior) {
        self.with(name, |machine| machine.script = Some(behavior));
    }

    /// Returns the behavior of a node's machine: from its script if there is one, else from the
    /// annotation.
    pub(super) fn behavior(&self, node: &Node) -> Result<NodeBehavior, InvalidNodeBehavior> {
        let name = meta::name(&node.metadata);
        match self.scripted(name) {
            Some(script) => Ok(script),
            None => NodeBehavior::of(node),
        }
    }

    pub(super) fn scripted(&self, name: &str) -> Option<NodeBehavior> {
        self.state.lock().get(name)?.script.clone()
    }

    /// Returns whether the machine of a node is lost: it does nothing at all.
    pub(crate) fn is_lost(&self, node: &Node) -> bool {
        self.behavior(node).is_ok_and(|behavior| behavior.lost)
    }

    /// Returns when a machine last evicted a Pod because of its full disk or, before the first
    /// eviction, when the disk became full. `None` if the disk is not full or the machine is lost.
    pub(crate) fn evicting_since(&self, node: &Node, now: Timestamp) -> Option<Timestamp> {
        let is_full = self.behavior(node).is_ok_and(|it| it.disk_full && !it.lost);
        self.with(meta::name(&node.metadata), |machine| {
            machine.evicted = is_full.then(|| machine.evicted.unwrap_or(now));
            machine.evicted
        })
    }

    pub(crate) fn evicted(&self, node: &Node, now: Timestamp) {
        self.with(meta::name(&node.metadata), |machine| {
            machine.evicted = Some(now);
        });
    }

    pub(super) fn is_registered(&self, name: &str) -> bool {
        self.with(name, |machine| machine.registered)
    }

    pub(super) fn set_registered(&self, name: &str) {
        self.with(name, |machine| machine.registered = true);
    }

    /// Records that a machine renewed its lease or reported its status.
    pub(super) fn renewed(&self, name: &str, now: Timestamp) {
        self.with(name, |machine| machine.renewed = Some(now));
    }

    /// Returns when a machine last renewed its lease or reported its status.
    pub(super) fn last_renewal(&self, name: &str) -> Option<Timestamp> {
        self.state.lock().get(name)?.renewed
    }
}
