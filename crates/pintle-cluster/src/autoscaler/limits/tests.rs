use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn spec(behavior: &Value) -> HorizontalPodAutoscalerSpec {
    serde_json::from_value(json!({
        "minReplicas": 2, "maxReplicas": 20,
        "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "behavior": behavior,
    }))
    .unwrap()
}

/// Returns the size and the reasons.
fn limited(
    spec: &HorizontalPodAutoscalerSpec,
    history: &mut History,
    current: i32,
    proposed: i32,
    now: i64,
) -> (i32, &'static str, &'static str) {
    let (desired, [able, limited]) = limit(spec, history, current, proposed, at(now));
    (desired, able.reason, limited.reason)
}

/// Proves autoscaler/limits.
#[test]
fn size_at_most_doubles_and_stays_within_bounds() {
    let (spec, mut history) = (spec(&Value::Null), History::default());
    let mut of = |current, proposed, now| limited(&spec, &mut history, current, proposed, now);
    assert_eq!(of(3, 5, 0), (5, "ReadyForNewScale", "DesiredWithinRange"));
    assert_eq!(of(5, 18, 15), (10, "ReadyForNewScale", "ScaleUpLimit"));
    assert_eq!(of(10, 30, 30), (20, "ReadyForNewScale", "TooManyReplicas"));
    // Lower proposals wait for five minutes.
    assert_eq!(
        of(20, 1, 100),
        (20, "ScaleDownStabilized", "TooManyReplicas")
    );
    assert_eq!(of(20, 1, 400), (2, "ReadyForNewScale", "TooFewReplicas"));
}

/// Proves autoscaler/limits.
#[test]
fn policies_bound_the_change_in_a_period() {
    let policy =
        |type_: &str, value: i32| json!({ "type": type_, "value": value, "periodSeconds": 60 });
    let behavior = json!({
        "scaleUp": {
            "policies": [policy("Pods", 2), policy("Percent", 10)], "selectPolicy": "Max",
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [policy("Pods", 3), policy("Percent", 50)], "selectPolicy": "Min",
        },
    });
    let (spec, mut history) = (spec(&behavior), History::default());
    assert_eq!(limited(&spec, &mut history, 4, 9, 0).0, 6);
    history.scaled(4, 6, at(0));
    assert_eq!(
        limited(&spec, &mut history, 6, 9, 30),
        (6, "ReadyForNewScale", "ScaleUpLimit")
    );
    assert_eq!(limited(&spec, &mut history, 6, 9, 61).0, 8);
    assert_eq!(limited(&spec, &mut history, 8, 2, 200).0, 5);
    history.scaled(8, 5, at(200));
    let stopped = (5, "ReadyForNewScale", "ScaleDownLimit");
    assert_eq!(limited(&spec, &mut history, 5, 2, 230), stopped);
}

/// Proves autoscaler/limits.
#[test]
fn stabilization_windows_delay_both_directions() {
    let behavior = json!({
        "scaleUp": { "stabilizationWindowSeconds": 60 },
        "scaleDown": { "stabilizationWindowSeconds": 120 },
    });
    let (spec, mut history) = (spec(&behavior), History::default());
    history.start(4, at(0));
    let mut of = |current, proposed, now| limited(&spec, &mut history, current, proposed, now);
    assert_eq!(of(4, 6, 30).1, "ScaleUpStabilized");
    assert_eq!(of(4, 6, 61).0, 6);
    assert_eq!(
        of(6, 3, 70),
        (6, "ScaleDownStabilized", "DesiredWithinRange")
    );
    assert_eq!(of(6, 3, 200).0, 3);
    let disabled = json!({ "scaleDown": { "selectPolicy": "Disabled" } });
    let spec = self::spec(&disabled);
    assert_eq!(limited(&spec, &mut History::default(), 6, 3, 0).0, 6);
}
