//! Owner references.

use std::fmt;

/// An owner reference of a cached object.
///
/// ```
/// use pintle::cache::OwnerRef;
///
/// let owner = OwnerRef::new(["apps/v1", "ReplicaSet", "web", "0c9a"], true, false);
/// assert_eq!((owner.group(), owner.kind(), owner.name()), ("apps", "ReplicaSet", "web"));
/// assert!(owner.is_controller());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct OwnerRef {
    /// All four parts in one allocation, because a cached object holds one of these for its
    /// lifetime.
    text: Box<str>,
    ends: [u32; 3],
    controller: bool,
    blocks_deletion: bool,
}

impl OwnerRef {
    /// Returns a reference from its `apiVersion`, `kind`, `name` and `uid`, in this order.
    pub fn new(parts: [&str; 4], controller: bool, blocks_deletion: bool) -> Self {
        let text: Box<str> = parts.concat().into();
        let mut ends = [0; 3];
        let mut end = 0;
        for (slot, part) in ends.iter_mut().zip(parts) {
            end += part.len();
            *slot = u32::try_from(end).unwrap_or(u32::MAX);
        }
        Self {
            text,
            ends,
            controller,
            blocks_deletion,
        }
    }

    fn part(&self, start: u32, end: Option<u32>) -> &str {
        let end = end.map_or(self.text.len(), |end| end as usize);
        self.text.get(start as usize..end).unwrap_or_default()
    }

    /// Returns how many bytes are allocated outside the reference itself.
    #[cfg(test)]
    pub(super) fn heap_size(&self) -> usize {
        self.text.len()
    }

    /// Returns the owner's `apiVersion`: `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> &str {
        self.part(0, Some(self.ends[0]))
    }

    /// Returns the owner's API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version()
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// Returns the owner's kind.
    pub fn kind(&self) -> &str {
        self.part(self.ends[0], Some(self.ends[1]))
    }

    /// Returns the owner's name. A namespaced owner is in the namespace of the object it owns.
    pub fn name(&self) -> &str {
        self.part(self.ends[1], Some(self.ends[2]))
    }

    /// Returns the owner's UID.
    pub fn uid(&self) -> &str {
        self.part(self.ends[2], None)
    }

    /// Returns whether this owner is the object's controller.
    pub fn is_controller(&self) -> bool {
        self.controller
    }

    /// Returns `blockOwnerDeletion`: whether foreground deletion of the owner waits for the object.
    pub fn blocks_owner_deletion(&self) -> bool {
        self.blocks_deletion
    }
}

impl fmt::Debug for OwnerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerRef")
            .field("api_version", &self.api_version())
            .field("kind", &self.kind())
            .field("name", &self.name())
            .field("uid", &self.uid())
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}
