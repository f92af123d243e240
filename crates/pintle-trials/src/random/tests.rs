use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::plan::Pace;

fn trace(id: &str, password: &str, order: [&str; 2]) -> Trace {
    let mut state = State::default();
    let mut add = |title: String, value: Value| {
        state.ids.insert(title.clone(), title.clone());
        state.objects.entry(title).or_default().push(value);
    };
    add(format!("External dns record-{id}"), json!({"value": "www"}));
    add(
        "Web d/web".to_owned(),
        json!({"status": {"id": format!("record-{id}")}, "spec": {"sum": "abc123def"}}),
    );
    add(
        "Secret d/web".to_owned(),
        json!({"data": {"password": password}}),
    );
    add("Pod d/web".to_owned(), json!({"spec": {"env": order}}));
    Trace {
        checkpoints: vec![Checkpoint {
            step: 0,
            at: std::time::Duration::ZERO,
            state: Arc::new(state),
            stale_status: Vec::new(),
            late: std::time::Duration::ZERO,
            deleted: false,
        }],
        ..Trace::default()
    }
}

/// Proves trials/random.
#[test]
fn random_values_are_masked_and_others_are_not() {
    let mut a = trace("88dc97e5", "czNjcjN0MQ==", ["B2BCD", "A1BCD"]);
    let mut b = trace("a833bdcd", "eHl6MTIzNA==", ["B2BCD", "A1BCD"]);
    let random = Random::learn(&a, &b);
    random.mask(&mut a, Pace::Paced);
    random.mask(&mut b, Pace::Paced);
    let (a, b) = (&a.checkpoints[0].state, &b.checkpoints[0].state);
    assert_eq!(a.objects, b.objects);
    assert!(a.objects.contains_key("External dns record-*"), "{a:?}");
    assert_eq!(a.objects["Web d/web"][0]["status"]["id"], "record-*");
    assert_eq!(a.objects["Web d/web"][0]["spec"]["sum"], "abc123def");
    assert_eq!(a.objects["Secret d/web"][0]["data"]["password"], MASK);
    // A third run has yet another id and password.
    let third =
        random.masked(&trace("0123abcd", "b3RoZXI5OQ==", ["B2BCD", "A1BCD"]).checkpoints[0].state);
    assert_eq!(third.objects, a.objects);
}

/// Proves trials/random.
#[test]
fn different_order_is_not_random() {
    let a = trace("88dc97e5", "czNjcjN0MQ==", ["DATABASE", "HOSTNAME"]);
    let b = trace("88dc97e5", "czNjcjN0MQ==", ["HOSTNAME", "DATABASE"]);
    assert!(Random::learn(&a, &b).is_empty());
    let a = trace("88dc97e5", "czNjcjN0MQ==", ["a1b2c3,d4e5f6", ""]);
    let b = trace("88dc97e5", "czNjcjN0MQ==", ["d4e5f6,a1b2c3", ""]);
    assert!(Random::learn(&a, &b).is_empty());
}

/// Proves trials/random.
#[test]
fn leak_under_a_random_name_changes_the_number() {
    let (a, b) = (
        trace("88dc97e5", "", ["", ""]),
        trace("a833bdcd", "", ["", ""]),
    );
    let random = Random::learn(&a, &b);
    let mut leaked = (*a.checkpoints[0].state).clone();
    let extra = leaked.objects["External dns record-88dc97e5"].clone();
    leaked
        .objects
        .insert("External dns record-deadbeef".to_owned(), extra);
    assert_eq!(
        random.masked(&leaked).objects["External dns record-*"].len(),
        2
    );
}
