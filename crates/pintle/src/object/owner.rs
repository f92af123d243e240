//! References to the objects that own an object.

use std::fmt;

/// One of an object's owner references.
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
    /// All four parts in one allocation: an object in the cache has one of these for good.
    text: Box<str>,
    ends: [u32; 3],
    controller: bool,
    blocks_deletion: bool,
}

impl OwnerRef {
    /// A reference from its apiVersion, kind, name and uid, in this order.
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

    /// How many bytes are allocated beside the reference itself.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.text.len()
    }

    /// The owner's `apiVersion`: `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> &str {
        self.part(0, Some(self.ends[0]))
    }

    /// The owner's API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version()
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The owner's kind.
    pub fn kind(&self) -> &str {
        self.part(self.ends[0], Some(self.ends[1]))
    }

    /// The owner's name; its namespace, if it has one, is that of the object it owns.
    pub fn name(&self) -> &str {
        self.part(self.ends[1], Some(self.ends[2]))
    }

    /// The owner's UID.
    pub fn uid(&self) -> &str {
        self.part(self.ends[2], None)
    }

    /// Whether this owner is the one that manages the object.
    pub fn is_controller(&self) -> bool {
        self.controller
    }

    /// Whether a foreground deletion of the owner waits for the object.
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
