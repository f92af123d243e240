//! The errors of a set of children, per object.

use std::fmt;

use crate::{
    cache::ObjectKey,
    client::describe,
    controller::{ApplyError, NotWatched},
    owner::OwnerError,
};

/// Why an [`ApplySet`](super::ApplySet) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplySetError {
    /// The name of the set, which begins with the field manager, is not a valid label value.
    #[error("invalid apply set name {name:?}: not a valid label value")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The reconciled object cannot own anything.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The controller does not watch a kind of which the set formerly had children.
    #[error(transparent)]
    NotWatched(#[from] NotWatched),
    /// Some children cannot be applied. Nothing was sent.
    #[error("cannot apply the set, nothing was sent: {}", list(failed))]
    Refused {
        /// The children, each with its error.
        failed: Vec<FailedObject>,
    },
    /// Some children were not applied, all others were. Nothing was pruned.
    #[error(
        "{} of {total} children were not applied, and nothing was pruned: {}",
        failed.len(),
        list(failed)
    )]
    Apply {
        /// The children that were not applied, each with its error.
        failed: Vec<FailedObject>,
        /// How many children the set has.
        total: usize,
    },
    /// All children were applied, and some objects that are no longer wanted were not deleted.
    #[error("{} children that are no longer wanted were not deleted: {}", failed.len(), list(failed))]
    Prune {
        /// The objects that were not deleted, each with its error.
        failed: Vec<FailedObject>,
        /// How many others were deleted.
        pruned: usize,
    },
}

impl ApplySetError {
    /// Returns the objects that failed, if the error is about individual objects.
    pub fn failed(&self) -> &[FailedObject] {
        match self {
            Self::Refused { failed } | Self::Apply { failed, .. } | Self::Prune { failed, .. } => {
                failed
            }
            Self::InvalidName { .. } | Self::Owner(_) | Self::NotWatched(_) => &[],
        }
    }
}

/// An object of a set, with its error.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedObject {
    /// The object's kind.
    pub kind: String,
    /// The object.
    pub key: ObjectKey,
    /// The error.
    pub error: ObjectError,
}

impl fmt::Display for FailedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = describe(&self.error);
        write!(f, "{} {}: {error}", self.kind, self.key)
    }
}

/// The error of one object of a set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The object could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The object could not be deleted. A conflict means that it has changed since the cache saw
    /// it.
    #[error("failed to delete")]
    Delete(#[source] Box<kube::Error>),
    /// The object is in the set twice.
    #[error("listed twice in the set")]
    Duplicate,
    /// The object carries the label of another set.
    #[error("labelled as a member of another set, {name:?}")]
    OtherSet {
        /// The other set.
        name: String,
    },
    /// The object cannot be serialized to JSON.
    #[error("cannot be serialized")]
    Serialize(#[from] serde_json::Error),
}

fn list(failed: &[FailedObject]) -> String {
    let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
    failed.join("; ")
}
