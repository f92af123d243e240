use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::*;
use crate::{
    canonical::State,
    plan::{Fault, Plan, Point},
    run::Expected,
    trace::{Abort, Checkpoint, Restless},
};

fn state(port: u16) -> Arc<State> {
    let mut state = State::default();
    let service = json!({"spec": {"port": port}});
    state
        .objects
        .insert("Service d/web".to_owned(), vec![service]);
    Arc::new(state)
}

fn idle(state: Arc<State>) -> Trace {
    Trace {
        checkpoints: vec![Checkpoint {
            step: 0,
            at: Duration::ZERO,
            state,
            stale_status: Vec::new(),
            late: Duration::ZERO,
            deleted: false,
        }],
        ..Trace::default()
    }
}

fn plan() -> Plan {
    "crash-after@create/services/d/web#1;pace=paced"
        .parse()
        .unwrap()
}

fn expected() -> Expected {
    Expected {
        steps: [(0, state(80))].into(),
        ..Expected::default()
    }
}

fn judge(trace: &Trace) -> Vec<Violation> {
    judge_trial(&plan(), &expected(), &BTreeMap::new(), trace)
}

#[test]
fn different_end_state_is_reported() {
    assert_eq!(judge(&idle(state(80))), []);
    let found = judge(&idle(state(81)));
    assert_eq!(found[0].oracle, Oracle::SameEnd);
    assert_eq!(found[0].text, "Service d/web  spec.port: want 80, got 81");
}

#[test]
fn vanished_points_are_not_judged() {
    let trace = Trace {
        aborted: Some(Abort::Vanished),
        ..idle(state(81))
    };
    assert_eq!(judge(&trace), []);
}

#[test]
fn stale_status_is_found() {
    let mut trace = idle(state(80));
    trace.checkpoints[0].stale_status.push("Web a".to_owned());
    assert_eq!(judge(&trace)[0].oracle, Oracle::StatusTrue);
}

#[test]
fn panics_are_found_even_if_a_process_crashed() {
    let mut trace = idle(state(80));
    trace.marks.push(crate::trace::Mark {
        at: Duration::ZERO,
        request: 0,
        text: "process 1 crashes after a request (fault)".to_owned(),
    });
    assert_eq!(judge(&trace), []);
    trace.panics.push("oops".to_owned());
    assert_eq!(judge(&trace)[0].oracle, Oracle::NoPanic);
}

#[test]
fn changes_while_idle_are_found() {
    let restless = |during| Restless {
        during,
        requests: vec!["patch/webs/d/a/status".to_owned()],
        count: 288,
    };
    let trace = Trace {
        restless: vec![restless("24 idle hours"), restless("a restart while idle")],
        ..idle(state(80))
    };
    let found = judge_reference(&trace, &[], &[]);
    let oracles: Vec<Oracle> = found.iter().map(|it| it.oracle).collect();
    assert_eq!(oracles, [Oracle::Quiescent, Oracle::Idempotent]);
}

#[test]
fn user_faults_may_delete_more() {
    let plan = Plan::single(
        Fault::UserRecreate,
        Point::Request("create/pods/d/a".to_owned(), 1),
        crate::plan::Pace::Paced,
    );
    assert_eq!(
        judge_trial(&plan, &expected(), &BTreeMap::new(), &idle(state(80))),
        []
    );
}

#[test]
fn removed_finalizer_of_another_user_is_found() {
    let mut trace = idle(state(80));
    trace.unheld.push("Web d/a".to_owned());
    let found = judge(&trace);
    assert_eq!(found[0].oracle, Oracle::OwnOnly);
    assert!(found[0].text.contains("from Web d/a"), "{found:?}");
}
