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
