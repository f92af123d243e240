//! The figures Pintle set out to reach, and whether it does.

use std::fmt::Write as _;

use super::live::{PINTLE_SERVER, REAL_SERVER};
use super::plan::{
    PEERS, Work, handlers_case, live_case, queue_case, reconcile_case, size, sync_case,
};
use super::samples::{Figure, Results, WorkResults};
use super::stats::number;

/// A figure of everybody.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    /// Pintle's figure is to be no higher; not all rows have a goal.
    pub(super) goal: Option<f64>,
    /// In the order of the columns.
    pub(super) values: Vec<Option<f64>>,
}

impl Row {
    /// Whether Pintle reached the goal, if both are known.
    pub(super) fn reached(&self) -> Option<bool> {
        let ours = self.values.first().copied().flatten()?;
        Some(ours <= self.goal?)
    }

    fn cells(&self) -> Vec<String> {
        let ours = self.values.first().copied().flatten();
        let each = self
            .values
            .iter()
            .enumerate()
            .map(|(n, value)| match (value, ours) {
                (None, _) => "–".to_owned(),
                (Some(value), Some(ours)) if n > 0 && ours > 0.0 => {
                    format!("{} ({}×)", number(*value), number(value / ours))
                }
                (Some(value), _) => number(*value),
            });
        each.collect()
    }
}

/// Looks figures up, in the sizes they were measured with.
struct Look<'a>(&'a Results);

impl Look<'_> {
    fn work(&self, work: Work) -> Option<&WorkResults> {
        self.0.works.get(work.name())
    }

    fn median(&self, work: Work, case: &str, peer: &str, figure: Figure) -> Option<f64> {
        Some(self.work(work)?.spread(case, peer, figure)?.median)
    }

    fn size(&self, work: Work, full: usize) -> usize {
        size(full, self.work(work).is_some_and(|work| work.quick))
    }

    /// The same case for all peers.
    fn all(&self, work: Work, case: &str, figure: Figure) -> Vec<Option<f64>> {
        let peers = PEERS.iter();
        peers
            .map(|peer| self.median(work, case, peer, figure))
            .collect()
    }

    /// Everybody as a user gets it: Pintle without managedFields, the others with them.
    fn as_shipped(&self, figure: Figure) -> Vec<Option<f64>> {
        let case = |peer: &str| sync_case(if peer == "pintle" { "strip" } else { "keep" });
        let peers = PEERS.iter();
        peers
            .map(|peer| self.median(Work::Sync, &case(peer), peer, figure))
            .collect()
    }

    /// Live and as shipped: the Go libraries take protobuf, the Rust ones JSON.
    fn live_as_shipped(&self, figure: Figure) -> Vec<Option<f64>> {
        let case = |peer: &str| {
            let go = matches!(peer, "client-go" | "controller-runtime");
            live_case(if go { "protobuf" } else { "json" }, false)
        };
        let peers = PEERS.iter();
        peers
            .map(|peer| self.median(Work::Sync, &case(peer), peer, figure))
            .collect()
    }
}

/// What each handler beyond the first adds to an event, in ns.
fn further_handler(one: &[Option<f64>], four: &[Option<f64>]) -> Vec<Option<f64>> {
    let both = one.iter().zip(four);
    both.map(|(one, four)| Some((((*four)? - (*one)?) / 3.0 * 1e3).max(0.0)))
        .collect()
}

fn quotient(many: &[Option<f64>], few: &[Option<f64>]) -> Vec<Option<f64>> {
    let both = many.iter().zip(few);
    both.map(|(many, few)| Some((*many)? / (*few)?)).collect()
}

/// The rows with all four libraries.
pub(super) fn libraries(results: &Results) -> Vec<Row> {
    let look = Look(results);
    let row = |what, goal: Option<f64>, values| Row { what, goal, values };
    let pipeline = |handlers| {
        look.all(
            Work::Pipeline,
            &handlers_case(handlers),
            Figure::CpuPerCount,
        )
    };
    let reconcile = |keys, reads| {
        let case = reconcile_case(look.size(Work::Reconcile, keys), reads);
        look.all(Work::Reconcile, &case, Figure::CpuPerCount)
    };
    let reads = |figure| {
        let case = format!(
            "{} Pods",
            super::plan::count(look.size(Work::Reads, 100_000))
        );
        look.all(Work::Reads, &case, figure)
    };
    let relist = {
        let pods = super::plan::count(look.size(Work::Relist, 10_000));
        let case = format!("{pods} Pods, recorded, JSON, managedFields kept");
        look.all(Work::Relist, &case, Figure::RelistPeak)
    };
    let (one, four) = (pipeline(1), pipeline(4));
    let (few, many) = (reconcile(5000, false), reconcile(100_000, false));
    let memory = |fields| look.all(Work::Sync, &sync_case(fields), Figure::MemoryPerObject);
    vec![
        row(
            "first sync over JSON, as shipped: CPU per Pod, µs",
            Some(5.0),
            look.as_shipped(Figure::CpuPerCount),
        ),
        row(
            "first sync, live and as shipped (Go: protobuf; Rust: JSON): CPU per Pod, µs",
            None,
            look.live_as_shipped(Figure::CpuPerCount),
        ),
        row(
            "memory per cached Pod, as shipped, KiB",
            Some(5.5),
            look.as_shipped(Figure::MemoryPerObject),
        ),
        row(
            "memory per cached Pod, managedFields kept in all, KiB",
            None,
            memory("keep"),
        ),
        row(
            "memory per cached Pod, managedFields stripped in all, KiB",
            None,
            memory("strip"),
        ),
        row(
            "first sync: peak ÷ memory after",
            Some(1.1),
            look.as_shipped(Figure::PeakOverSteady),
        ),
        row("relist: peak ÷ memory before", Some(1.3), relist),
        row(
            "watch event from the wire to one handler: CPU, µs",
            None,
            look.all(Work::Watch, &handlers_case(1), Figure::CpuPerCount),
        ),
        row(
            "event beyond decoding, one handler: CPU, µs",
            Some(0.6),
            one.clone(),
        ),
        row(
            "event, each further handler: CPU, ns",
            Some(50.0),
            further_handler(&one, &four),
        ),
        row(
            "queue, one worker: add + get + done, CPU, ns",
            Some(100.0),
            look.all(Work::Queue, &queue_case(1), Figure::CpuNsPerCount),
        ),
        row(
            "queue, 64 workers: add + get + done, CPU, ns",
            None,
            look.all(Work::Queue, &queue_case(64), Figure::CpuNsPerCount),
        ),
        row(
            "no-op reconcile, 100,000 keys: CPU, µs",
            Some(1.0),
            many.clone(),
        ),
        row(
            "no-op reconcile, growth from 5,000 to 100,000 keys",
            Some(1.1),
            quotient(&many, &few),
        ),
        row(
            "look-up by index, 20 objects: CPU, µs",
            Some(0.4),
            reads(Figure::Raw("by_index_ns", 1e-3)),
        ),
        row(
            "selector over 100,000 objects: CPU, ms",
            Some(1.0),
            reads(Figure::Raw("selector_ns", 1e-6)),
        ),
    ]
}

/// The rows of the API servers.
pub(super) fn servers(results: &Results) -> Vec<Row> {
    let look = Look(results);
    let row = |what, goal, name, factor| {
        let values = [PINTLE_SERVER, REAL_SERVER].map(|peer| {
            let case = "over TLS, on one core";
            look.median(Work::Apiserver, case, peer, Figure::Raw(name, factor))
        });
        Row {
            what,
            goal,
            values: values.to_vec(),
        }
    };
    vec![
        row("start to ready, ms", Some(10.0), "ready_ms", 1.0),
        row("idle memory, MiB", Some(15.0), "idle_kib", 1.0 / 1024.0),
        row("CPU per create, µs", None, "create_cpu_us", 1.0),
        row("CPU per listed MiB, ms", None, "list_cpu_ms_per_mib", 1.0),
        row(
            "CPU per event delivered to one of 1,000 watchers, µs",
            None,
            "fanout_cpu_us",
            1.0,
        ),
    ]
}

/// Both tables, as markdown.
pub(super) fn table(results: &Results) -> String {
    let mut text = String::new();
    one_table(
        &mut text,
        &PEERS.map(|peer| if peer == "pintle" { "Pintle" } else { peer }),
        &libraries(results),
    );
    text.push('\n');
    one_table(&mut text, &[PINTLE_SERVER, REAL_SERVER], &servers(results));
    text
}

fn one_table(text: &mut String, columns: &[&str], rows: &[Row]) {
    let _ = writeln!(text, "| figure | goal | {} | |", columns.join(" | "));
    let _ = writeln!(text, "|---|---:|{}---|", "---:|".repeat(columns.len()));
    for row in rows {
        let goal = row.goal.map(|goal| format!("≤ {goal}")).unwrap_or_default();
        let verdict = match (row.reached(), row.goal) {
            (Some(true), _) => "reached",
            (Some(false), _) => "**missed**",
            (None, Some(_)) => "not measured",
            (None, None) => "",
        };
        let _ = writeln!(
            text,
            "| {} | {goal} | {} | {verdict} |",
            row.what,
            row.cells().join(" | ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(goal: Option<f64>, values: &[Option<f64>]) -> Row {
        Row {
            what: "a figure",
            goal,
            values: values.to_vec(),
        }
    }

    #[test]
    fn ratios_are_to_our_own_figure() {
        let row = row(Some(5.0), &[Some(4.0), Some(40.0), None, Some(1.0)]);
        assert_eq!(row.cells(), ["4.00", "40.0 (10.0×)", "–", "1.00 (0.250×)"]);
        assert_eq!(row.reached(), Some(true));
    }

    #[test]
    fn a_missed_goal_is_said_and_a_missing_figure_is_no_success() {
        let mut text = String::new();
        let rows = [
            row(Some(5.0), &[Some(6.0)]),
            row(Some(5.0), &[None]),
            row(None, &[Some(1.0)]),
        ];
        one_table(&mut text, &["Pintle"], &rows);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| a figure | ≤ 5 | 6.00 | **missed** |",
                "| a figure | ≤ 5 | – | not measured |",
                "| a figure |  | 1.00 |  |",
            ]
        );
    }

    #[test]
    fn a_further_handler_costs_a_third_of_three_more() {
        let cost = further_handler(&[Some(1.0), None], &[Some(4.0), Some(1.0)]);
        assert_eq!(cost, [Some(1000.0), None]);
    }
}
