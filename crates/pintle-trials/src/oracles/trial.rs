//! Oracles of runs under faults.

use std::collections::BTreeMap;

use super::{Oracle, PRECIOUS, Violation, reference::aborted, removals};
use crate::{
    canonical::{Compare, differences},
    gateway::request::ResourceName,
    plan::{Fault, Pace, Plan},
    run::Expected,
    trace::{Abort, Trace},
};

/// Judges a run under faults.
pub(crate) fn judge(
    plan: &Plan,
    expected: &Expected,
    allowed: &BTreeMap<String, usize>,
    precious: &[ResourceName],
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
    found.extend(extra_deletes(plan, allowed, precious, trace));
    found.extend(lost_updates(trace));
    found.extend(dropped_fields(trace));
    found.extend(super::leases::written_without(trace));
    if plan.has(|it| it == Fault::Defaulting) {
        found.extend(super::reference::restless(trace));
    }
    found.extend(lost_finalizers(trace));
    found.extend(panics(trace));
    found.extend(user(trace));
    found
}

/// Reports a checkpoint whose state differs from the reference.
fn same_end(plan: &Plan, expected: &Expected, trace: &Trace) -> Option<Violation> {
    let by_user = |it: Fault| it.is_of_user() || it.is_drift();
    let path_matters = plan.pace == Pace::Rapid || plan.has(by_user);
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
        let violation = Violation::differing(Oracle::SameEnd, checkpoint.step, found)?;
        Some(if violation.is_duplicate() {
            Violation {
                oracle: Oracle::NoDuplicate,
                ..violation
            }
        } else {
            violation
        })
    })
}

fn status(trace: &Trace) -> Option<Violation> {
    trace.checkpoints.iter().find_map(|checkpoint| {
        let stale = checkpoint.stale_status.first()?;
        Some(Violation::new(Oracle::StatusTrue, stale.clone()).at(checkpoint.step))
    })
}

/// Reports an object that the controller deleted more often than without the fault.
fn extra_deletes(
    plan: &Plan,
    allowed: &BTreeMap<String, usize>,
    precious: &[ResourceName],
    trace: &Trace,
) -> Option<Violation> {
    if plan.has(Fault::is_of_user) {
        return None;
    }
    // Objects that are recreated anyway may be deleted again: after drift, or by two processes.
    let again = |it: Fault| it.overlaps() || it.is_drift();
    let tolerant = plan.has(again) || plan.faults.len() > 1;
    let removed = removals(trace);
    let extra = |(what, count): (&String, &usize)| {
        let allowed = allowed.get(what).copied().unwrap_or_default();
        let of_user = precious.iter().map(ToString::to_string);
        let mut kinds = of_user.chain(PRECIOUS.map(str::to_owned));
        let precious = kinds.any(|kind| what.starts_with(&(kind + " ")));
        (*count > allowed && (precious || !tolerant)).then(|| {
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
        format!("{what} has no resourceVersion and overwrote another client's change"),
    ))
}

fn dropped_fields(trace: &Trace) -> Option<Violation> {
    let what = trace.dropped.first()?;
    Some(Violation::new(
        Oracle::NoLostUpdate,
        format!("{what} lost a property that the user set after the CRD was upgraded"),
    ))
}

fn lost_finalizers(trace: &Trace) -> Option<Violation> {
    let what = trace.unheld.first()?;
    Some(Violation::new(
        Oracle::OwnOnly,
        format!("removed the finalizer of another user from {what}"),
    ))
}

/// Reports a task that panicked. Panics of crashed processes are not recorded.
pub(super) fn panics(trace: &Trace) -> Option<Violation> {
    let panic = trace.panics.first()?;
    Some(Violation::new(Oracle::NoPanic, panic.replace('\n', " ")))
}

pub(super) fn user(trace: &Trace) -> Option<Violation> {
    let name = trace.unmet.first()?;
    Some(Violation::new(
        Oracle::User,
        format!("{name} does not hold"),
    ))
}
