//! Runs scenarios on all cores, until they are done or the budget ends.

use std::{
    io::{IsTerminal, Write as _},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use super::{baseline::Baseline, options::Stopwatch};
use crate::{Check, oracles::Violation, permissions::Permissions, plan::Plan, trace::Abort};

/// How many failures end a batch early.
const ENOUGH: usize = 6;

/// The result of one scenario.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) violation: Option<Violation>,
    pub(crate) vanished: bool,
    /// The longest time a state took to converge, beyond the usual wait.
    pub(crate) late: Duration,
    pub(crate) permissions: Permissions,
}

impl Outcome {
    pub(crate) fn failed(self) -> Option<(Plan, Violation)> {
        Some((self.plan, self.violation?))
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
    #[allow(clippy::needless_pass_by_value, reason = "a batch is used once")]
    pub(crate) fn run(&self, plans: Vec<Plan>, what: &str) -> Batch {
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(plans.len().min(4096)));
        let progress = Progress::new(what, plans.len());
        let jobs = self.check.options.jobs.min(plans.len());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while self.watch.elapsed() < self.check.options.budget
                        && failed.load(Ordering::Relaxed) < ENOUGH
                    {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(plan) = plans.get(index) else {
                            return;
                        };
                        let outcome = self.try_plan(plan);
                        if outcome.violation.is_some() {
                            failed.fetch_add(1, Ordering::Relaxed);
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
        let left = plans.len() - outcomes.len();
        Batch {
            outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect(),
            left,
        }
    }

    fn try_plan(&self, plan: &Plan) -> Outcome {
        let (trace, found) = self.baseline.judge(self.check, plan);
        let mut violation = found.into_iter().next();
        if violation.is_some() && !self.baseline.deterministic {
            // A single failure of a nondeterministic controller proves little.
            let again = (0..2).filter(|_| !self.baseline.judge(self.check, plan).1.is_empty());
            if again.count() == 0 {
                violation = None;
            }
        }
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
        }
    }
}

/// A line on the terminal that shows the progress of a batch.
struct Progress<'a> {
    what: &'a str,
    total: usize,
    shown: bool,
}

impl<'a> Progress<'a> {
    fn new(what: &'a str, total: usize) -> Self {
        let shown = total > 0 && std::io::stderr().is_terminal();
        Self { what, total, shown }
    }

    fn show(&self, done: usize, failed: usize) {
        if self.shown && (done.is_multiple_of(16) || done == self.total) {
            let (what, left) = (self.what, self.total - done);
            let mut terminal = std::io::stderr().lock();
            let _ = write!(
                terminal,
                "\r\x1b[2K{what}: {done} done, {failed} failed, {left} left"
            );
            let _ = terminal.flush();
        }
    }

    fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}
