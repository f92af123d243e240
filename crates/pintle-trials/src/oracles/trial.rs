//! Oracles of runs under faults.

use std::collections::BTreeMap;

use super::{Oracle, PRECIOUS, Violation, reference::aborted, removals};
use crate::{
    canonical::{Compare, differences},
    plan::{Fault, Pace, Plan},
    run::Expected,
    trace::{Abort, Trace},
};

/// Judges a run under faults.
pub(crate) fn judge(
    plan: &Plan,
    expected: &Expected,
    allowed: &BTreeMap<String, usize>,
    trace: &Trace,
) -> Vec<Violation> {
    if trace.aborted == Some(Abort::Vanished) {
        return Vec::new();
    }
    let mut found = aborted(trace);
    if !found.is_empty() {
        return found;
    }
    found.extend(same_end(plan, expected, trace));
    found.extend(status(trace));
    found.extend(extra_deletes(plan, allowed, trace));
    found.extend(lost_updates(trace));
    found.extend(panics(trace));
    found.extend(user(trace));
    found
}

/// A state of the idle cluster differs from the reference.
fn same_end(plan: &Plan, expected: &Expected, trace: &Trace) -> Option<Violation> {
    let path_matters = plan.pace == Pace::Rapid || has_user(plan);
    let how = if path_matters {
        Compare::PathFree
    } else {
        Compare::Exact
    };
    trace.checkpoints.iter().find_map(|checkpoint| {
        let wanted = if checkpoint.deleted {
            expected.absent.get(&checkpoint.step)
        } else {
            expected.steps.get(&checkpoint.step)
        };
        let found = differences(wanted?, &checkpoint.state, how);
        Violation::differing(Oracle::SameEnd, checkpoint.step, found)
    })
}

fn has_user(plan: &Plan) -> bool {
    let by_user = |fault: &Fault| {
        matches!(
            fault,
            Fault::UserDelete
                | Fault::UserNext
                | Fault::UserRecreate
                | Fault::DriftDelete
                | Fault::DriftEdit
        )
    };
    plan.faults.iter().any(|(fault, _)| by_user(fault))
}

fn status(trace: &Trace) -> Option<Violation> {
    trace.checkpoints.iter().find_map(|checkpoint| {
        let stale = checkpoint.stale_status.first()?;
        Some(Violation::new(Oracle::StatusTrue, stale.clone()).at(checkpoint.step))
    })
}

/// The controller deleted an object more often than without the fault.
fn extra_deletes(
    plan: &Plan,
    allowed: &BTreeMap<String, usize>,
    trace: &Trace,
) -> Option<Violation> {
    if has_user(plan) || plan.faults.len() > 1 {
        return None;
    }
    let removed = removals(trace);
    let extra = |(what, count): (&String, &usize)| {
        let allowed = allowed.get(what).copied().unwrap_or_default();
        (*count > allowed).then(|| {
            let precious = PRECIOUS.iter().any(|kind| what.starts_with(kind));
            let loss = if precious {
                ", which may hold data"
            } else {
                ""
            };
            Violation::new(
                Oracle::NoExtraDelete,
                format!("{what}{loss}: deleted {count} times, without the fault {allowed} times"),
            )
        })
    };
    removed.iter().find_map(extra)
}

fn lost_updates(trace: &Trace) -> Option<Violation> {
    let what = trace.overwritten.first()?;
    Some(Violation::new(
        Oracle::NoLostUpdate,
        format!("{what} has no resourceVersion and overwrote what another client had written"),
    ))
}

/// A task panicked and the process continued. Panics in a crashed process do not count.
pub(super) fn panics(trace: &Trace) -> Option<Violation> {
    let crashed = trace.marks.iter().any(|mark| mark.text.contains("crashes"));
    let panic = trace.panics.first().filter(|_| !crashed)?;
    Some(Violation::new(Oracle::NoPanic, panic.replace('\n', " ")))
}

pub(super) fn user(trace: &Trace) -> Option<Violation> {
    let name = trace.unmet.first()?;
    Some(Violation::new(
        Oracle::User,
        format!("{name} does not hold"),
    ))
}
