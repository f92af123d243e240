//! Decides what to do with an object whose owners or dependents changed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::graph::{FOREGROUND, Graph, Identity, Node, ORPHAN, coordinates};

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// A write conditional on the `resourceVersion` it is based on, or a warning event.
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

/// The decision about a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Do nothing until the next event.
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

impl Graph {
    /// Decides what to do with one node. `states` are the owners looked up for it so far.
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

    /// Decides what to do with a dependent, given the states of its owners.
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
                // The reference is invalid, so the object is never collected, whatever its other
                // owners are.
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
            // A dependent and an owner are both waiting, so this is likely a cycle. Stop blocking;
            // the change is observed and leads to the deletion.
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
