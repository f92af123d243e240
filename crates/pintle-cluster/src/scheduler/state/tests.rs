use serde_json::{Value, json};

use super::{
    super::testing::{merge, node},
    *,
};

fn observe(state: &mut State, name: &str, more: &Value) {
    let mut pod = (*super::super::testing::pod(name, &json!({})).pod).clone();
    let mut value = serde_json::to_value(&pod).unwrap();
    merge(&mut value, more);
    pod = serde_json::from_value(value).unwrap();
    state.observe_pod(Arc::new(pod));
}

fn with_node(allocatable: &Value) -> State {
    let mut state = State::default();
    let node = node("a", &json!({ "status": { "allocatable": allocatable } }));
    state.observe_node(Arc::new(serde_json::from_value(node).unwrap()));
    state
}

fn next(state: &mut State) -> Option<Work> {
    state.next(&[], Instant::now())
}

/// Proves pods/scheduling.
#[test]
fn assumed_pod_takes_room_until_its_binding_fails() {
    let mut state = with_node(&json!({ "cpu": "1" }));
    observe(&mut state, "p", &json!({}));
    observe(&mut state, "q", &json!({}));
    assert!(matches!(next(&mut state), Some(Work::Bind { .. })));
    let Some(Work::Refuse { pod, .. }) = next(&mut state) else {
        panic!("both fit");
    };
    assert_eq!(pod.uid, "q");
    state.finish("q", Outcome::Refused, Instant::now());
    state.finish("p", Outcome::Failed, Instant::now());
    // `q` was waiting for resources, and `p` backs off.
    let Some(Work::Bind { pod, .. }) = next(&mut state) else {
        panic!("there is room");
    };
    assert_eq!(pod.uid, "q");
}

/// Proves cluster/end-states.
#[test]
fn unschedulable_condition_is_written_once() {
    let mut state = with_node(&json!({ "cpu": "0" }));
    observe(&mut state, "p", &json!({}));
    let Some(Work::Refuse { message, .. }) = next(&mut state) else {
        panic!("it fits");
    };
    let condition = json!([{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": message }]);
    observe(
        &mut state,
        "p",
        &json!({ "status": { "conditions": condition } }),
    );
    state.finish("p", Outcome::Refused, Instant::now());
    observe(&mut state, "gone", &json!({ "spec": { "nodeName": "a" } }));
    state.forget_pod("gone");
    assert!(next(&mut state).is_none());
}

/// Proves scheduler/preemption.
#[test]
fn nomination_ends_with_its_pod() {
    let mut state = with_node(&json!({ "cpu": "1" }));
    observe(&mut state, "low", &json!({ "spec": { "nodeName": "a" } }));
    observe(&mut state, "high", &json!({ "spec": { "priority": 9 } }));
    let Some(Work::Refuse { nomination, .. }) = next(&mut state) else {
        panic!("it fits");
    };
    assert!(matches!(nomination, Nomination::Set(_)));
    state.finish("high", Outcome::Refused, Instant::now());
    observe(&mut state, "mid", &json!({ "spec": { "priority": 5 } }));
    state.forget_pod("low");
    // The Pod with the higher priority comes first; the other one may not use its node.
    let Some(Work::Bind { pod, .. }) = next(&mut state) else {
        panic!("there is room");
    };
    assert_eq!(pod.uid, "high");
    assert!(matches!(next(&mut state), Some(Work::Refuse { .. })));
    state.finish("mid", Outcome::Refused, Instant::now());
    state.forget_pod("high");
    assert!(matches!(next(&mut state), Some(Work::Bind { .. })));
}
