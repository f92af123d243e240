//! What the controller says about a Foo.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use pintle::{
    clock::Clock,
    conditions::{NewCondition, set_condition},
};

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

    /// The status that says so. What others say in conditions of their own stays.
    pub(crate) fn to_status(&self, foo: &Foo, observed: Option<i64>, clock: &Clock) -> FooStatus {
        let last = foo.status.as_ref();
        let mut conditions = last.map_or_else(Vec::new, |last| last.conditions.clone());
        let ready = NewCondition::new(READY, self.ready, self.reason, &self.message);
        set_condition(&mut conditions, ready.observed_generation(observed), clock);
        FooStatus {
            available_replicas: self.available_replicas,
            observed_generation: observed,
            conditions,
        }
    }
}

/// Whether a server that was asked to store `sent` dropped the fields that the original Foo lacks.
pub(crate) fn is_pruned(sent: &FooStatus, stored: Option<&FooStatus>) -> bool {
    !sent.conditions.is_empty() && stored.is_none_or(|stored| stored.conditions.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pintle::conditions::find_condition;

    use super::*;
    use crate::foo::FooSpec;

    fn deployment(wanted: i32, available: i32) -> Deployment {
        let deployment = serde_json::json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": wanted, "selector": {}, "template": {}},
            "status": {"availableReplicas": available},
        });
        serde_json::from_value(deployment).expect("a Deployment")
    }

    /// Proves sample/status.
    #[tokio::test(start_paused = true)]
    async fn the_condition_keeps_its_time_until_it_turns_and_others_keep_theirs() {
        let clock = Clock::starting_at("2026-01-01T00:00:00.5Z".parse().expect("a time"));
        let mut foo = Foo::new("a", FooSpec::default());
        let others = NewCondition::new("Audited", true, "Checked", "by somebody else");
        let status = foo.status.insert(FooStatus::default());
        set_condition(&mut status.conditions, others, &clock);
        let mut since = Vec::new();
        for available in [0, 1, 2] {
            let status = Report::of(&deployment(2, available)).to_status(&foo, Some(1), &clock);
            let ready = find_condition(&status.conditions, READY).expect("told");
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
