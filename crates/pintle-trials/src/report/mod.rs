//! The result of a check, rendered as text and as an HTML page.

mod html;
mod inspector;
mod text;

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use serde_json::Value;

use crate::{
    oracles::{Oracle, Violation},
    permissions::Permissions,
    plan::{Pace, Plan, Point},
    runner::{Options, Stopwatch, baseline::Baseline},
    story::Step,
    trace::{Request, Trace},
};

/// The result of a check.
#[derive(Debug, Clone)]
pub struct Report {
    /// The name of the check.
    pub name: String,
    /// How many scenarios were run.
    pub scenarios: usize,
    /// How many of them failed.
    pub failed: usize,
    /// How many were planned but not run, because the budget was exhausted or enough had failed.
    pub left_out: usize,
    /// How many faults were not injected, because their point did not occur.
    pub vanished: usize,
    /// The number of scenarios of each family.
    pub families: BTreeMap<String, usize>,
    /// Some of the failures: only a few of each family.
    pub failures: Vec<Failure>,
    /// The first difference between two runs without faults, if there is one.
    pub nondeterministic: Option<String>,
    /// The longest virtual time a scenario took to converge, beyond the usual wait.
    pub slowest: Duration,
    /// The permissions that were used.
    pub permissions: Permissions,
    /// The permissions that were used but are missing from the Role.
    pub missing_permissions: Vec<String>,
    /// The permissions of the Role that were not used.
    pub unused_permissions: Vec<String>,
    pub(crate) replayed: Option<Plan>,
    /// How to replay a scenario: what precedes and what follows the token.
    pub(crate) replay_with: (&'static str, String),
    pub(crate) notes: Vec<String>,
    pub(crate) regressions: Option<PathBuf>,
    pub(crate) page: Option<PathBuf>,
    pub(crate) elapsed: Duration,
}

/// A scenario that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The scenario; its text form is the replay token.
    pub plan: Plan,
    /// The violated oracle.
    pub violation: Violation,
    /// The trace of the run.
    pub trace: Trace,
    /// The trace of the reference.
    pub(crate) reference: Option<Trace>,
    /// Descriptions of the steps of the story.
    pub steps: Vec<String>,
    /// How many steps there were before shrinking.
    pub(crate) shrunk_from: usize,
    /// Facts that may explain the failure.
    pub(crate) why: Vec<String>,
}

impl Failure {
    pub(crate) fn new(plan: Plan, violation: Violation, trace: Trace, steps: &[Step]) -> Self {
        Self {
            plan,
            violation,
            trace,
            reference: None,
            steps: steps.iter().map(Step::describe).collect(),
            shrunk_from: steps.len(),
            why: Vec::new(),
        }
    }

    /// Adds facts from the traces that may explain the failure.
    pub(crate) fn explained(mut self, baseline: &Baseline) -> Self {
        let reference = baseline.reference(self.plan.pace);
        self.why = why(&self, reference);
        self.reference = Some(reference.clone());
        self
    }

    /// Returns the request that the first fault hit.
    pub fn hit(&self) -> Option<&Request> {
        let (fault, Point::Request(at)) = self.plan.faults.first()? else {
            return None;
        };
        let hit = Some(fault.name());
        let mut requests = self.trace.requests.iter();
        requests.find(|it| it.fingerprint == at.fingerprint && it.fault == hit)
    }
}

/// Returns which writes took effect less or more often than in the reference.
fn why(failure: &Failure, reference: &Trace) -> Vec<String> {
    let count = |trace: &Trace| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for request in &trace.requests {
            if request.changed_state() {
                *counts.entry(request.fingerprint.clone()).or_default() += 1;
            }
        }
        counts
    };
    if !failure.plan.steps.is_empty() || failure.plan.faults.is_empty() {
        return Vec::new();
    }
    let (want, got) = (count(reference), count(&failure.trace));
    let mut facts = Vec::new();
    for (what, times) in &want {
        let seen = got.get(what).copied().unwrap_or(0);
        if seen < *times {
            facts.push(format!(
                "{what} took effect {seen} times, without the fault {times} times"
            ));
        }
    }
    for (what, times) in &got {
        let expected = want.get(what).copied().unwrap_or(0);
        if expected < *times {
            facts.push(format!(
                "{what} took effect {times} times, without the fault {expected} times"
            ));
        }
    }
    facts.truncate(4);
    facts
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let relaxed = options
            .relaxed
            .iter()
            .map(|(oracle, why)| format!("{oracle} is relaxed: {why}"));
        let without = options
            .without
            .iter()
            .map(|(family, why)| format!("without {family}: {why}"));
        Self {
            name: options.name.clone(),
            scenarios: 0,
            failed: 0,
            left_out: 0,
            vanished: 0,
            families: BTreeMap::new(),
            failures: Vec::new(),
            nondeterministic: None,
            slowest: Duration::ZERO,
            permissions: Permissions::default(),
            missing_permissions: Vec::new(),
            unused_permissions: Vec::new(),
            replayed: None,
            replay_with: options.replay_with.clone(),
            notes: options
                .notes
                .iter()
                .cloned()
                .chain(relaxed)
                .chain(without)
                .collect(),
            regressions: None,
            page: None,
            elapsed: Duration::ZERO,
        }
    }

    /// Returns whether no scenario failed and the used permissions match the Role, if there is one.
    pub fn is_ok(&self) -> bool {
        self.failures.is_empty()
            && self.missing_permissions.is_empty()
            && self.unused_permissions.is_empty()
    }

    /// Returns whether this oracle was violated.
    pub fn found(&self, oracle: Oracle) -> bool {
        self.failures.iter().any(|it| it.violation.oracle == oracle)
    }

    /// Returns how long the check took, in real time.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn add(&mut self, failures: Vec<Failure>) {
        self.failures.extend(failures);
    }

    pub(crate) fn fail_early(&mut self, violation: Violation) {
        let plan = self
            .replayed
            .clone()
            .unwrap_or_else(|| Plan::reference(Pace::Paced));
        self.failed += 1;
        self.failures
            .push(Failure::new(plan, violation, Trace::default(), &[]));
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(crate) fn compare_permissions(&mut self, rules: &Value) {
        (self.missing_permissions, self.unused_permissions) = self.permissions.compare(rules);
    }

    pub(crate) fn finished(mut self, watch: &Stopwatch) -> Self {
        self.elapsed = watch.elapsed();
        self
    }

    /// Writes the page of the first failures and, beside it, a trace for the inspector.
    pub(crate) fn write_page(&mut self, options: &Options) {
        if self.failures.is_empty() {
            return;
        }
        let file = options.pages.join(format!("{}.html", options.file_name()));
        let stored = std::fs::create_dir_all(&options.pages)
            .and_then(|()| std::fs::write(&file, html::page(self)))
            .and_then(|()| {
                let trace = inspector::trace(self).to_string();
                std::fs::write(file.with_extension("trace.json"), trace)
            });
        match stored {
            Ok(()) => self.page = Some(file),
            Err(error) => self.note(format!("cannot write {}: {error}", file.display())),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::render(self))
    }
}
