//! The two kinds that maintain a number of Pods: `ReplicaSet`s, and their predecessors,
//! `ReplicationController`s.
//!
//! As in kube-controller-manager, a `ReplicationController` is treated as a `ReplicaSet` with a
//! different type of selector. Its status does not count terminating Pods.

use std::borrow::Cow;

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus},
        core::v1::{
            ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::NamespaceResourceScope;
use pintle::{cache::Selector, controller::Writable};

use crate::meta;

/// A kind that maintains a number of Pods.
pub(super) trait Replicator:
    Writable + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
{
    /// Returns the object as a `ReplicaSet`.
    fn as_set(&self) -> Cow<'_, ReplicaSet>;

    /// Returns the object with this status, or `None` if it already has it.
    fn with_status(&self, status: ReplicaSetStatus) -> Option<Self>
    where
        Self: Sized;

    fn selector(&self) -> Selector {
        let set = self.as_set();
        let spec = set.spec.as_ref();
        spec.map_or_else(Selector::nothing, |spec| meta::selector(&spec.selector))
    }
}

impl Replicator for ReplicaSet {
    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Option<Self> {
        (self.status.as_ref() != Some(&status)).then(|| Self {
            status: Some(status),
            ..self.clone()
        })
    }
}

impl Replicator for ReplicationController {
    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        let spec = self.spec.clone().unwrap_or_default();
        let status = self.status.clone().unwrap_or_default();
        let conditions = status.conditions.into_iter().flatten();
        let conditions = conditions.map(|condition| ReplicaSetCondition {
            last_transition_time: condition.last_transition_time,
            message: condition.message,
            reason: condition.reason,
            status: condition.status,
            type_: condition.type_,
        });
        Cow::Owned(ReplicaSet {
            metadata: self.metadata.clone(),
            spec: Some(ReplicaSetSpec {
                min_ready_seconds: spec.min_ready_seconds,
                replicas: spec.replicas,
                selector: LabelSelector {
                    match_labels: spec.selector,
                    ..LabelSelector::default()
                },
                template: spec.template,
            }),
            status: Some(ReplicaSetStatus {
                conditions: Some(conditions.collect()),
                ..ReplicaSetStatus::default()
            }),
        })
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Option<Self> {
        let conditions = status.conditions.into_iter().flatten();
        let conditions: Vec<_> = conditions
            .map(|condition| ReplicationControllerCondition {
                last_transition_time: condition.last_transition_time,
                message: condition.message,
                reason: condition.reason,
                status: condition.status,
                type_: condition.type_,
            })
            .collect();
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        (self.status.as_ref() != Some(&status)).then(|| Self {
            status: Some(status),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests;
