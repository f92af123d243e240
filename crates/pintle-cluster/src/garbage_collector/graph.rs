//! Who depends on whom, and what follows when an owner goes.
//!
//! A graph holds one node per object that was observed, found by UID. A node knows its owners (as
//! its own metadata names them) and its dependents (as theirs name it). An owner that was named but
//! not observed has dependents and no node.
//!
//! What happens to a node is decided in two moves. [`Graph::observe`] and [`Graph::forget`] take
//! in what the informers tell and answer which nodes deserve a look. [`Graph::look`] then decides
//! about one of them: either nothing, or steps to take, or questions to ask the server first, whose
//! answers go into the next [`Graph::look`]. Nothing is deleted on hearsay: an owner that was not
//! observed is asked for, and every step carries the UID and resource version it was decided on,
//! so that a step against an object that has changed meanwhile fails instead of harming it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// An owner with this finalizer goes after its blocking dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// An owner with this finalizer leaves its dependents behind.
pub(crate) const ORPHAN: &str = "orphan";

/// How many absent owners are remembered, so that a thousand dependents do not ask a thousand
/// times.
const ABSENT_REMEMBERED: usize = 1000;

/// The coordinates of an object. Two objects of one UID and different coordinates are not the same
/// owner: a reference that gets the namespace or the kind wrong refers to nothing. One that names
/// another version of the kind's group is right: versions are views of one object.
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
        self.finalizers.iter().any(|have| have == finalizer)
    }

    /// On its way out as soon as its blocking dependents are gone.
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

/// How dependents of a deleted object are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// One write. Each goes to exactly the version of the object that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Delete {
        object: Identity,
        resource_version: String,
        propagation: Propagation,
    },
    /// Replaces the object's owner references.
    SetOwners {
        object: Identity,
        resource_version: String,
        owners: Vec<OwnerReference>,
    },
    /// Replaces the object's finalizers.
    SetFinalizers {
        object: Identity,
        resource_version: String,
        finalizers: Vec<String>,
    },
    /// Tells people about a reference into another namespace.
    WarnNamespace {
        object: Identity,
        owner: OwnerReference,
    },
}

/// What the server said about an owner that was not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing with these coordinates and this UID exists.
    Absent,
    /// It exists, and is or is not waiting for its dependents.
    Present { awaits_dependents: bool },
    /// A kind the server does not know, at least not yet.
    UnknownKind,
    /// The owner's kind lives in namespaces and the dependent does not: never collected.
    OutOfReach,
}

/// What to do about a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Look {
    /// Nothing, until something is heard.
    Leave,
    /// Ask the server about these owners (as seen from `from`), then look again.
    Ask {
        from: Identity,
        owners: Vec<OwnerReference>,
    },
    /// Take these steps, in order. `again`: look again later even if nothing is heard.
    Take { steps: Vec<Step>, again: bool },
}

/// The answers collected for one look, by owner UID.
pub(crate) type Answers = BTreeMap<String, Answer>;

/// The graph of everything that was observed.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// Owner UID → dependents' UIDs, whether or not the owner was observed.
    dependents: BTreeMap<String, BTreeSet<String>>,
    absent: BTreeSet<Identity>,
    absent_order: VecDeque<Identity>,
}

impl Graph {
    /// Takes in an object as it now is. Answers the UIDs that deserve a look.
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
        // An owner in its last moments may have waited for just this reference to go or to yield.
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
            // Dependents that named it by other coordinates were waiting to hear of it.
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

    /// Takes in that an object is gone. Answers the UIDs that deserve a look.
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

    /// Takes in that a kind is gone, and all its objects with it. Answers the UIDs that deserve a
    /// look.
    pub(crate) fn forget_kind(&mut self, group: &str, kind: &str) -> BTreeSet<String> {
        let is_of_kind = |node: &&Node| {
            node.identity.kind == kind && self::group(&node.identity.api_version) == group
        };
        let gone = self.nodes.values().filter(is_of_kind);
        let gone: Vec<String> = gone.map(|node| node.identity.uid.clone()).collect();
        gone.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// Decides about one node. `answers` are the server's, if this look was asked for before.
    pub(crate) fn look(&self, uid: &str, answers: &Answers) -> Look {
        let Some(node) = self.nodes.get(uid) else {
            return Look::Leave;
        };
        if node.orphans_dependents() {
            return self.orphan(node);
        }
        if node.awaits_dependents() {
            return self.release(node);
        }
        if node.being_deleted || node.owners.is_empty() {
            return Look::Leave;
        }
        self.collect(node, answers)
    }

    /// Remembers an answer of the server for the other dependents of the same owner.
    pub(crate) fn remember(&mut self, from: &Identity, owner: &OwnerReference, answer: Answer) {
        if answer == Answer::Absent {
            self.remember_absent(coordinates(owner, from));
        }
    }

    /// How many objects are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    // === The three cases ===

    /// Takes the owner out of every dependent, then its finalizer.
    fn orphan(&self, owner: &Node) -> Look {
        let uid = &owner.identity.uid;
        let mut steps: Vec<Step> = self
            .dependents_of(uid)
            .map(|dependent| &self.nodes[dependent])
            .map(|dependent| without_owners(dependent, |reference| reference.uid == *uid))
            .collect();
        steps.push(without_finalizer(owner, ORPHAN));
        Look::Take {
            steps,
            again: false,
        }
    }

    /// Lets an owner go once nothing blocks it.
    fn release(&self, owner: &Node) -> Look {
        let uid = &owner.identity.uid;
        if self
            .dependents_of(uid)
            .any(|dependent| self.nodes[dependent].blocks(uid))
        {
            return Look::Leave;
        }
        Look::Take {
            steps: vec![without_finalizer(owner, FOREGROUND)],
            again: false,
        }
    }

    /// Decides about a dependent by its owners.
    fn collect(&self, node: &Node, answers: &Answers) -> Look {
        let mut solid = 0_usize;
        let mut gone = BTreeSet::new();
        let mut waiting = BTreeSet::new();
        let mut unseen = false;
        let mut questions = Vec::new();
        let mut steps = Vec::new();
        for owner in &node.owners {
            match self
                .known(owner, &node.identity)
                .or_else(|| answers.get(&owner.uid).copied())
            {
                None => questions.push(owner.clone()),
                // Never collected, whatever the other owners do: the reference makes no sense.
                Some(Answer::OutOfReach) => return Look::Leave,
                Some(Answer::UnknownKind) => {
                    return Look::Take {
                        steps: Vec::new(),
                        again: true,
                    };
                }
                Some(Answer::Absent) => {
                    gone.insert(owner.uid.as_str());
                    if self.is_in_another_namespace(owner, &node.identity) {
                        let (object, owner) = (node.identity.clone(), owner.clone());
                        steps.push(Step::WarnNamespace { object, owner });
                    }
                }
                Some(Answer::Present { awaits_dependents }) => {
                    unseen |= !self.is_observed(owner, &node.identity);
                    if awaits_dependents {
                        waiting.insert(owner.uid.as_str());
                    } else {
                        solid += 1;
                    }
                }
            }
        }
        if !questions.is_empty() {
            return Look::Ask {
                from: node.identity.clone(),
                owners: questions,
            };
        }
        if solid > 0 {
            if !gone.is_empty() || !waiting.is_empty() {
                let drop = |owner: &OwnerReference| {
                    gone.contains(owner.uid.as_str()) || waiting.contains(owner.uid.as_str())
                };
                steps.push(without_owners(node, drop));
            }
            // An owner that exists but was never observed may be gone again before the informer
            // tells of it, and then nothing would be told at all.
            if steps.is_empty() && !unseen {
                return Look::Leave;
            }
            return Look::Take {
                steps,
                again: unseen,
            };
        }
        steps.extend(self.delete(node, !waiting.is_empty()));
        Look::Take {
            steps,
            again: false,
        }
    }

    fn delete(&self, node: &Node, owner_waits: bool) -> Vec<Step> {
        let uid = &node.identity.uid;
        let mut dependents = self
            .dependents_of(uid)
            .map(|dependent| &self.nodes[dependent]);
        let has_dependents = dependents.clone().next().is_some();
        if owner_waits && has_dependents && dependents.any(Node::awaits_dependents) {
            // It waits for us, and whoever we depend on waits too: likely a circle. Stop blocking;
            // the change is observed, and the next look deletes.
            let yielding: Vec<OwnerReference> = node
                .owners
                .iter()
                .map(|owner| OwnerReference {
                    block_owner_deletion: Some(false),
                    ..owner.clone()
                })
                .collect();
            if yielding != node.owners {
                return vec![Step::SetOwners {
                    object: node.identity.clone(),
                    resource_version: node.resource_version.clone(),
                    owners: yielding,
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

    // === What is known ===

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &String> + Clone {
        self.dependents.get(uid).into_iter().flatten()
    }

    fn awaits_dependents(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(Node::awaits_dependents)
    }

    fn is_observed(&self, owner: &OwnerReference, from: &Identity) -> bool {
        self.nodes
            .get(&owner.uid)
            .is_some_and(|node| node.identity.is_named_by(owner, from))
    }

    fn is_in_another_namespace(&self, owner: &OwnerReference, from: &Identity) -> bool {
        self.nodes.get(&owner.uid).is_some_and(|node| {
            !node.identity.namespace.is_empty() && node.identity.namespace != from.namespace
        })
    }

    /// What the graph itself can say about an owner.
    fn known(&self, owner: &OwnerReference, from: &Identity) -> Option<Answer> {
        let cluster_scoped = Identity {
            namespace: String::new(),
            ..coordinates(owner, from)
        };
        if self.absent.contains(&coordinates(owner, from)) || self.absent.contains(&cluster_scoped)
        {
            return Some(Answer::Absent);
        }
        let node = self.nodes.get(&owner.uid)?;
        if node.identity.is_named_by(owner, from) {
            return Some(Answer::Present {
                awaits_dependents: node.awaits_dependents(),
            });
        }
        // The UID exists elsewhere: a namespaced owner of a cluster-scoped object is out of reach;
        // any other mismatch is the server's to confirm.
        (from.namespace.is_empty() && !node.identity.namespace.is_empty())
            .then_some(Answer::OutOfReach)
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
        if self.absent_order.len() > ABSENT_REMEMBERED
            && let Some(oldest) = self.absent_order.pop_front()
        {
            self.absent.remove(&oldest);
        }
    }
}

/// Where `from` says its owner is.
fn coordinates(owner: &OwnerReference, from: &Identity) -> Identity {
    Identity {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: from.namespace.clone(),
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
            .filter(|have| *have != finalizer)
            .cloned()
            .collect(),
    }
}

#[cfg(test)]
mod tests;
