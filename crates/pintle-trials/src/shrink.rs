//! Makes a failing scenario smaller: fewer faults, then fewer steps.

use std::sync::Arc;

use crate::{
    Check,
    oracles::Violation,
    plan::Plan,
    report::Failure,
    runner::{baseline::Baseline, is_shrinkable},
    trace::Abort,
};

/// How many smaller scenarios are tried.
const TRIES: usize = 16;

/// Returns the smallest scenario found that fails the same oracle.
pub(crate) fn shrink(
    check: &Arc<Check>,
    baseline: &Baseline,
    plan: Plan,
    violation: Violation,
) -> Failure {
    let mut tries = TRIES;
    let original = check.steps().len();
    let mut best = (plan, violation);
    let mut attempt = |plan: &Plan, wanted: &Violation| -> Option<Violation> {
        tries = tries.checked_sub(1)?;
        let (trace, found) = baseline.judge(check, plan);
        if matches!(trace.aborted, Some(Abort::Vanished | Abort::Story(_))) {
            return None;
        }
        found.into_iter().find(|it| it.oracle == wanted.oracle)
    };
    // Try with fewer faults.
    let mut i = 0;
    while best.0.faults.len() > 1 && i < best.0.faults.len() {
        let mut plan = best.0.clone();
        plan.faults.remove(i);
        if let Some(violation) = attempt(&plan, &best.1) {
            best = (plan, violation);
        } else {
            i += 1;
        }
    }
    // Try with fixed latencies.
    if best.0.seed != 0 {
        let plan = Plan {
            seed: 0,
            ..best.0.clone()
        };
        if let Some(violation) = attempt(&plan, &best.1) {
            best = (plan, violation);
        }
    }
    // Try with fewer steps, dropping the last ones first.
    if is_shrinkable(&best.0) {
        let mut steps: Vec<usize> = (0..original).collect();
        // Drop the steps after the one at which it was found.
        let played = best.1.step.map_or(original, |step| step + 1);
        if played < original {
            let plan = Plan {
                steps: steps[..played].to_vec(),
                ..best.0.clone()
            };
            if let Some(violation) = attempt(&plan, &best.1) {
                best = (plan, violation);
                steps.truncate(played);
            }
        }
        let mut i = steps.len();
        while i > 0 {
            i -= 1;
            if steps.len() == 1 {
                break;
            }
            let mut fewer = steps.clone();
            fewer.remove(i);
            let plan = Plan {
                steps: fewer.clone(),
                ..best.0.clone()
            };
            if let Some(violation) = attempt(&plan, &best.1) {
                best = (plan, violation);
                steps = fewer;
            }
        }
    }
    let (plan, violation) = best;
    let (trace, _) = baseline.judge(check, &plan);
    let played = baseline.steps_of(check, &plan);
    let mut failure = Failure::new(plan, violation, trace, &played);
    failure.shrunk_from = original;
    failure
}
