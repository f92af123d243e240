//! The planners: decide which faults to inject, given the trace of a run without faults.
//!
//! Each family is a function from the reference to plans. Between two writes of a controller
//! nothing changes in the cluster, so one crash before and one after each write stand for every
//! crash.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{Fault, Occurrence, Pace, Plan, Point};
use crate::{
    gateway::request::Verb,
    trace::{Delivery, Request, Trace},
};

/// A family of faults: a planner over the reference.
type Planner = fn(&Trace, Pace, &Context) -> Vec<Plan>;

/// The input of planners besides the trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// The number of steps of the story.
    pub(crate) steps: usize,
    /// Steps that apply an object, rather than delete one.
    pub(crate) applies: Vec<usize>,
    /// Steps that delete an object.
    pub(crate) deletes: Vec<usize>,
    /// Whether the objects of the story are in namespaces that can be deleted.
    pub(crate) deletable_namespace: bool,
    /// Whether the story is about a custom resource.
    pub(crate) custom: bool,
    /// Objects that the controller created and has to restore, as `resource/namespace/name`.
    pub(crate) owned: Vec<String>,
    /// The owned objects that have an earlier state to be reset to.
    pub(crate) edits: Vec<String>,
    /// Whether to inject errors that a retry does not usually fix.
    pub(crate) terminal_errors: bool,
}

const PLANNERS: [Planner; 15] = [
    crashes,
    lost_responses,
    errors,
    rivals,
    user_acts,
    delays,
    cuts,
    unobserved,
    server_restarts,
    time_travel,
    drift,
    stops,
    upgrades,
    leaders,
    defaulting,
];

/// Returns all plans with one fault, families taking turns, so that a short budget covers each.
pub(crate) fn singles(reference: &Trace, pace: Pace, context: &Context) -> Vec<Plan> {
    let families = PLANNERS
        .iter()
        .map(|planner| planner(reference, pace, context).into_iter());
    interleave(families.collect())
}

fn interleave(mut families: Vec<std::vec::IntoIter<Plan>>) -> Vec<Plan> {
    let mut plans = Vec::new();
    loop {
        let before = plans.len();
        plans.extend(families.iter_mut().filter_map(Iterator::next));
        if plans.len() == before {
            return plans;
        }
    }
}

/// Returns about `most` of the plans, some of every family at every pace, in their order.
pub(crate) fn sample(plans: Vec<Plan>, most: usize) -> Vec<Plan> {
    let mut sizes: BTreeMap<(Pace, String), usize> = BTreeMap::new();
    let group = |plan: &Plan| (plan.pace, plan.family());
    for plan in &plans {
        *sizes.entry(group(plan)).or_default() += 1;
    }
    let each = most.checked_div(sizes.len()).unwrap_or_default().max(1);
    let mut seen: BTreeMap<(Pace, String), usize> = BTreeMap::new();
    let chosen = |plan: &Plan| {
        let (size, nth) = (sizes[&group(plan)], seen.entry(group(plan)).or_default());
        *nth += 1;
        // Spread evenly: choose a plan whenever the running total reaches the next whole number.
        (*nth * each) / size != ((*nth - 1) * each) / size
    };
    plans.into_iter().filter(chosen).collect()
}

fn at(request: &Request, pace: Pace) -> Point {
    Point::Request(Occurrence {
        step: (pace == Pace::Paced).then_some(request.step),
        fingerprint: request.fingerprint.clone(),
        nth: request.nth,
    })
}

fn on(delivery: &Delivery, pace: Pace) -> Point {
    Point::Event(Occurrence {
        step: (pace == Pace::Paced).then_some(delivery.step),
        fingerprint: delivery.fingerprint.clone(),
        nth: delivery.nth,
    })
}

fn writes(trace: &Trace) -> impl Iterator<Item = &Request> {
    trace
        .requests
        .iter()
        .filter(|request| request.target.verb.is_write() && !request.target.is_bookkeeping())
}

fn deliveries(trace: &Trace) -> impl Iterator<Item = &Delivery> {
    // The server's own Service is never changed.
    let counts = |delivery: &&Delivery| {
        !crate::gateway::request::is_bookkeeping(&delivery.resource)
            && delivery.fingerprint != "ADDED/services/default/kubernetes"
    };
    trace.deliveries.iter().filter(counts)
}

/// Returns whether the request changed something. If not, a crash at it equals a crash after the
/// previous write.
fn is_effective(request: &Request) -> bool {
    !request.commits.is_empty() || request.target.resource.group == "external"
}

fn each(
    trace: &Trace,
    pace: Pace,
    faults: &[Fault],
    wanted: impl Fn(&Request) -> bool,
) -> Vec<Plan> {
    writes(trace)
        .filter(|request| wanted(request))
        .flat_map(|request| {
            let plan = |fault: &Fault| Plan::single(*fault, at(request, pace), pace);
            faults.iter().map(plan).collect::<Vec<_>>()
        })
        .collect()
}

/// The process crashes before or after each write.
pub(crate) fn crashes(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let faults = [Fault::CrashAfter, Fault::CrashBefore];
    each(trace, pace, &faults, is_effective)
}

/// Each write is applied, but its response is lost or is a 504.
fn lost_responses(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let faults = match pace {
        Pace::Paced => vec![Fault::LostResponse],
        Pace::Rapid => vec![Fault::LostResponse, Fault::Timeout],
    };
    each(trace, pace, &faults, is_effective)
}

/// Each request fails once, or several times in a row.
fn errors(trace: &Trace, pace: Pace, context: &Context) -> Vec<Plan> {
    let mut faults = match pace {
        Pace::Paced => vec![Fault::Error(500), Fault::Errors(503, 4)],
        Pace::Rapid => vec![Fault::Refused, Fault::Error(429)],
    };
    if context.terminal_errors {
        faults.extend([Fault::Error(403), Fault::Error(422)]);
    }
    let mut plans = each(trace, pace, &faults, is_effective);
    // The first of each kind. Later watches are renewals while idle: a scenario is idle for less time.
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let reads = trace.requests.iter().filter(|request| {
        let most = match request.target.verb {
            Verb::Watch => 1,
            Verb::Get | Verb::List => 2,
            _ => return false,
        };
        let count = seen.entry(&request.fingerprint).or_default();
        *count += 1;
        *count <= most && !request.target.is_bookkeeping()
    });
    plans.extend(reads.map(|request| Plan::single(Fault::Error(500), at(request, pace), pace)));
    plans
}

/// Another client changes the object just before each update that could overwrite it.
fn rivals(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let times = if pace == Pace::Paced { 1 } else { 3 };
    let faults = [Fault::Rival(times)];
    each(trace, pace, &faults, |request| match request.target.verb {
        Verb::Update => request.target.resource.group != "external",
        Verb::Patch => serde_json::from_slice::<Value>(&request.body)
            .is_ok_and(|body| !body["metadata"]["resourceVersion"].is_null()),
        _ => false,
    })
}

/// The user acts right after each write: applies the next step, deletes or recreates the object, or
/// deletes its namespace.
fn user_acts(trace: &Trace, pace: Pace, context: &Context) -> Vec<Plan> {
    let mut plans = Vec::new();
    for request in writes(trace).filter(|request| is_effective(request)) {
        let mut add = |fault| plans.push(Plan::single(fault, at(request, pace), pace));
        if pace == Pace::Paced && request.step + 1 < context.steps {
            add(Fault::UserNext);
        }
        if context.applies.contains(&request.step) {
            add(Fault::UserDelete);
            add(Fault::UserRecreate);
            if pace == Pace::Paced && context.deletable_namespace {
                add(Fault::NamespaceDelete);
            }
        }
    }
    plans
}

/// Events of one resource arrive late, from each event on.
fn delays(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let by = Duration::from_secs(if pace == Pace::Paced { 3 } else { 20 });
    if trace.deliveries.is_empty() {
        // For a program, everything it receives arrives late.
        return each(
            trace,
            pace,
            &[Fault::Delay(Duration::from_secs(3))],
            is_effective,
        );
    }
    deliveries(trace)
        .map(|delivery| Plan::single(Fault::Delay(by), on(delivery, pace), pace))
        .collect()
}

/// The watch breaks or expires before each event.
fn cuts(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let fault = match pace {
        Pace::Paced => Fault::Gone,
        Pace::Rapid => Fault::Cut,
    };
    deliveries(trace)
        .map(|delivery| Plan::single(fault, on(delivery, pace), pace))
        .collect()
}

/// Intermediate states are never observed.
fn unobserved(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    deliveries(trace)
        .map(|delivery| Plan::single(Fault::Unobserved, on(delivery, pace), pace))
        .collect()
}

/// The API server restarts at each event, or after each write.
fn server_restarts(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let fault = Fault::ServerRestart;
    match pace {
        Pace::Paced => each(trace, pace, &[fault], is_effective),
        Pace::Rapid => deliveries(trace)
            .map(|delivery| Plan::single(fault, on(delivery, pace), pace))
            .collect(),
    }
}

/// A restarted process, or a list, reads stale state, which is possible only if lists accept any
/// version.
fn time_travel(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    if !trace
        .requests
        .iter()
        .any(|request| request.target.any_version)
    {
        return Vec::new();
    }
    // An older state does not contain the objects created before the story.
    let story = trace
        .marks
        .iter()
        .find(|mark| mark.text.starts_with("user: "));
    let start = story.map(|mark| mark.at).unwrap_or_default();
    let restarts = deliveries(trace)
        .filter(|delivery| delivery.at >= start)
        .map(|delivery| Plan::single(Fault::TimeTravel, on(delivery, pace), pace));
    // Periodic lists may reach a lagging server even without a restart. After each step, the first
    // list may not show the step yet, and the second may no longer show it.
    let mut seen: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let lists = trace.requests.iter().filter(|request| {
        let target = &request.target;
        if !target.any_version || target.verb != Verb::List || request.at < start {
            return false;
        }
        let count = seen
            .entry((request.step, &request.fingerprint))
            .or_default();
        *count += 1;
        *count <= 2
    });
    let lists: Vec<Plan> = lists
        .map(|request| Plan::single(Fault::TimeTravel, at(request, pace), pace))
        .collect();
    restarts.chain(lists).collect()
}

/// Another user deletes or changes each object of the controller.
fn drift(_: &Trace, pace: Pace, context: &Context) -> Vec<Plan> {
    if pace == Pace::Rapid {
        return Vec::new();
    }
    let plan = |fault| move |id: &String| Plan::single(fault, Point::End(id.clone()), pace);
    let deletes = context.owned.iter().map(plan(Fault::DriftDelete));
    deletes
        .chain(context.edits.iter().map(plan(Fault::DriftEdit)))
        .chain(context.owned.iter().map(plan(Fault::DriftHeld)))
        .collect()
}

/// The process is stopped during each step, or another user's finalizer delays a deletion.
fn stops(_: &Trace, pace: Pace, context: &Context) -> Vec<Plan> {
    if pace == Pace::Rapid {
        return Vec::new();
    }
    let plan = |fault| move |step: usize| Plan::single(fault, Point::Step(step), pace);
    let stops = (0..context.steps).map(plan(Fault::Stopped));
    let deletes = context.deletes.iter().copied();
    stops
        .chain(deletes.map(plan(Fault::HeldFinalizer)))
        .collect()
}

/// The CRD gets another version after the first step.
fn upgrades(_: &Trace, pace: Pace, context: &Context) -> Vec<Plan> {
    let planned = context.custom && context.steps > 1 && pace == Pace::Paced;
    let plan = Plan::single(Fault::CrdUpgrade, Point::Step(1), pace);
    planned.then_some(plan).into_iter().collect()
}

/// Two processes run side by side after each write, one is paused and continues after its Lease has
/// expired, or a write of a crashed one arrives late.
fn leaders(trace: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    let faults = match pace {
        Pace::Paced => vec![Fault::Overlap, Fault::Paused],
        Pace::Rapid => vec![Fault::LateWrite, Fault::Paused, Fault::Overlap],
    };
    let is_inside = |request: &Request| request.target.resource.group != "external";
    let mut plans = each(trace, pace, &faults, |request| {
        is_effective(request) && is_inside(request)
    });
    if pace == Pace::Paced {
        // A late delete removes what was created in the meantime, unless it names the object's UID.
        plans.extend(each(trace, pace, &[Fault::LateWrite], |request| {
            is_effective(request) && is_inside(request) && request.target.verb == Verb::Delete
        }));
    }
    plans
}

/// A mutating webhook changes everything the controller writes, from the start.
fn defaulting(_: &Trace, pace: Pace, _: &Context) -> Vec<Plan> {
    vec![Plan::single(Fault::Defaulting, Point::Step(0), pace)]
}

/// Returns plans with two faults: a crash during the recovery from a crash or a lost response.
pub(crate) fn crash_pairs(reference: &Trace, pace: Pace) -> Vec<Plan> {
    let writes: Vec<&Request> = writes(reference).filter(|it| is_effective(it)).collect();
    let mut plans = Vec::new();
    for (i, first) in writes.iter().enumerate() {
        for second in &writes[i..] {
            for (a, b) in [
                (Fault::CrashAfter, Fault::CrashAfter),
                (Fault::CrashBefore, Fault::CrashAfter),
                (Fault::LostResponse, Fault::CrashBefore),
            ] {
                let mut next = at(second, pace);
                if let (true, Point::Request(next)) = (next == at(first, pace), &mut next) {
                    next.nth += 1;
                }
                plans.push(Plan {
                    faults: vec![(a, at(first, pace)), (b, next)],
                    ..Plan::reference(pace)
                });
            }
        }
    }
    plans
}

/// Returns a random plan: up to four single faults of the reference, and random latencies.
pub(crate) fn random(singles: &[Plan], seed: u64) -> Plan {
    let rng = pintle_clock::Rng::with_seed(seed);
    let mut plan = Plan {
        seed,
        ..Plan::default()
    };
    let mut chosen: BTreeMap<Point, Fault> = BTreeMap::new();
    for _ in 0..=rng.below(4) {
        let index = usize::try_from(rng.below(singles.len() as u64)).unwrap_or_default();
        let Some(single) = singles.get(index) else {
            break;
        };
        plan.pace = if chosen.is_empty() {
            single.pace
        } else {
            plan.pace
        };
        let combines = |fault: &Fault| !fault.is_of_user() && !fault.is_drift();
        if let Some((fault, point)) = single.faults.first().filter(|(fault, _)| combines(fault)) {
            chosen.insert(point.clone(), *fault);
        }
    }
    plan.faults = chosen
        .into_iter()
        .map(|(point, fault)| (fault, point))
        .collect();
    plan
}

#[cfg(test)]
mod tests;
