use super::*;

/// Proves controller/status-if-changed.
#[test]
fn changes_hold_only_what_differs() {
    let before = json!({"a": 1, "b": {"c": 2, "d": [1]}, "gone": "x", "null": null});
    assert_eq!(changes(&before, &before), None);
    let same = json!({"a": 1, "b": {"c": 2, "d": [1], "new": null}, "gone": "x"});
    assert_eq!(changes(&before, &same), None, "null counts as absent");
    let after = json!({"a": 1, "b": {"c": 3, "d": [1, 2]}});
    let patch = json!({"b": {"c": 3, "d": [1, 2]}, "gone": null});
    assert_eq!(changes(&before, &after), Some(patch.clone()));
    assert!(touches_list(&before, &patch));
    assert!(!touches_list(&before, &json!({"b": {"c": 3}})));
    let first = json!({"a": 1});
    assert_eq!(changes(&Value::Null, &first), Some(first));
    assert_eq!(changes(&Value::Null, &json!({"a": null})), None);
}

/// Proves controller/status-if-changed.
#[test]
fn removing_a_list_counts_as_changing_it() {
    let before = json!({"a": 1, "conditions": [{"type": "Ready"}], "b": {"c": {"d": [1]}}});
    for change in [
        json!({"conditions": null}),
        json!({"conditions": []}),
        json!({"b": null}),
        json!({"b": {"c": null}}),
        json!({"b": {"c": 1}}),
        json!({"new": {"e": [1]}}),
    ] {
        assert!(touches_list(&before, &change), "{change}");
    }
    for change in [json!({"a": null}), json!({"b": {"x": 1}}), json!({"y": {}})] {
        assert!(!touches_list(&before, &change), "{change}");
    }
}

/// Proves controller/status-if-changed.
#[tokio::test(start_paused = true)]
async fn other_conditions_and_unknown_fields_are_retained() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let foreign = json!({"type": "Other", "status": "Maybe", "severity": 3});
    let mut conditions = vec![
        foreign.clone(),
        json!({"type": "Ready", "status": "False", "reason": "A", "message": "", "severity": 1,
            "lastTransitionTime": "2020-01-01T00:00:00Z", "observedGeneration": 1}),
    ];
    let ready = NewCondition::new("Ready", true, "B", "m");
    assert!(set_raw_condition(&mut conditions, ready.clone(), &clock).unwrap());
    let expected = json!({"type": "Ready", "status": "True", "reason": "B", "message": "m",
        "severity": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    assert_eq!(conditions, [foreign, expected]);
    assert!(!set_raw_condition(&mut conditions, ready, &clock).unwrap());
    let new = NewCondition::new("New", true, "C", "");
    assert!(set_raw_condition(&mut conditions, new, &clock).unwrap());
    assert_eq!(conditions[2]["type"], "New");
}

#[tokio::test(start_paused = true)]
async fn memory_of_reports_is_bounded() {
    let reported = Reported::default();
    for number in 0..2 * MAX_REPORTED {
        let key = ObjectKey::cluster(&number.to_string());
        assert!(reported.admit(&key, "Ready", "1 Failed"));
        assert!(!reported.admit(&key, "Ready", "1 Failed"));
    }
    assert!(reported.0.lock().len() <= MAX_REPORTED);
}
