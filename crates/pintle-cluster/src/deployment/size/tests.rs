use proptest::prelude::*;

use super::*;

fn deployment(replicas: i32, surge: &str, unavailable: &str) -> Deployment {
    let value = |text: &str| {
        text.parse::<i32>()
            .map_or_else(|_| serde_json::json!(text), |n| serde_json::json!(n))
    };
    serde_json::from_value(serde_json::json!({
        "spec": {
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": value(surge), "maxUnavailable": value(unavailable) },
            },
        },
    }))
    .unwrap()
}

/// Proves deployment/rolling-bounds.
#[test]
fn surge_rounds_up_and_unavailability_down() {
    let limits = |n, surge, unavailable| {
        let limits = limits(&deployment(n, surge, unavailable));
        (limits.surge, limits.unavailable)
    };
    assert_eq!(limits(3, "25%", "25%"), (1, 0));
    assert_eq!(limits(10, "25%", "25%"), (3, 2));
    assert_eq!(limits(10, "3", "2"), (3, 2));
    assert_eq!(limits(2, "0%", "1%"), (0, 1), "both must not be zero");
    assert_eq!(limits(5, "0", "100%"), (0, 5));
    assert_eq!(limits(2, "0", "7"), (0, 2), "at most all Pods");
    assert_eq!(limits(0, "25%", "25%"), (0, 0));
}

proptest! {
    // Proves deployment/rolling-bounds.
    #[test]
    fn rollout_can_always_proceed(n in 1..500i32, surge in 0..=100, unavailable in 0..=100) {
        let limits = limits(&deployment(n, &format!("{surge}%"), &format!("{unavailable}%")));
        prop_assert!(limits.surge + limits.unavailable > 0);
        prop_assert!(limits.unavailable <= n);
    }
}

#[test]
fn huge_percentages_do_not_overflow() {
    let huge = IntOrString::String("9223372036854775807%".to_owned());
    assert_eq!(resolve(Some(&huge), 2, Round::Up), i32::MAX);
}
