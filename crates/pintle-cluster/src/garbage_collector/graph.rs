//! The graph of owners and dependents.
//!
//! The graph has one node per observed object, by UID. A node knows its owners (from its own owner
//! references) and its dependents (from theirs). An owner that is referenced but was not observed
//! has dependents but no node.
//!
//! Decisions take two steps. [`Graph::observe`] and [`Graph::forget`] process informer events and
//! return the UIDs that may need an action. [`Graph::decide`] then returns the action for one of
//! them: nothing, steps to apply, or owners to look up on the server first, whose states are passed
//! to the next [`Graph::decide`].
//!
//! Nothing is deleted because an owner is merely missing from the graph: it is looked up first. And
//! every write carries the UID and `resourceVersion` it is based on, so that it fails if the object
//! has changed in the meantime.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::decide::OwnerState;

/// The finalizer of an owner that waits until its blocking dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";

/// The maximum number of absent owners remembered, to save lookups by further dependents.
const MAX_ABSENT: usize = 1000;

/// The coordinates of an object.
///
/// A reference with the right UID but the wrong namespace, group or kind refers to nothing. The
/// version does not matter: all versions of a group serve the same objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Identity {
    pub(crate) fn of(api_version: &str, kind: &str, meta: &ObjectMeta) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    pub(super) fn is_named_by(&self, reference: &OwnerReference, dependent: &Self) -> bool {
        group(&self.api_version) == group(&reference.api_version)
            && self.kind == reference.kind
            && self.name == reference.name
            && self.uid == reference.uid
            && (self.namespace.is_empty() || self.namespace == dependent.namespace)
    }
}

/// Returns the group of an API version; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) identity: Identity,
    pub(super) resource_version: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) finalizers: Vec<String>,
    pub(super) being_deleted: bool,
}

impl Node {
    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| it == finalizer)
    }

    /// Returns whether its deletion waits for blocking dependents.
    pub(super) fn awaits_dependents(&self) -> bool {
        self.being_deleted && self.has(FOREGROUND)
    }

    pub(super) fn orphans_dependents(&self) -> bool {
        self.being_deleted && self.has(ORPHAN)
    }

    fn reference_to(&self, owner: &str) -> Option<&OwnerReference> {
        self.owners.iter().find(|reference| reference.uid == owner)
    }

    pub(super) fn blocks(&self, owner: &str) -> bool {
        self.reference_to(owner)
            .is_some_and(|owner| owner.block_owner_deletion == Some(true))
    }
}

/// The graph of all observed objects.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(super) nodes: BTreeMap<String, Node>,
    /// Owner UID → dependents' UIDs, whether or not the owner was observed.
    dependents: BTreeMap<String, BTreeSet<String>>,
    pub(super) absent: BTreeSet<Identity>,
    absent_order: VecDeque<Identity>,
}

impl Graph {
    /// Adds or updates an object. Returns the UIDs that may need an action.
    pub(crate) fn observe(&mut self, identity: Identity, meta: &ObjectMeta) -> BTreeSet<String> {
        let uid = identity.uid.clone();
        let node = Node {
            identity,
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            being_deleted: meta.deletion_timestamp.is_some(),
        };
        let before = self.nodes.insert(uid.clone(), node.clone());
        let old_owners = before.as_ref().map_or(&[][..], |node| &node.owners);
        let mut work = BTreeSet::new();

        for gone in old_owners
            .iter()
            .filter(|old| node.reference_to(&old.uid).is_none())
        {
            self.unlink(&gone.uid, &uid);
        }
        // A foreground owner may have waited for this reference to be removed or to stop blocking.
        for old in old_owners
            .iter()
            .filter(|old| old.block_owner_deletion == Some(true))
        {
            if !node.blocks(&old.uid) && self.awaits_dependents(&old.uid) {
                work.insert(old.uid.clone());
            }
        }
        for owner in &node.owners {
            let new = self
                .dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
            if new && !self.is_observed(owner, &node.identity) || self.awaits_dependents(&owner.uid)
            {
                work.insert(uid.clone());
            }
        }
        if before.is_none() {
            // Dependents that reference it by wrong coordinates were waiting for it to be observed.
            work.extend(
                self.dependents_of(&uid)
                    .filter(|dependent| {
                        self.nodes[*dependent].reference_to(&uid).is_some_and(|to| {
                            !node
                                .identity
                                .is_named_by(to, &self.nodes[*dependent].identity)
                        })
                    })
                    .cloned(),
            );
        }
        if node.orphans_dependents() || node.awaits_dependents() {
            work.insert(uid.clone());
        }
        if node.awaits_dependents() && !before.is_some_and(|before| before.awaits_dependents()) {
            work.extend(self.dependents_of(&uid).cloned());
        }
        work
    }

    /// Removes a deleted object. Returns the UIDs that may need an action.
    pub(crate) fn forget(&mut self, uid: &str) -> BTreeSet<String> {
        let Some(node) = self.nodes.remove(uid) else {
            return BTreeSet::new();
        };
        let mut work: BTreeSet<String> = self.dependents_of(uid).cloned().collect();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self.awaits_dependents(&owner.uid) {
                work.insert(owner.uid.clone());
            }
        }
        if !work.is_empty() {
            self.remember_absent(node.identity);
        }
        work
    }

    /// Removes all objects of a removed kind. Returns the UIDs that may need an action.
    pub(crate) fn forget_kind(&mut self, group: &str, kind: &str) -> BTreeSet<String> {
        let is_of_kind = |node: &&Node| {
            node.identity.kind == kind && self::group(&node.identity.api_version) == group
        };
        let gone = self.nodes.values().filter(is_of_kind);
        let gone: Vec<String> = gone.map(|node| node.identity.uid.clone()).collect();
        gone.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// Remembers an absent owner for its other dependents.
    pub(crate) fn remember(
        &mut self,
        dependent: &Identity,
        owner: &OwnerReference,
        state: OwnerState,
    ) {
        if state == OwnerState::Absent {
            self.remember_absent(coordinates(owner, dependent));
        }
    }

    /// Returns the number of observed objects.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &String> + Clone {
        self.dependents.get(uid).into_iter().flatten()
    }

    pub(super) fn awaits_dependents(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(Node::awaits_dependents)
    }

    pub(super) fn is_observed(&self, owner: &OwnerReference, dependent: &Identity) -> bool {
        self.nodes
            .get(&owner.uid)
            .is_some_and(|node| node.identity.is_named_by(owner, dependent))
    }

    pub(super) fn is_in_another_namespace(
        &self,
        owner: &OwnerReference,
        dependent: &Identity,
    ) -> bool {
        self.nodes.get(&owner.uid).is_some_and(|node| {
            !node.identity.namespace.is_empty() && node.identity.namespace != dependent.namespace
        })
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    fn remember_absent(&mut self, identity: Identity) {
        if self.absent.insert(identity.clone()) {
            self.absent_order.push_back(identity);
        }
        if self.absent_order.len() > MAX_ABSENT
            && let Some(oldest) = self.absent_order.pop_front()
        {
            self.absent.remove(&oldest);
        }
    }
}

/// Returns the coordinates of an owner as referenced by `dependent`.
pub(super) fn coordinates(owner: &OwnerReference, dependent: &Identity) -> Identity {
    Identity {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: dependent.namespace.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    }
}

#[cfg(test)]
mod tests;
