//! The report as text.

use std::fmt::Write as _;

use super::{Failure, Report};
use crate::plan::{Occurrence, Point};

/// How many differences of a failure are shown.
const DIFFERENCES: usize = 6;

pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    let Report {
        name,
        scenarios,
        failed,
        elapsed,
        ..
    } = report;
    let seconds = elapsed.as_secs_f64();
    if report.is_ok() {
        let _ = writeln!(
            out,
            "{name}: converges in {scenarios} scenarios ({seconds:.1} s)"
        );
    } else if *failed > 0 {
        let _ = writeln!(
            out,
            "{name}: {failed} of {scenarios} scenarios failed ({seconds:.1} s)"
        );
    } else {
        let _ = writeln!(
            out,
            "{name}: the Role does not match the permissions that were used ({seconds:.1} s)"
        );
    }
    for failure in &report.failures {
        show(&mut out, report, failure);
    }
    if let Some(how) = &report.nondeterministic {
        let _ = writeln!(
            out,
            "  note     not deterministic: {how}; failures were repeated"
        );
    }
    if report.left_out > 0 {
        let why = if report.failed > 0 {
            "enough failures were found"
        } else {
            "the budget was exhausted; raise PINTLE_TRIALS_BUDGET"
        };
        let _ = writeln!(
            out,
            "  note     {} scenarios were not run: {why}",
            report.left_out
        );
    }
    if report.slowest.as_secs() > 60 {
        let _ = writeln!(
            out,
            "  note     the slowest scenario converged {} min after the last change",
            report.slowest.as_secs() / 60
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "  note     {note}");
    }
    for missing in &report.missing_permissions {
        let _ = writeln!(
            out,
            "  missing  {missing}: used, but the Role does not allow it"
        );
    }
    for unused in &report.unused_permissions {
        let _ = writeln!(
            out,
            "  unused   {unused}: the Role allows it, but no scenario used it"
        );
    }
    if !report.missing_permissions.is_empty() || !report.unused_permissions.is_empty() {
        let _ = writeln!(
            out,
            "  minimal role\n{}",
            indent(&report.permissions.to_yaml())
        );
    }
    if let Some(file) = &report.regressions {
        let _ = writeln!(out, "  saved    {} (runs first next time)", file.display());
    }
    if let Some(page) = &report.page {
        let _ = writeln!(out, "  page     {}", page.display());
    }
    out
}

fn indent(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

fn show(out: &mut String, report: &Report, failure: &Failure) {
    let plan = &failure.plan;
    let _ = writeln!(out);
    if plan.faults.is_empty() {
        let _ = writeln!(out, "  fault    none ({} story)", plan.pace.as_str());
    }
    for (fault, point) in &plan.faults {
        let _ = writeln!(out, "  fault    {}  {}", fault.name(), place(point));
        let _ = writeln!(out, "           {}", fault.describe());
    }
    if let Some(hit) = failure.hit() {
        let _ = writeln!(
            out,
            "           at {:.3} s, after step {}{}",
            hit.at.as_secs_f64(),
            hit.step,
            failure
                .steps
                .get(hit.step)
                .map(|it| format!(": {it}"))
                .unwrap_or_default()
        );
    }
    let oracle = failure.violation.oracle;
    let step = failure.violation.step.map(|step| {
        let what = failure.steps.get(step).map(|it| format!(" ({it})"));
        format!("after step {step}{}: ", what.unwrap_or_default())
    });
    let _ = writeln!(out, "  oracle   {oracle}  {}", step.unwrap_or_default());
    let _ = writeln!(out, "           {}", failure.violation.text);
    let more = failure.violation.differences.iter().skip(1);
    for difference in more.take(DIFFERENCES - 1) {
        let _ = writeln!(out, "           {}", difference.describe());
    }
    for (i, fact) in failure.why.iter().enumerate() {
        let head = if i == 0 { "  why      " } else { "           " };
        let _ = writeln!(out, "{head}{fact}");
    }
    if failure.steps.len() < failure.shrunk_from {
        let _ = writeln!(
            out,
            "  shrunk   story {} -> {} steps: {}",
            failure.shrunk_from,
            failure.steps.len(),
            failure.steps.join("; ")
        );
    }
    if !plan.faults.is_empty() {
        let _ = writeln!(
            out,
            "  replay   {}'{plan}'{}",
            report.replay_with.0, report.replay_with.1
        );
    }
}

fn place(point: &Point) -> String {
    match point {
        Point::Request(occurrence) => format!("request {}", nth(occurrence)),
        Point::Event(occurrence) => format!("event {}", nth(occurrence)),
        Point::End(object) => format!("object {object}"),
        Point::Step(step) => format!("step {step}"),
    }
}

fn nth(
    Occurrence {
        step,
        fingerprint,
        nth,
    }: &Occurrence,
) -> String {
    match step {
        Some(step) => format!("{fingerprint} #{nth} of step {step}"),
        None => format!("{fingerprint} #{nth}"),
    }
}
