//! Oracles of runs without faults.

use std::collections::BTreeSet;

use super::{Oracle, Violation};
use crate::{
    canonical::{Compare, State, comparable_body, differences},
    gateway::request::{ResourceName, is_bookkeeping},
    random::Random,
    story::{Desired, Step},
    trace::{Abort, Request, Trace},
};

/// Judges a reference on its own.
pub(crate) fn judge(trace: &Trace, steps: &[Step], given: &[Desired]) -> Vec<Violation> {
    let mut found = aborted(trace);
    if !found.is_empty() {
        return found;
    }
    found.extend(restless(trace));
    found.extend(stuck(trace));
    found.extend(orphans(trace, steps, given));
    found.extend(status(trace));
    found.extend(super::trial::panics(trace));
    found.extend(super::trial::user(trace));
    found
}

/// Reports a scenario that ended early.
pub(super) fn aborted(trace: &Trace) -> Vec<Violation> {
    let violation = match &trace.aborted {
        None => return Vec::new(),
        Some(Abort::HotLoop(count, what)) => Violation::new(
            Oracle::NoHotLoop,
            format!("more than {count} requests within a minute, the last one {what}"),
        ),
        Some(Abort::CrashLoop(count, why)) => Violation::new(
            Oracle::NoCrashLoop,
            format!("the process exited {count} times on its own: {why}"),
        ),
        Some(Abort::Restless(minutes)) => Violation::new(
            Oracle::Quiescent,
            format!("the cluster was not idle within {minutes} minutes"),
        ),
        Some(Abort::Story(why)) => Violation::new(Oracle::Story, why.clone()),
        Some(Abort::Vanished) => Violation::new(
            Oracle::Vanished,
            "the fault's point did not occur: the controller no longer sends this request",
        ),
    };
    vec![violation]
}

/// Reports a controller that writes although nothing has changed.
pub(super) fn restless(trace: &Trace) -> Vec<Violation> {
    let violation = |restless: &crate::trace::Restless| {
        let oracle = if restless.during.contains("restart") {
            Oracle::Idempotent
        } else {
            Oracle::Quiescent
        };
        let what = restless.requests.join(", ");
        let times = restless.count;
        let during = restless.during;
        Violation::new(oracle, format!("{times} changes during {during}: {what}"))
    };
    trace.restless.iter().map(violation).collect()
}

/// Reports a deletion that does not complete.
fn stuck(trace: &Trace) -> Vec<Violation> {
    for checkpoint in &trace.checkpoints {
        for (title, objects) in &checkpoint.state.objects {
            let stuck =
                |object: &&serde_json::Value| !object["metadata"]["deletionTimestamp"].is_null();
            if let Some(object) = objects.iter().find(stuck) {
                let by = &object["metadata"]["finalizers"];
                let text = format!("{title} is stuck in deletion; finalizers: {by}");
                return vec![Violation::new(Oracle::NoStuck, text).at(checkpoint.step)];
            }
        }
    }
    Vec::new()
}

/// Reports a child that outlives the object it was created for.
fn orphans(trace: &Trace, steps: &[Step], given: &[Desired]) -> Vec<Violation> {
    let of_story = |resource: &ResourceName| {
        steps
            .iter()
            .any(|step| step.object().kind.resource == *resource)
    };
    let made: BTreeSet<String> = trace
        .requests
        .iter()
        .flat_map(|request| &request.commits)
        .filter(|commit| !of_story(&commit.resource) && !is_bookkeeping(&commit.resource))
        .filter(|commit| !super::PRECIOUS.contains(&commit.resource.plural.as_str()))
        .map(|commit| {
            let slash = if commit.key.contains('/') { "" } else { "/" };
            format!("{}/{slash}{}", commit.resource, commit.key)
        })
        .collect();
    let given: BTreeSet<String> = given
        .iter()
        .map(|it| format!("{}/{}/{}", it.kind.resource, it.namespace, it.name))
        .collect();
    for checkpoint in &trace.checkpoints {
        let played = (checkpoint.step + 1).min(steps.len());
        if played == 0 || !all_deleted(&steps[..played]) {
            continue;
        }
        for (title, id) in &checkpoint.state.ids {
            let external = title.starts_with("External ");
            if external || (made.contains(id) && !given.contains(id)) {
                let text = format!("{title} still exists after its owner was deleted");
                return vec![Violation::new(Oracle::NoOrphan, text).at(checkpoint.step)];
            }
        }
    }
    Vec::new()
}

/// Returns whether nothing of the story exists after these steps.
fn all_deleted(steps: &[Step]) -> bool {
    let mut alive = BTreeSet::new();
    for step in steps {
        match step {
            Step::Apply(object, _) => alive.insert(object.path()),
            Step::Delete(object) => alive.remove(&object.path()),
        };
    }
    alive.is_empty()
}

/// Reports a status that describes an older generation.
fn status(trace: &Trace) -> Vec<Violation> {
    for checkpoint in &trace.checkpoints {
        if let Some(stale) = checkpoint.stale_status.first() {
            let violation = Violation::new(Oracle::StatusTrue, stale.clone());
            return vec![violation.at(checkpoint.step)];
        }
    }
    Vec::new()
}

/// Compares the state after a path with the state of a fresh cluster.
pub(crate) fn fresh(path: &State, fresh: &State, step: usize) -> Option<Violation> {
    let found = differences(fresh, path, Compare::PathFree);
    let mut violation = Violation::differing(Oracle::PathFree, step, found)?;
    violation.text += " (want: in a fresh cluster; got: after the story)";
    Some(violation)
}

/// Compares the writes of two runs. Fails with a description of the first difference.
pub(crate) fn same_requests(a: &Trace, b: &Trace, random: &Random) -> Result<(), String> {
    let writes = |trace: &'_ Trace| -> Vec<Request> {
        let counts =
            |request: &&Request| request.target.verb.is_write() && !request.target.is_bookkeeping();
        trace.requests.iter().filter(counts).cloned().collect()
    };
    let (a, b) = (writes(a), writes(b));
    for (i, (first, second)) in a.iter().zip(&b).enumerate() {
        if first.fingerprint != second.fingerprint {
            return Err(format!(
                "write {}: one run sends {}, the other {}",
                i + 1,
                first.fingerprint,
                second.fingerprint
            ));
        }
        let (x, y) = (&first.body, &second.body);
        // Where random values are expected, bodies are not compared: their states are.
        if x != y && random.is_empty() && comparable_body(x) != comparable_body(y) {
            let what = &first.fingerprint;
            let how = first_difference(x, y);
            return Err(format!("write {}: the bodies of {what} differ{how}", i + 1));
        }
    }
    if a.len() != b.len() {
        return Err(format!(
            "one run sends {} writes, the other {}",
            a.len(),
            b.len()
        ));
    }
    Ok(())
}

fn first_difference(a: &[u8], b: &[u8]) -> String {
    let state = |body: &[u8]| {
        let body = comparable_body(body).unwrap_or_default();
        let mut state = State::default();
        state.objects.insert(String::new(), vec![body]);
        state
    };
    let found = differences(&state(a), &state(b), Compare::Exact);
    found.first().map_or_else(String::new, |difference| {
        format!(
            " at {}: {} or {}; is a HashMap iterated?",
            difference.path,
            difference.want.clone().unwrap_or_default(),
            difference.got.clone().unwrap_or_default(),
        )
    })
}
