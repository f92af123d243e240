//! The graph of owners and dependents, and the decision what happens when an owner is deleted.
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
//! every step carries the UID and `resourceVersion` it is based on, so that it fails if the object
//! has changed meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

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

    fn is_named_by(&self, reference: &OwnerReference, dependent: &Self) -> bool {
        group(&self.api_version) == group(&reference.api_version)
            && self.kind == reference.kind
            && self.name == reference.name
            && self.uid == reference.uid
            && (self.namespace.is_empty() || self.namespace == dependent.namespace)
    }
}

/// The group of an API version; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[derive(Clone, Debug)]
struct Node {
    identity: Identity,
    resource_version: String,
    owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
    being_deleted: bool,
}

impl Node {
    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| it == finalizer)
    }

    /// Returns whether its deletion waits for blocking dependents.
    fn awaits_dependents(&self) -> bool {
        self.being_deleted && self.has(FOREGROUND)
    }

    fn orphans_dependents(&self) -> bool {
        self.being_deleted && self.has(ORPHAN)
    }

    fn reference_to(&self, owner: &str) -> Option<&OwnerReference> {
        self.owners.iter().find(|reference| reference.uid == owner)
    }

    fn blocks(&self, owner: &str) -> bool {
        self.reference_to(owner)
            .is_some_and(|owner| owner.block_owner_deletion == Some(true))
    }
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// A write, conditional on the `resourceVersion` it is based on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Delete {
        object: Identity,
        resource_version: String,
        propagation: Propagation,
    },
    /// Replaces the owner references.
    SetOwners {
        object: Identity,
        resource_version: String,
        owners: Vec<OwnerReference>,
    },
    /// Replaces the finalizers.
    SetFinalizers {
        object: Identity,
        resource_version: String,
        finalizers: Vec<String>,
    },
    /// Emits a warning event about an owner in another namespace.
    WarnNamespace {
        object: Identity,
        owner: OwnerReference,
    },
}

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// No object with these coordinates and this UID exists.
    Absent,
    /// The owner exists.
    Present { awaits_dependents: bool },
    /// The server does not serve the kind, at least not yet.
    UnknownKind,
    /// The owner is namespaced but the dependent is not, so the dependent is never collected.
    OutOfReach,
}

/// What to do about a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing until the next event.
    Ignore,
    /// Look up these owners of `dependent` on the server, then decide again.
    Lookup {
        dependent: Identity,
        owners: Vec<OwnerReference>,
    },
    /// Apply these steps in order. `retry`: decide again later even without an event.
    Apply { steps: Vec<Step>, retry: bool },
}

/// Looked-up states by owner UID.
pub(crate) type OwnerStates = BTreeMap<String, OwnerState>;

/// The graph of all observed objects.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// Owner UID → dependents' UIDs, whether or not the owner was observed.
    dependents: BTreeMap<String, BTreeSet<String>>,
    absent: BTreeSet<Identity>,
    absent_order: VecDeque<Identity>,
}

impl Graph {
    /// Adds or updates an object. Returns the UIDs to decide about.
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

    /// Removes a deleted object. Returns the UIDs to decide about.
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

    /// Removes all objects of a removed kind. Returns the UIDs to decide about.
    pub(crate) fn forget_kind(&mut self, group: &str, kind: &str) -> BTreeSet<String> {
        let is_of_kind = |node: &&Node| {
            node.identity.kind == kind && self::group(&node.identity.api_version) == group
        };
        let gone = self.nodes.values().filter(is_of_kind);
        let gone: Vec<String> = gone.map(|node| node.identity.uid.clone()).collect();
        gone.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// Decides about one node. `states` are the owners looked up for it so far.
    pub(crate) fn decide(&self, uid: &str, states: &OwnerStates) -> Decision {
        let Some(node) = self.nodes.get(uid) else {
            return Decision::Ignore;
        };
        if node.orphans_dependents() {
            return self.orphan(node);
        }
        if node.awaits_dependents() {
            return self.release(node);
        }
        if node.being_deleted || node.owners.is_empty() {
            return Decision::Ignore;
        }
        self.collect(node, states)
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

    // === Decisions ===

    /// Removes the owner from all dependents, then its finalizer.
    fn orphan(&self, owner: &Node) -> Decision {
        let uid = &owner.identity.uid;
        let mut steps: Vec<Step> = self
            .dependents_of(uid)
            .map(|dependent| &self.nodes[dependent])
            .map(|dependent| without_owners(dependent, |reference| reference.uid == *uid))
            .collect();
        steps.push(without_finalizer(owner, ORPHAN));
        Decision::Apply {
            steps,
            retry: false,
        }
    }

    /// Removes the finalizer of a foreground owner once no dependent blocks it.
    fn release(&self, owner: &Node) -> Decision {
        let uid = &owner.identity.uid;
        if self
            .dependents_of(uid)
            .any(|dependent| self.nodes[dependent].blocks(uid))
        {
            return Decision::Ignore;
        }
        Decision::Apply {
            steps: vec![without_finalizer(owner, FOREGROUND)],
            retry: false,
        }
    }

    /// Decides about a dependent by the states of its owners.
    fn collect(&self, node: &Node, states: &OwnerStates) -> Decision {
        let mut live = 0_usize;
        let mut absent = BTreeSet::new();
        let mut waiting = BTreeSet::new();
        let mut unobserved = false;
        let mut lookups = Vec::new();
        let mut steps = Vec::new();
        for owner in &node.owners {
            match self
                .known(owner, &node.identity)
                .or_else(|| states.get(&owner.uid).copied())
            {
                None => lookups.push(owner.clone()),
                // An invalid reference: the object is never collected, whatever its other owners.
                Some(OwnerState::OutOfReach) => return Decision::Ignore,
                Some(OwnerState::UnknownKind) => {
                    return Decision::Apply {
                        steps: Vec::new(),
                        retry: true,
                    };
                }
                Some(OwnerState::Absent) => {
                    absent.insert(owner.uid.as_str());
                    if self.is_in_another_namespace(owner, &node.identity) {
                        let (object, owner) = (node.identity.clone(), owner.clone());
                        steps.push(Step::WarnNamespace { object, owner });
                    }
                }
                Some(OwnerState::Present { awaits_dependents }) => {
                    unobserved |= !self.is_observed(owner, &node.identity);
                    if awaits_dependents {
                        waiting.insert(owner.uid.as_str());
                    } else {
                        live += 1;
                    }
                }
            }
        }
        if !lookups.is_empty() {
            return Decision::Lookup {
                dependent: node.identity.clone(),
                owners: lookups,
            };
        }
        if live > 0 {
            if !absent.is_empty() || !waiting.is_empty() {
                let drop = |owner: &OwnerReference| {
                    absent.contains(owner.uid.as_str()) || waiting.contains(owner.uid.as_str())
                };
                steps.push(without_owners(node, drop));
            }
            // An owner that was looked up but not observed may be deleted before its informer sees
            // it, and then no event would follow.
            if steps.is_empty() && !unobserved {
                return Decision::Ignore;
            }
            return Decision::Apply {
                steps,
                retry: unobserved,
            };
        }
        steps.extend(self.delete(node, !waiting.is_empty()));
        Decision::Apply {
            steps,
            retry: false,
        }
    }

    fn delete(&self, node: &Node, owner_waits: bool) -> Vec<Step> {
        let uid = &node.identity.uid;
        let mut dependents = self
            .dependents_of(uid)
            .map(|dependent| &self.nodes[dependent]);
        let has_dependents = dependents.clone().next().is_some();
        if owner_waits && has_dependents && dependents.any(Node::awaits_dependents) {
            // A dependent and an owner both wait, so this is likely a cycle. Stop blocking; the
            // change is observed and leads to the deletion.
            let unblocking: Vec<OwnerReference> = node
                .owners
                .iter()
                .map(|owner| OwnerReference {
                    block_owner_deletion: Some(false),
                    ..owner.clone()
                })
                .collect();
            if unblocking != node.owners {
                return vec![Step::SetOwners {
                    object: node.identity.clone(),
                    resource_version: node.resource_version.clone(),
                    owners: unblocking,
                }];
            }
        }
        let propagation = if owner_waits && has_dependents {
            Propagation::Foreground
        } else if node.has(ORPHAN) {
            Propagation::Orphan
        } else if node.has(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        vec![Step::Delete {
            object: node.identity.clone(),
            resource_version: node.resource_version.clone(),
            propagation,
        }]
    }

    // === Lookups ===

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &String> + Clone {
        self.dependents.get(uid).into_iter().flatten()
    }

    fn awaits_dependents(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(Node::awaits_dependents)
    }

    fn is_observed(&self, owner: &OwnerReference, dependent: &Identity) -> bool {
        self.nodes
            .get(&owner.uid)
            .is_some_and(|node| node.identity.is_named_by(owner, dependent))
    }

    fn is_in_another_namespace(&self, owner: &OwnerReference, dependent: &Identity) -> bool {
        self.nodes.get(&owner.uid).is_some_and(|node| {
            !node.identity.namespace.is_empty() && node.identity.namespace != dependent.namespace
        })
    }

    /// Returns the state of an owner if the graph knows it.
    fn known(&self, owner: &OwnerReference, dependent: &Identity) -> Option<OwnerState> {
        let cluster_scoped = Identity {
            namespace: String::new(),
            ..coordinates(owner, dependent)
        };
        if self.absent.contains(&coordinates(owner, dependent))
            || self.absent.contains(&cluster_scoped)
        {
            return Some(OwnerState::Absent);
        }
        let node = self.nodes.get(&owner.uid)?;
        if node.identity.is_named_by(owner, dependent) {
            return Some(OwnerState::Present {
                awaits_dependents: node.awaits_dependents(),
            });
        }
        // The UID exists under other coordinates. A namespaced owner of a cluster-scoped object is
        // out of reach; any other mismatch must be confirmed by the server.
        (dependent.namespace.is_empty() && !node.identity.namespace.is_empty())
            .then_some(OwnerState::OutOfReach)
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
fn coordinates(owner: &OwnerReference, dependent: &Identity) -> Identity {
    Identity {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: dependent.namespace.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    }
}

fn without_owners(node: &Node, drop: impl Fn(&OwnerReference) -> bool) -> Step {
    Step::SetOwners {
        object: node.identity.clone(),
        resource_version: node.resource_version.clone(),
        owners: node
            .owners
            .iter()
            .filter(|owner| !drop(owner))
            .cloned()
            .collect(),
    }
}

fn without_finalizer(node: &Node, finalizer: &str) -> Step {
    Step::SetFinalizers {
        object: node.identity.clone(),
        resource_version: node.resource_version.clone(),
        finalizers: node
            .finalizers
            .iter()
            .filter(|it| *it != finalizer)
            .cloned()
            .collect(),
    }
}

#[cfg(test)]
mod tests;
