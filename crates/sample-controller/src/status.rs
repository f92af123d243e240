//! Computes the status of a Foo.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use pintle::{
    clock::Clock,
    conditions::{NewCondition, set_condition},
};

use crate::foo::{Foo, FooStatus};

/// The type of the condition that says whether a Foo has its desired replicas.
const READY: &str = "Ready";

/// Returns the status of a Foo that has its Deployment: ready once all replicas are available.
pub fn of_deployment(foo: &Foo, deployment: &Deployment, clock: &Clock) -> FooStatus {
    let available = deployment.status.as_ref();
    let available = available
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    let desired = deployment.spec.as_ref();
    let desired = desired.and_then(|spec| spec.replicas).unwrap_or(1);
    let name = deployment.name_any();
    let message = format!("{available} of {desired} replicas of Deployment {name:?} are available");
    let ready = if available >= desired {
        NewCondition::new(READY, true, "Available", &message)
    } else {
        NewCondition::new(READY, false, "Progressing", &message)
    };
    with_condition(foo, available, ready, clock)
}

/// Returns the status of a Foo that cannot have its Deployment, for `reason`.
pub fn not_ready(foo: &Foo, reason: &str, message: &str, clock: &Clock) -> FooStatus {
    let ready = NewCondition::new(READY, false, reason, message);
    with_condition(foo, 0, ready, clock)
}

/// Conditions of other types, which other controllers may have set, are retained.
fn with_condition(foo: &Foo, available: i32, ready: NewCondition, clock: &Clock) -> FooStatus {
    let generation = foo.metadata.generation;
    let current = foo.status.as_ref();
    let mut conditions = current.map_or_else(Vec::new, |status| status.conditions.clone());
    set_condition(
        &mut conditions,
        ready.observed_generation(generation),
        clock,
    );
    FooStatus {
        available_replicas: available,
        observed_generation: generation,
        conditions,
    }
}

#[cfg(test)]
mod tests;
