//! Renders the report as an HTML page that shows the failing run and the reference side by side.
//!
//! The page is one file without scripts or external resources, so it can be attached to an issue.

use std::{fmt::Write as _, time::Duration};

use super::{Failure, Report};
use crate::trace::Trace;

/// How many failures the page shows.
const SHOWN: usize = 4;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --bad: #c0392b; --dim: #888; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
pre, td, code { font: 12px/1.5 ui-monospace, monospace; }
pre { padding: 1rem; border: 1px solid var(--line); border-radius: 6px; overflow: auto; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.pair > div { overflow: auto; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: 1px 8px 1px 0; vertical-align: top; white-space: nowrap; }
tr.mark td { color: var(--dim); padding-top: 6px; }
tr.fault td { color: var(--bad); font-weight: 600; }
tr.event td { color: var(--dim); }
tr.write td:nth-child(3) { font-weight: 600; }
@media (max-width: 60rem) { .pair { grid-template-columns: 1fr; } }
";

/// Returns the page.
pub(super) fn page(report: &Report) -> String {
    let mut out = String::new();
    let name = escape(&report.name);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{name}: trials</title>\
         <style>{STYLE}</style><h1>{name}</h1><pre>{}</pre>",
        escape(&super::text::render(report))
    );
    for (i, failure) in report.failures.iter().take(SHOWN).enumerate() {
        show(&mut out, i + 1, failure);
    }
    out.push_str("</html>\n");
    out
}

fn show(out: &mut String, number: usize, failure: &Failure) {
    let _ = write!(
        out,
        "<h2>Failure {number}: {}</h2><p>{} found: {}</p><p><code>PINTLE_TRIALS_REPLAY='{}'</code></p>",
        escape(&failure.plan.family()),
        failure.violation.oracle,
        escape(&failure.violation.text),
        escape(&failure.plan.to_string()),
    );
    if !failure.violation.differences.is_empty() {
        out.push_str("<table><tr><th>object<th>field<th>want<th>got</tr>");
        for difference in &failure.violation.differences {
            let value = |value: &Option<serde_json::Value>| {
                let text = value
                    .as_ref()
                    .map_or_else(|| "nothing".to_owned(), ToString::to_string);
                escape(&text.chars().take(400).collect::<String>())
            };
            let _ = write!(
                out,
                "<tr><td>{}<td>{}<td>{}<td>{}</tr>",
                escape(&difference.object),
                escape(&difference.path),
                value(&difference.want),
                value(&difference.got),
            );
        }
        out.push_str("</table>");
    }
    out.push_str("<div class=\"pair\">");
    if let Some(reference) = &failure.reference {
        out.push_str("<div><h3>Without the fault</h3>");
        table(out, reference);
        out.push_str("</div>");
    }
    out.push_str("<div><h3>With the fault</h3>");
    table(out, &failure.trace);
    out.push_str("</div></div>");
}

/// A line of a trace.
struct Row {
    at: Duration,
    order: usize,
    class: &'static str,
    cells: [String; 4],
}

fn rows(trace: &Trace) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, request) in trace.requests.iter().enumerate() {
        let write = request.target.verb.is_write();
        let status = request
            .status
            .map_or_else(|| "no response".to_owned(), |it| it.to_string());
        let effect = match request.commits.len() {
            0 if write => ", no change",
            _ => "",
        };
        rows.push(Row {
            at: request.at,
            order: i * 4 + 1,
            class: match (&request.fault, write) {
                (Some(_), _) => "fault",
                (_, true) => "write",
                _ => "",
            },
            cells: [
                format!("process {}", request.process),
                request.fingerprint.clone(),
                format!("{status}{effect}"),
                request.fault.clone().unwrap_or_default(),
            ],
        });
    }
    for delivery in &trace.deliveries {
        rows.push(Row {
            at: delivery.at,
            order: usize::MAX,
            class: if delivery.fault.is_some() {
                "fault"
            } else {
                "event"
            },
            cells: [
                format!("process {}", delivery.process),
                format!("event {}", delivery.fingerprint),
                format!("lag {}", delivery.lag),
                delivery.fault.clone().unwrap_or_default(),
            ],
        });
    }
    for mark in &trace.marks {
        rows.push(Row {
            at: mark.at,
            order: mark.request * 4,
            class: if mark.text.contains("(fault)") {
                "fault"
            } else {
                "mark"
            },
            cells: [
                String::new(),
                mark.text.clone(),
                String::new(),
                String::new(),
            ],
        });
    }
    rows.sort_by_key(|row| (row.at, row.order));
    rows
}

fn table(out: &mut String, trace: &Trace) {
    out.push_str("<table><tr><th>time<th>from<th>what<th>response<th>fault</tr>");
    for row in rows(trace) {
        let [who, what, response, fault] = row.cells.map(|cell| escape(&cell));
        let _ = write!(
            out,
            "<tr class=\"{}\"><td>{:.3}<td>{who}<td>{what}<td>{response}<td>{fault}</tr>",
            row.class,
            row.at.as_secs_f64(),
        );
    }
    out.push_str("</table>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
