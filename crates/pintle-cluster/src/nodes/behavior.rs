//! The behavior of a simulated node: run, vanish, or report a problem.

use std::{fmt, str::FromStr};

use k8s_openapi::api::core::v1::Node;

use crate::meta;

/// The behavior of a simulated node.
///
/// It is set with [`Cluster::node`](crate::Cluster::node), or with the annotation
/// [`ANNOTATION`](Self::ANNOTATION) of the Node, for example by
/// `kubectl annotate node node-0 pintle.dev/behavior=lost`. The value is one or more of these
/// words:
///
/// | word | the node |
/// |---|---|
/// | `healthy` | is Ready |
/// | `lost` | neither renews its lease nor starts or stops Pods |
/// | `not-ready` | reports that it is not ready; its Pods keep running but are not ready |
/// | `disk-full` | reports `DiskPressure` and evicts a Pod every ten seconds |
/// | `memory-pressure`, `pid-pressure` | reports that condition |
///
/// # Examples
///
/// ```
/// use pintle_cluster::NodeBehavior;
///
/// let parsed: NodeBehavior = "not-ready disk-full".parse()?;
/// assert_eq!(parsed, NodeBehavior::healthy().not_ready().disk_full());
/// assert!("on fire".parse::<NodeBehavior>().is_err());
/// # Ok::<(), pintle_cluster::InvalidNodeBehavior>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent conditions of a node"
)]
pub struct NodeBehavior {
    pub(super) lost: bool,
    pub(super) not_ready: bool,
    pub(super) disk_full: bool,
    pub(super) memory_pressure: bool,
    pub(super) pid_pressure: bool,
}

/// The words of the annotation, and the fields they set.
type Word = (&'static str, fn(&mut NodeBehavior) -> &mut bool);

const WORDS: [Word; 5] = [
    ("lost", |it| &mut it.lost),
    ("not-ready", |it| &mut it.not_ready),
    ("disk-full", |it| &mut it.disk_full),
    ("memory-pressure", |it| &mut it.memory_pressure),
    ("pid-pressure", |it| &mut it.pid_pressure),
];

impl NodeBehavior {
    /// The annotation of a Node that sets its behavior, `pintle.dev/behavior`.
    ///
    /// A node with an invalid value is not ready; the condition contains the error.
    pub const ANNOTATION: &'static str = "pintle.dev/behavior";

    /// Returns the behavior of a node that is Ready.
    pub fn healthy() -> Self {
        Self::default()
    }

    /// Returns the behavior of a node that neither renews its lease nor starts or stops Pods.
    pub fn lost() -> Self {
        Self {
            lost: true,
            ..Self::default()
        }
    }

    /// Makes the node report that it is not ready.
    #[must_use]
    pub fn not_ready(mut self) -> Self {
        self.not_ready = true;
        self
    }

    /// Makes the node report that its disk is full, and evict a Pod every ten seconds.
    #[must_use]
    pub fn disk_full(mut self) -> Self {
        self.disk_full = true;
        self
    }

    /// Makes the node report that it is short of memory.
    #[must_use]
    pub fn memory_pressure(mut self) -> Self {
        self.memory_pressure = true;
        self
    }

    /// Makes the node report that it is short of process IDs.
    #[must_use]
    pub fn pid_pressure(mut self) -> Self {
        self.pid_pressure = true;
        self
    }

    /// Returns the behavior that the annotation of a Node sets.
    pub(super) fn of(node: &Node) -> Result<Self, InvalidNodeBehavior> {
        let text = meta::annotation(&node.metadata, Self::ANNOTATION);
        text.map_or_else(|| Ok(Self::healthy()), str::parse)
    }
}

/// The error returned when a string is not a valid [`NodeBehavior`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid node behavior {text:?}: unknown word {word:?}")]
pub struct InvalidNodeBehavior {
    text: String,
    word: String,
}

impl FromStr for NodeBehavior {
    type Err = InvalidNodeBehavior;

    fn from_str(text: &str) -> Result<Self, InvalidNodeBehavior> {
        let mut behavior = Self::healthy();
        for word in text.split_whitespace().filter(|word| *word != "healthy") {
            let known = WORDS.iter().find(|(known, _)| *known == word);
            let Some((_, field)) = known else {
                return Err(InvalidNodeBehavior {
                    text: text.to_owned(),
                    word: word.to_owned(),
                });
            };
            *field(&mut behavior) = true;
        }
        Ok(behavior)
    }
}

impl fmt::Display for NodeBehavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut behavior = self.clone();
        let words = WORDS.iter().filter(|(_, field)| *field(&mut behavior));
        let words: Vec<&str> = words.map(|(word, _)| *word).collect();
        if words.is_empty() {
            return f.write_str("healthy");
        }
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests;
