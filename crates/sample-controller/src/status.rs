//! What the controller says about a Foo.

use k8s_openapi::{
    api::apps::v1::Deployment,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::ResourceExt;
use pintle::clock::Clock;

use crate::foo::{Foo, FooStatus};

/// The condition type that says whether a Foo is as it should be.
const READY: &str = "Ready";

/// What to report of a Foo, before it is set beside what was reported last.
pub(crate) struct Report {
    available_replicas: i32,
    ready: bool,
    reason: &'static str,
    message: String,
}

impl Report {
    /// The Foo has its Deployment; it is ready when as many replicas are available as it wants.
    pub(crate) fn of(deployment: &Deployment) -> Self {
        let available = deployment
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0);
        let wanted = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        let ready = available >= wanted;
        Self {
            available_replicas: available,
            ready,
            reason: if ready { "Available" } else { "Progressing" },
            message: format!(
                "{available} of {wanted} replicas of Deployment {:?} are available",
                deployment.name_any()
            ),
        }
    }

    /// The Foo cannot have its Deployment, for `reason`.
    pub(crate) fn not_ready(reason: &'static str, message: &str) -> Self {
        Self {
            available_replicas: 0,
            ready: false,
            reason,
            message: message.to_owned(),
        }
    }

    /// The status that says so, keeping the time of the last transition unless this is one.
    pub(crate) fn to_status(&self, foo: &Foo, observed: Option<i64>, clock: &Clock) -> FooStatus {
        let status = if self.ready { "True" } else { "False" };
        let last = foo.status.as_ref().and_then(ready_condition);
        let since = last.filter(|last| last.status == status).map_or_else(
            || Time(clock.now()),
            |last| last.last_transition_time.clone(),
        );
        FooStatus {
            available_replicas: self.available_replicas,
            observed_generation: observed,
            conditions: vec![Condition {
                type_: READY.to_owned(),
                status: status.to_owned(),
                reason: self.reason.to_owned(),
                message: self.message.clone(),
                observed_generation: observed,
                last_transition_time: since,
            }],
        }
    }
}

fn ready_condition(status: &FooStatus) -> Option<&Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == READY)
}

/// Whether a server that was asked to store `sent` dropped the fields that the original Foo lacks.
pub(crate) fn is_pruned(sent: &FooStatus, stored: Option<&FooStatus>) -> bool {
    !sent.conditions.is_empty() && stored.is_none_or(|stored| stored.conditions.is_empty())
}
