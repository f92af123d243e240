//! Computes the status of a Foo.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use pintle::{
    clock::Clock,
    conditions::{NewCondition, set_condition},
};

use crate::foo::{Foo, FooStatus};

/// The type of the condition that says whether a Foo has the replicas it asks for.
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
mod tests {
    use std::time::Duration;

    use pintle::conditions::find_condition;

    use super::*;
    use crate::foo::FooSpec;

    fn deployment(desired: i32, available: i32) -> Deployment {
        let deployment = serde_json::json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": desired, "selector": {}, "template": {}},
            "status": {"availableReplicas": available},
        });
        serde_json::from_value(deployment).expect("a Deployment")
    }

    /// Proves sample/status.
    #[tokio::test(start_paused = true)]
    async fn transition_time_changes_only_with_the_condition() {
        let clock = Clock::starting_at("2026-01-01T00:00:00.5Z".parse().expect("a time"));
        let mut foo = Foo::new("a", FooSpec::default());
        let foreign = NewCondition::new("Audited", true, "Checked", "by another controller");
        let status = foo.status.insert(FooStatus::default());
        set_condition(&mut status.conditions, foreign, &clock);
        let mut since = Vec::new();
        for available in [0, 1, 2] {
            let status = of_deployment(&foo, &deployment(2, available), &clock);
            let ready = find_condition(&status.conditions, READY).expect("a Ready condition");
            since.push(ready.last_transition_time.0.to_string());
            assert!(find_condition(&status.conditions, "Audited").is_some());
            foo.status = Some(status);
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(
            since,
            [
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:00:20Z"
            ]
        );
    }
}
