//! Makes a failing scenario smaller: fewer faults, then fewer steps.

use std::sync::Arc;

use crate::{
    Check,
    oracles::Violation,
    plan::Plan,
    report::Failure,
    runner::{baseline::Baseline, is_shrinkable},
    trace::{Abort, Trace},
};

/// How many smaller scenarios are tried.
const TRIES: usize = 12;
/// The same for a scenario that was aborted: one that never becomes idle takes a long time.
const ABORTED_TRIES: usize = 2;

/// Returns the smallest scenario found that fails the same oracle.
pub(crate) fn shrink(
    check: &Arc<Check>,
    baseline: &Baseline,
    plan: Plan,
    violation: Violation,
    trace: Trace,
) -> Failure {
    let mut tries = match trace.aborted {
        Some(_) => ABORTED_TRIES,
        None => TRIES,
    };
    let original = check.steps().len();
    let mut best = (plan, violation, trace);
    // Replaces the best scenario if a smaller one fails the same oracle.
    let mut attempt = |plan: Plan, best: &mut (Plan, Violation, Trace)| -> bool {
        let Some(left) = tries.checked_sub(1) else {
            return false;
        };
        tries = left;
        let (trace, found) = baseline.judge(check, &plan);
        if matches!(trace.aborted, Some(Abort::Vanished | Abort::Story(_))) {
            return false;
        }
        let same = found.into_iter().find(|it| it.oracle == best.1.oracle);
        let Some(violation) = same else {
            return false;
        };
        *best = (plan, violation, trace);
        true
    };
    // Try with fewer faults.
    let mut i = 0;
    while best.0.faults.len() > 1 && i < best.0.faults.len() {
        let mut plan = best.0.clone();
        plan.faults.remove(i);
        if !attempt(plan, &mut best) {
            i += 1;
        }
    }
    // Try with fixed latencies.
    if best.0.seed != 0 {
        let plan = Plan {
            seed: 0,
            ..best.0.clone()
        };
        attempt(plan, &mut best);
    }
    if is_shrinkable(&best.0) {
        let mut try_steps = |steps: &[usize], best: &mut _| {
            let (plan, ..): &(Plan, Violation, Trace) = best;
            let plan = Plan {
                steps: steps.to_vec(),
                ..plan.clone()
            };
            attempt(plan, best)
        };
        let all: Vec<usize> = (0..original).collect();
        // Drop the steps after the one at which it was found, then those before it.
        let played = best.1.step.map_or(original, |step| step + 1).min(original);
        let mut steps = all.clone();
        if played < original && try_steps(&all[..played], &mut best) {
            steps.truncate(played);
        }
        if steps.len() > 2 && try_steps(&steps[steps.len() - 1..], &mut best) {
            steps.drain(..steps.len() - 1);
        }
        let mut i = steps.len();
        while i > 0 && steps.len() > 1 {
            i -= 1;
            let mut fewer = steps.clone();
            fewer.remove(i);
            if try_steps(&fewer, &mut best) {
                steps = fewer;
            }
        }
    }
    let (plan, violation, trace) = best;
    let played = baseline.steps_of(check, &plan);
    let mut failure = Failure::new(plan, violation, trace, &played);
    failure.shrunk_from = original;
    failure
}
