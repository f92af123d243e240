//! Runs a check: references first, then scenarios on all cores until the budget ends.
//!
//! ```text
//! references ─► fresh clusters, bystanders ─► regressions ─► single faults ─► pairs ─► seeds ─► report
//! ```

pub(crate) mod baseline;
mod derive;
mod expected;
mod options;
mod pool;
mod regressions;

use std::{collections::BTreeMap, sync::Arc};

pub(crate) use self::options::Options;
pub(crate) use self::options::Stopwatch;
use self::{baseline::Baseline, pool::Pool};
use crate::{
    Check, Report,
    oracles::{Oracle, Violation, judge_trial},
    permissions::Permissions,
    plan::{Fault, Pace, Plan, families},
    report::Failure,
    run::{Depth, prepare::namespaces, scenario},
    shrink,
    story::Step,
    trace::{Abort, Trace},
};

/// How many failures are kept.
const FAILURES: usize = 6;
/// How many failures of one family are kept.
const PER_FAMILY: usize = 2;

/// Runs a check.
pub(crate) fn run(mut check: Check) -> Report {
    let watch = Stopwatch::start();
    let given = check.setup.given.iter();
    let objects = given.chain(check.story.iter().map(Step::object));
    let namespaces = namespaces(objects.chain(&check.walk));
    check.setup.namespaces.extend(namespaces);
    if check.errors.is_empty()
        && let Err(error) = derive::derive(&mut check)
    {
        check.errors.push(error);
    }
    let mut report = Report::new(&check.options);
    for error in &check.errors {
        report.fail_early(Violation::new(Oracle::Story, error.clone()));
    }
    if !check.errors.is_empty() {
        return report.finished(&watch);
    }
    let check = Arc::new(check);
    let baseline = match Baseline::record(&check, &mut report) {
        Ok(baseline) => baseline,
        Err(failures) => {
            report.add(failures);
            return finish(&check, report, &watch);
        }
    };
    if let Some(token) = check.options.replay.clone() {
        replay(&check, &baseline, &token, &mut report);
        return report.finished(&watch);
    }
    let pool = Pool::new(&check, &baseline, &watch);
    let known = regressions::load(&check.options);
    let again = pool.run(&known.plans, "regressions");
    // If its point no longer occurs, the controller has changed, but the bug may still be there.
    let gone = again.outcomes.iter().filter(|it| it.vanished).count();
    if gone > 0 {
        report.note(format!(
            "{gone} recorded failures can no longer be injected; remove them from {}",
            regressions::file(&check.options).display()
        ));
    }
    absorb(&check, &baseline, &mut report, again);

    let wanted = |plan: &Plan| check.options.wants(&plan.family());
    let mut singles: Vec<Plan> = Vec::new();
    for pace in [Pace::Paced, Pace::Rapid] {
        let (reference, context) = (baseline.reference(pace), baseline.context(&check));
        let plans = families::singles(reference, pace, &context);
        singles.extend(plans.into_iter().filter(wanted));
    }
    if let Some(most) = check.options.sample
        && !check.options.budget_from_env
        && most < singles.len()
    {
        let all = singles.len();
        singles = families::sample(singles, most);
        report.note(format!(
            "{} of {all} single faults were tried",
            singles.len()
        ));
    }
    absorb(
        &check,
        &baseline,
        &mut report,
        pool.run(&singles, "single faults"),
    );
    let failed = !report.is_ok();
    if check.options.pairs && !failed {
        let mut pairs = families::crash_pairs(baseline.reference(Pace::Paced), Pace::Paced);
        pairs.extend(families::crash_pairs(
            baseline.reference(Pace::Rapid),
            Pace::Rapid,
        ));
        absorb(
            &check,
            &baseline,
            &mut report,
            pool.run(&pairs, "pairs of crashes"),
        );
    }
    if !failed && !singles.is_empty() {
        let random = |index: usize| {
            let seed = check.options.seed.checked_add(index as u64)?;
            Some(families::random(&singles, seed))
        };
        let batch = pool.run_each(check.options.seeds, random, "random combinations");
        absorb(&check, &baseline, &mut report, batch);
    }
    // A stored failure that does not parse is not replayed, so the check cannot pass.
    for error in known.errors {
        report.fail_early(Violation::new(Oracle::Vanished, error));
    }
    finish(&check, report, &watch)
}

/// Adds the results of a batch to the report.
fn absorb(check: &Arc<Check>, baseline: &Baseline, report: &mut Report, batch: pool::Batch) {
    report.scenarios += batch.outcomes.len();
    report.left_out = report.left_out.saturating_add(batch.left);
    let mut per_family: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in &batch.outcomes {
        let family = outcome.plan.family();
        *report.families.entry(family).or_default() += 1;
        report.vanished += usize::from(outcome.vanished);
        report.slowest = report.slowest.max(outcome.late);
        report.permissions.merge(&outcome.permissions);
    }
    let mut failures: Vec<_> = batch
        .outcomes
        .into_iter()
        .filter_map(pool::Outcome::failed)
        .collect();
    report.failed += failures.len();
    // Failures of a paced story are easier to understand.
    failures.sort_by(|(a, ..), (b, ..)| (a.pace, a).cmp(&(b.pace, b)));
    let mut kept = Vec::new();
    for (plan, violation, trace) in failures {
        let count = per_family.entry(plan.family()).or_default();
        if *count == PER_FAMILY || report.failures.len() + kept.len() >= FAILURES {
            continue;
        }
        *count += 1;
        kept.push((plan, violation, trace));
    }
    for (i, (plan, violation, trace)) in kept.into_iter().enumerate() {
        // Shrinking takes time, so only the first few failures are shrunk.
        let failure = if report.failures.is_empty() && i == 0 && !check.setup.is_program {
            shrink::shrink(check, baseline, plan, violation, trace)
        } else {
            Failure::new(plan, violation, trace, check.steps())
        };
        report.failures.push(failure.explained(baseline));
    }
}

fn finish(check: &Check, mut report: Report, watch: &Stopwatch) -> Report {
    regressions::save(&check.options, &mut report);
    if let Some(role) = &check.options.role {
        report.compare_permissions(role);
    }
    let mut report = report.finished(watch);
    report.write_page(&check.options);
    report
}

/// Runs one plan again.
fn replay(check: &Arc<Check>, baseline: &Baseline, token: &str, report: &mut Report) {
    report.scenarios += 1;
    let plan: Plan = match token.parse() {
        Ok(plan) => plan,
        Err(error) => {
            report.fail_early(Violation::new(Oracle::Story, error_text(&error)));
            return;
        }
    };
    report.replayed = Some(plan.clone());
    let (trace, found) = baseline.judge(check, &plan);
    if trace.aborted == Some(Abort::Vanished) {
        report.fail_early(Violation::new(
            Oracle::Vanished,
            format!("{plan}: the controller no longer sends this request; nothing was replayed"),
        ));
        return;
    }
    for violation in found {
        let steps = check.steps();
        let failure = Failure::new(plan.clone(), violation, trace.clone(), steps);
        report.failures.push(failure.explained(baseline));
        report.failed = 1;
    }
}

fn error_text(error: &impl std::error::Error) -> String {
    error.to_string()
}

impl Baseline {
    /// Runs a plan and judges it.
    pub(crate) fn judge(&self, check: &Check, plan: &Plan) -> (Trace, Vec<Violation>) {
        let steps = self.steps_of(check, plan);
        let expected = self.expected(check, plan);
        let limit = self.limit(steps.len());
        let trace = scenario(
            &check.setup,
            &steps,
            plan,
            Some(&expected),
            limit,
            Depth::Trial,
        );
        let mut found = judge_trial(
            plan,
            &expected,
            self.removals(),
            &check.options.precious,
            &trace,
        );
        found.extend(self.foreign(check, &trace));
        found.retain(|violation| !check.options.relaxes(violation.oracle));
        (trace, found)
    }
}

/// Returns whether a plan also works with fewer steps.
pub(crate) fn is_shrinkable(plan: &Plan) -> bool {
    !plan.has(|it| matches!(it, Fault::DriftEdit | Fault::UserNext))
}

pub(crate) fn permissions_of(trace: &Trace) -> Permissions {
    Permissions::of(trace)
}
