//! Runs scenarios on all cores, until they are done or the budget ends.

use std::{
    io::{IsTerminal, Write as _},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use super::{baseline::Baseline, options::Stopwatch};
use crate::{
    Check,
    oracles::Violation,
    permissions::Permissions,
    plan::Plan,
    trace::{Abort, Trace},
};

/// How many failures end a batch early.
const ENOUGH: usize = 6;
/// How many scenarios are started after the first failure, to see which other faults matter.
const AFTER_FAILURE: usize = 32;

/// The result of one scenario.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) violation: Option<Violation>,
    /// The trace of a failure.
    trace: Option<Trace>,
    pub(crate) vanished: bool,
    /// The longest time a state took to converge, beyond the usual wait.
    pub(crate) late: Duration,
    pub(crate) permissions: Permissions,
}

impl Outcome {
    pub(crate) fn failed(self) -> Option<(Plan, Violation, Trace)> {
        Some((self.plan, self.violation?, self.trace?))
    }
}

/// The results of many scenarios.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) outcomes: Vec<Outcome>,
    /// How many were not run.
    pub(crate) left: usize,
}

pub(crate) struct Pool<'a> {
    check: &'a Check,
    baseline: &'a Baseline,
    watch: &'a Stopwatch,
}

impl<'a> Pool<'a> {
    pub(crate) fn new(check: &'a Check, baseline: &'a Baseline, watch: &'a Stopwatch) -> Self {
        Self {
            check,
            baseline,
            watch,
        }
    }

    /// Runs plans in order.
    pub(crate) fn run(&self, plans: &[Plan], what: &str) -> Batch {
        self.run_each(Some(plans.len()), |index| plans.get(index).cloned(), what)
    }

    /// Runs the plans that `plan` returns for 0, 1, 2 and so on: `total` of them, or as many as
    /// the budget allows.
    pub(crate) fn run_each(
        &self,
        total: Option<usize>,
        plan: impl Fn(usize) -> Option<Plan> + Sync,
        what: &str,
    ) -> Batch {
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(0);
        let last = AtomicUsize::new(usize::MAX);
        let done = Mutex::new(Vec::new());
        let progress = Progress::new(what, total);
        let jobs = self.check.options.jobs.min(total.unwrap_or(usize::MAX));
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while self.watch.elapsed() < self.check.options.budget
                        && failed.load(Ordering::Relaxed) < ENOUGH
                    {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let within = total.is_none_or(|total| index < total);
                        let Some(plan) = within.then(|| plan(index)).flatten() else {
                            return;
                        };
                        if index > last.load(Ordering::Relaxed) {
                            return;
                        }
                        let outcome = self.try_plan(&plan);
                        if outcome.violation.is_some() {
                            failed.fetch_add(1, Ordering::Relaxed);
                            last.fetch_min(index.saturating_add(AFTER_FAILURE), Ordering::Relaxed);
                        }
                        let mut done = done.lock();
                        done.push((index, outcome));
                        progress.show(done.len(), failed.load(Ordering::Relaxed));
                    }
                });
            }
        });
        progress.clear();
        let mut outcomes = done.into_inner();
        outcomes.sort_by_key(|(index, _)| *index);
        let left = total.map_or(0, |total| total - outcomes.len());
        Batch {
            outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect(),
            left,
        }
    }

    fn try_plan(&self, plan: &Plan) -> Outcome {
        let (trace, found) = self.baseline.judge(self.check, plan);
        let mut violation = found.into_iter().next();
        if violation.is_some() && !self.baseline.deterministic {
            // A single failure of a nondeterministic controller is not conclusive.
            let again = (0..2).filter(|_| !self.baseline.judge(self.check, plan).1.is_empty());
            if again.count() == 0 {
                violation = None;
            }
        }
        let failed = violation.is_some();
        Outcome {
            plan: plan.clone(),
            violation,
            vanished: trace.aborted == Some(Abort::Vanished),
            late: trace
                .checkpoints
                .iter()
                .map(|it| it.late)
                .max()
                .unwrap_or_default(),
            permissions: super::permissions_of(&trace),
            trace: failed.then_some(trace),
        }
    }
}

/// A line on the terminal that shows the progress of a batch.
struct Progress<'a> {
    what: &'a str,
    total: Option<usize>,
    shown: bool,
}

impl<'a> Progress<'a> {
    fn new(what: &'a str, total: Option<usize>) -> Self {
        let shown = total != Some(0) && std::io::stderr().is_terminal();
        Self { what, total, shown }
    }

    fn show(&self, done: usize, failed: usize) {
        if self.shown && (done.is_multiple_of(16) || Some(done) == self.total) {
            let mut terminal = std::io::stderr().lock();
            let line = line(self.what, done, failed, self.total);
            let _ = write!(terminal, "\r\x1b[2K{line}");
            let _ = terminal.flush();
        }
    }

    fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

/// The width of the bar.
const WIDTH: usize = 30;

/// Renders the progress of a batch: a bar if the end is known.
fn line(what: &str, done: usize, failed: usize, total: Option<usize>) -> String {
    let Some(total) = total else {
        return format!("{what}: {done} done, {failed} failed");
    };
    let filled = (done * WIDTH)
        .checked_div(total)
        .unwrap_or(WIDTH)
        .min(WIDTH);
    let (full, empty) = ("#".repeat(filled), "-".repeat(WIDTH - filled));
    let left = total.saturating_sub(done);
    format!("{what} [{full}{empty}] {done} done, {failed} failed, {left} left")
}

#[cfg(test)]
mod tests;
