use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::*;
use crate::{
    canonical::State,
    plan::{Fault, Occurrence, Plan, Point},
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
    judge_trial(&plan(), &expected(), &BTreeMap::new(), &[], trace)
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
        Point::Request(Occurrence {
            step: None,
            fingerprint: "create/pods/d/a".to_owned(),
            nth: 1,
        }),
        crate::plan::Pace::Paced,
    );
    assert_eq!(
        judge_trial(&plan, &expected(), &BTreeMap::new(), &[], &idle(state(80))),
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

/// Returns writes by two processes. The second one takes the Lease as `second` after ten seconds.
/// The first one issues a write after `issued` seconds, which is applied last.
fn with_leases(second: &str, issued: u64) -> Trace {
    let write = |process, resource: &str, body: Value, revision, issued| {
        let body = body.to_string();
        let path = format!("/apis/g/v1/namespaces/d/{resource}/a");
        let target = crate::gateway::request::Target::read(
            &http::Method::PUT,
            &path.parse().unwrap(),
            body.as_bytes(),
        );
        crate::trace::Request {
            fingerprint: target.fingerprint(),
            nth: 1,
            process,
            step: 0,
            issued: Duration::from_secs(issued),
            at: Duration::from_secs(issued),
            status: Some(200),
            commits: vec![crate::trace::Commit {
                resource: crate::gateway::request::ResourceName {
                    plural: resource.to_owned(),
                    group: if resource == "leases" {
                        "coordination.k8s.io".to_owned()
                    } else {
                        String::new()
                    },
                },
                key: "d/a".to_owned(),
                removes: false,
                revision,
            }],
            fault: None,
            body: body.into(),
            target,
        }
    };
    let held = |by: &str| json!({"spec": {"holderIdentity": by}});
    Trace {
        requests: vec![
            write(1, "leases", held("one"), 1, 0),
            write(2, "leases", held(second), 2, 10),
            write(2, "maps", json!({}), 3, 11),
            write(1, "maps", json!({}), 4, issued),
        ],
        ..idle(state(80))
    }
}

/// Proves trials/faults.
#[test]
fn former_leader_must_not_write() {
    let mut late = with_leases("two", 20);
    let found = judge(&late);
    assert_eq!(found[0].oracle, Oracle::Fenced);
    assert!(found[0].text.contains("by process 1"), "{}", found[0].text);
    late.requests[3].commits.clear();
    assert_eq!(judge(&late)[0].oracle, Oracle::Fenced, "without effect");
    late.requests[3].status = None;
    assert_eq!(judge(&late), [], "it did not reach the server");
    // It was in flight when the Lease was taken over: only the API server could reject it.
    assert_eq!(judge(&with_leases("two", 9)), []);
    // Leases of nodes are held under the same identity by every process.
    assert_eq!(judge(&with_leases("one", 20)), []);
}

#[test]
fn precious_kinds_are_never_deleted_more_often() {
    let mut trace = idle(state(80));
    let target = crate::gateway::request::Target::read(
        &http::Method::DELETE,
        &"/api/v1/namespaces/d/configmaps/a".parse().unwrap(),
        b"",
    );
    let mut request = with_leases("two", 20).requests.remove(3);
    request.fingerprint = target.fingerprint();
    request.target = target;
    trace.requests = vec![request];
    let plan: Plan = "drift-delete@end/pods/d/a;pace=paced".parse().unwrap();
    let judge = |precious: &[crate::gateway::request::ResourceName]| {
        judge_trial(&plan, &expected(), &BTreeMap::new(), precious, &trace)
    };
    assert_eq!(judge(&[]), [], "deleted again after drift");
    let maps = crate::gateway::request::ResourceName {
        group: String::new(),
        plural: "configmaps".to_owned(),
    };
    assert_eq!(judge(&[maps])[0].oracle, Oracle::NoExtraDelete);
}
