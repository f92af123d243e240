use bytes::Bytes;
use http::Method;

use super::*;
use crate::gateway::request::{ResourceName, Target};

fn request(method: &Method, path: &str, nth: u32, body: &'static str) -> Request {
    let target = Target::read(method, &path.parse().unwrap(), body.as_bytes());
    Request {
        fingerprint: target.fingerprint(),
        target,
        nth,
        process: 1,
        step: 0,
        issued: Duration::ZERO,
        at: Duration::ZERO,
        body: Bytes::from_static(body.as_bytes()),
        status: Some(200),
        commits: vec![crate::trace::Commit {
            resource: ResourceName::default(),
            key: String::new(),
            removes: false,
            revision: 1,
        }],
        fault: None,
    }
}

const MAPS: &str = "/api/v1/namespaces/d/configmaps";

fn reference() -> Trace {
    let update = format!("{MAPS}/a");
    let versioned = r#"{"metadata":{"resourceVersion":"1"}}"#;
    Trace {
        requests: vec![
            request(&Method::GET, MAPS, 1, ""),
            request(&Method::POST, MAPS, 1, r#"{"metadata":{"name":"a"}}"#),
            request(&Method::PUT, &update, 1, "{}"),
            request(&Method::PATCH, &update, 1, "{}"),
            request(&Method::PATCH, &update, 2, versioned),
            request(&Method::POST, "/api/v1/namespaces/d/events", 1, "{}"),
        ],
        deliveries: vec![Delivery {
            fingerprint: "ADDED/configmaps/d/a".to_owned(),
            nth: 1,
            resource: ResourceName {
                group: String::new(),
                plural: "configmaps".to_owned(),
            },
            process: 1,
            step: 0,
            at: Duration::ZERO,
            revision: 1,
            lag: 0,
            fault: None,
        }],
        ..Trace::default()
    }
}

fn tokens(plans: &[Plan]) -> Vec<String> {
    plans.iter().map(ToString::to_string).collect()
}

#[test]
fn every_write_crashes_before_and_after() {
    let plans = crashes(&reference(), Pace::Paced, &Context::default());
    assert_eq!(plans.len(), 2 * 4, "events and reads do not count");
    assert_eq!(
        plans[0].to_string(),
        "crash-after@step/0/create/configmaps/d/a#1;pace=paced"
    );
}

#[test]
fn writes_without_effect_do_not_crash() {
    let mut trace = reference();
    trace.requests[3].commits.clear();
    assert_eq!(
        crashes(&trace, Pace::Paced, &Context::default()).len(),
        2 * 3
    );
}

#[test]
fn rivals_precede_writes_that_could_overwrite() {
    let plans = rivals(&reference(), Pace::Paced, &Context::default());
    assert_eq!(
        tokens(&plans),
        [
            "rival-1@step/0/update/configmaps/d/a#1;pace=paced",
            "rival-1@step/0/patch/configmaps/d/a#2;pace=paced",
        ]
    );
}

#[test]
fn user_next_needs_a_later_step() {
    let context = Context {
        steps: 1,
        applies: vec![0],
        ..Context::default()
    };
    let plans = user_acts(&reference(), Pace::Paced, &context);
    assert!(
        tokens(&plans)
            .iter()
            .all(|token| !token.starts_with("user-next"))
    );
    assert_eq!(plans.len(), 2 * 4);
}

#[test]
fn time_travel_needs_a_list_of_any_version() {
    let mut trace = reference();
    assert_eq!(time_travel(&trace, Pace::Paced, &Context::default()), []);
    trace.requests[0].target.any_version = true;
    let plans = time_travel(&trace, Pace::Paced, &Context::default());
    let expected = [
        "time-travel@step/0/ADDED/configmaps/d/a#1;pace=paced",
        "time-travel@step/0/list/configmaps/d/#1;pace=paced",
    ];
    assert_eq!(tokens(&plans), expected);
}

#[test]
fn families_take_turns() {
    let plans = singles(&reference(), Pace::Paced, &Context::default());
    let families: Vec<String> = plans.iter().take(4).map(Plan::family).collect();
    assert_eq!(
        families,
        ["crash-after", "lost-response", "error-500", "rival-1"]
    );
}

#[test]
fn same_seed_gives_the_same_random_plan() {
    let singles = singles(&reference(), Pace::Rapid, &Context::default());
    assert_eq!(random(&singles, 7), random(&singles, 7));
    assert!((1..40).any(|seed| random(&singles, seed).faults.len() > 1));
}

#[test]
fn process_stops_at_every_step_and_deletions_are_held() {
    let context = Context {
        steps: 2,
        deletes: vec![1],
        custom: true,
        ..Context::default()
    };
    let trace = Trace::default();
    assert_eq!(
        tokens(&singles(&trace, Pace::Paced, &context)),
        [
            "stopped@step/0;pace=paced",
            "crd-upgrade@step/1;pace=paced",
            "defaulting@step/0;pace=paced",
            "stopped@step/1;pace=paced",
            "held-finalizer@step/1;pace=paced",
        ]
    );
    assert_eq!(
        tokens(&singles(&trace, Pace::Rapid, &context)),
        ["defaulting@step/0;pace=rapid"]
    );
}

#[test]
fn processes_overlap_or_leave_a_late_write() {
    let of = |pace| leaders(&reference(), pace, &Context::default());
    assert_eq!(
        of(Pace::Paced)[0].to_string(),
        "overlap@step/0/create/configmaps/d/a#1;pace=paced"
    );
    let last = of(Pace::Rapid);
    let last: Vec<String> = last.iter().rev().take(3).map(Plan::to_string).collect();
    assert_eq!(
        last,
        [
            "overlap@patch/configmaps/d/a#2;pace=rapid",
            "paused@patch/configmaps/d/a#2;pace=rapid",
            "late-write@patch/configmaps/d/a#2;pace=rapid",
        ]
    );
}

#[test]
fn namespace_is_deleted_only_if_deletable() {
    let count = |deletable_namespace| {
        let context = Context {
            applies: vec![0],
            deletable_namespace,
            ..Context::default()
        };
        let plans = user_acts(&reference(), Pace::Paced, &context);
        let deletes = plans
            .iter()
            .filter(|plan| plan.family() == "namespace-delete");
        deletes.count()
    };
    assert_eq!((count(false), count(true)), (0, 4));
}

#[test]
fn sample_has_some_of_every_family() {
    let context = Context {
        steps: 2,
        applies: vec![0, 1],
        ..Context::default()
    };
    let mut all = singles(&reference(), Pace::Paced, &context);
    all.extend(singles(&reference(), Pace::Rapid, &context));
    let families = |plans: &[Plan]| -> std::collections::BTreeSet<String> {
        plans.iter().map(Plan::family).collect()
    };
    let chosen = sample(all.clone(), 40);
    assert!((30..=45).contains(&chosen.len()), "{}", chosen.len());
    assert_eq!(families(&chosen), families(&all));
    assert_eq!(sample(all.clone(), 10_000), all);
}
