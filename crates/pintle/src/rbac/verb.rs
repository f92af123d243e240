//! The verbs of permissions.

use std::fmt;

/// A verb of Kubernetes' authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads all objects.
    List,
    /// Watches objects.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Patches or applies an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes all objects.
    DeleteCollection,
    /// A verb of single APIs, such as `approve` or `impersonate`.
    Other(&'static str),
}

impl Verb {
    /// Returns the verb as it appears in a role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other(verb) => verb,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
