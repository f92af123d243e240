//! The nodes that a cluster starts with.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::api::resource::Quantity};

/// A simulated node of a cluster; see [`Builder::node`](crate::Builder::node).
///
/// By default a node has 64 CPUs, 256 GiB of memory, room for 500 Pods, and the labels of its host
/// name, operating system and architecture.
///
/// # Examples
///
/// ```
/// use pintle_cluster::{NodeTemplate, TaintEffect};
///
/// let gpu = NodeTemplate::new("gpu-0")
///     .label("topology.kubernetes.io/zone", "a")
///     .taint("gpu", "true", TaintEffect::NoSchedule)
///     .allocatable("cpu", "4")
///     .allocatable("nvidia.com/gpu", "1");
/// assert_eq!(gpu.name(), "gpu-0");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) allocatable: BTreeMap<String, Quantity>,
}

/// The effect of a taint on Pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// They are not scheduled to the node.
    NoSchedule,
    /// They are scheduled to other nodes if possible.
    PreferNoSchedule,
    /// They are not scheduled to the node, and leave it.
    NoExecute,
}

impl TaintEffect {
    pub(crate) const ALL: [Self; 3] = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl NodeTemplate {
    /// Creates a node with this name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let labels = [
            ("kubernetes.io/hostname", name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ];
        let resources = [("cpu", "64"), ("memory", "256Gi"), ("pods", "500")];
        Self {
            labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
            taints: Vec::new(),
            allocatable: resources
                .map(|(name, amount)| (name.into(), Quantity(amount.into())))
                .into(),
            name,
        }
    }

    /// Returns the nodes that a cluster starts with: `count` numbered ones, then `others`. The
    /// default count is one if there are no others.
    pub(crate) fn all(count: Option<u16>, others: Vec<Self>) -> Vec<Self> {
        let count = count.unwrap_or_else(|| u16::from(others.is_empty()));
        let counted = (0..count).map(|index| Self::new(format!("node-{index}")));
        counted.chain(others).collect()
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        effect: TaintEffect,
    ) -> Self {
        self.taints.push(Taint {
            key: key.into(),
            value: Some(value.into()).filter(|value: &String| !value.is_empty()),
            effect: effect.as_str().into(),
            ..Taint::default()
        });
        self
    }

    /// Sets how much of a resource the node has, such as `"cpu"` and `"500m"`.
    ///
    /// The API server rejects a node with an invalid amount; the cluster logs the error and
    /// retries.
    #[must_use]
    pub fn allocatable(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Self {
        self.allocatable
            .insert(resource.into(), Quantity(amount.into()));
        self
    }
}
