//! Pintle's performance goals, and whether they are met.

use std::fmt::Write as _;

use super::live::{GO_FOO, PINTLE_SERVER, REAL_SERVER};
use super::plan::{
    DUPLICATE_CASE, PEERS, Work, eager_case, handlers_case, live_case, queue_case, reconcile_case,
    size, sync_case,
};
use super::samples::{Figure, Results, WorkResults};
use super::stats::number;

/// The goal for Pintle's figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// At most this.
    AtMost(f64),
    /// At most the figure of the next column divided by this.
    PartOfPeer(f64),
}

impl Goal {
    fn show(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {most}"),
            Self::PartOfPeer(part) => format!("≤ 1/{part} of the peer"),
        }
    }
}

/// One figure for every column.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    /// Some rows have none.
    pub(super) goal: Option<Goal>,
    /// In column order.
    pub(super) values: Vec<Option<f64>>,
}

impl Row {
    /// Returns whether Pintle meets the goal, if both are known.
    pub(super) fn reached(&self) -> Option<bool> {
        let ours = self.values.first().copied().flatten()?;
        let most = match self.goal? {
            Goal::AtMost(most) => most,
            Goal::PartOfPeer(part) => self.values.get(1).copied().flatten()? / part,
        };
        Some(ours <= most)
    }

    fn cells(&self) -> Vec<String> {
        let ours = self.values.first().copied().flatten();
        let each = self
            .values
            .iter()
            .enumerate()
            .map(|(n, value)| match (value, ours) {
                (None, _) => "–".to_owned(),
                (Some(value), Some(ours)) if n > 0 && ours > 0.0 && *value > 0.0 => {
                    format!("{} ({}×)", number(*value), number(value / ours))
                }
                (Some(value), _) => number(*value),
            });
        each.collect()
    }
}

/// Looks up figures by the sizes they were measured with.
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

    /// Returns the figures of one case for all peers.
    fn all(&self, work: Work, case: &str, figure: Figure) -> Vec<Option<f64>> {
        let peers = PEERS.iter();
        peers
            .map(|peer| self.median(work, case, peer, figure))
            .collect()
    }

    /// Replaces Pintle's figure with its figure for another case.
    fn but_ours(&self, mut all: Vec<Option<f64>>, case: &str, figure: Figure) -> Vec<Option<f64>> {
        if let Some(ours) = all.first_mut() {
            *ours = self.median(Work::Sync, case, PEERS[0], figure);
        }
        all
    }

    /// Live figures with each library's default encoding: protobuf in Go, JSON in Rust.
    fn live_own_encoding(&self, figure: Figure) -> Vec<Option<f64>> {
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

/// Returns the cost that each handler beyond the first adds per event, in ns. Negative values are
/// noise, and shown as they are.
fn further_handler(one: &[Option<f64>], four: &[Option<f64>]) -> Vec<Option<f64>> {
    let both = one.iter().zip(four);
    both.map(|(one, four)| Some(((*four)? - (*one)?) / 3.0 * 1e3))
        .collect()
}

fn quotient(many: &[Option<f64>], few: &[Option<f64>]) -> Vec<Option<f64>> {
    let both = many.iter().zip(few);
    both.map(|(many, few)| Some((*many)? / (*few)?)).collect()
}

fn row(what: &'static str, at_most: Option<f64>, values: Vec<Option<f64>>) -> Row {
    Row {
        what,
        goal: at_most.map(Goal::AtMost),
        values,
    }
}

/// Returns the rows with all four libraries.
pub(super) fn libraries(results: &Results) -> Vec<Row> {
    let look = Look(results);
    let mut rows = first_sync(&look);
    rows.extend(memory(&look));
    rows.extend(events(&look));
    rows.extend(keys(&look));
    rows.extend(reads(&look));
    rows
}

fn first_sync(look: &Look<'_>) -> Vec<Row> {
    let kept = || look.all(Work::Sync, &sync_case("keep"), Figure::CpuPerCount);
    vec![
        row(
            "first sync over JSON, managedFields kept in all: CPU per Pod, µs",
            Some(5.0),
            kept(),
        ),
        row(
            "the same, **Pintle decoding every object eagerly**, as the others do: µs",
            None,
            look.but_ours(kept(), &eager_case(), Figure::CpuPerCount),
        ),
        row(
            "the same with default settings (**Pintle WITHOUT managedFields, the others WITH: not like for like**): µs",
            None,
            look.but_ours(kept(), &sync_case("strip"), Figure::CpuPerCount),
        ),
        row(
            "first sync, live, managedFields kept in all (Go: protobuf; Rust: JSON): CPU per Pod, µs",
            None,
            look.live_own_encoding(Figure::CpuPerCount),
        ),
    ]
}

fn memory(look: &Look<'_>) -> Vec<Row> {
    let of = |fields, figure| look.all(Work::Sync, &sync_case(fields), figure);
    let kept = || of("keep", Figure::MemoryPerObject);
    let pods = super::plan::count(look.size(Work::Relist, 10_000));
    let relist = format!("{pods} Pods, recorded, JSON, managedFields kept");
    vec![
        row(
            "memory per cached Pod, managedFields kept in all, KB",
            Some(5.5),
            kept(),
        ),
        row(
            "the same, **Pintle also keeping every object decoded**: KB",
            None,
            look.but_ours(kept(), &eager_case(), Figure::MemoryPerObject),
        ),
        row(
            "the same, the others after a forced collection (Go) or malloc_trim (kube-rs), Pintle unchanged: KB",
            None,
            look.but_ours(
                of("keep", Figure::LeastPerObject),
                &sync_case("keep"),
                Figure::MemoryPerObject,
            ),
        ),
        row(
            "the same with default settings (**Pintle WITHOUT managedFields, the others WITH: not like for like**): KB",
            None,
            look.but_ours(kept(), &sync_case("strip"), Figure::MemoryPerObject),
        ),
        row(
            "memory per cached Pod, managedFields stripped in all, KB",
            None,
            of("strip", Figure::MemoryPerObject),
        ),
        row(
            "first sync, managedFields kept in all: peak ÷ memory after",
            Some(1.1),
            of("keep", Figure::PeakOverSteady),
        ),
        row(
            "relist, managedFields kept in all: peak ÷ memory before",
            Some(1.3),
            look.all(Work::Relist, &relist, Figure::RelistPeak),
        ),
    ]
}

fn events(look: &Look<'_>) -> Vec<Row> {
    let pipeline = |handlers| {
        let case = handlers_case(handlers);
        look.all(Work::Pipeline, &case, Figure::CpuPerCount)
    };
    let (one, four) = (pipeline(1), pipeline(4));
    let further = further_handler(&one, &four);
    vec![
        row(
            "watch event from the network to one handler: CPU, µs",
            None,
            look.all(Work::Watch, &handlers_case(1), Figure::CpuPerCount),
        ),
        row(
            "event after decoding, to one handler: CPU, µs",
            Some(0.6),
            one,
        ),
        row(
            "event, each additional handler: CPU, ns",
            Some(50.0),
            further,
        ),
    ]
}

fn keys(look: &Look<'_>) -> Vec<Row> {
    let queue = |case: &str| look.all(Work::Queue, case, Figure::CpuNsPerCount);
    let (one, crowd) = (queue(&queue_case(1)), queue(&queue_case(64)));
    let grown = quotient(&crowd, &one);
    let reconcile = |keys, reads| {
        let case = reconcile_case(look.size(Work::Reconcile, keys), reads);
        look.all(Work::Reconcile, &case, Figure::CpuPerCount)
    };
    let (few, many) = (reconcile(5000, false), reconcile(100_000, false));
    let flat = quotient(&many, &few);
    vec![
        row(
            "queue, one worker: add + get + done (kube-rs: its scheduler, add + get), CPU, ns",
            Some(100.0),
            one,
        ),
        row(
            "queue: add of a key already queued, CPU, ns",
            Some(30.0),
            queue(DUPLICATE_CASE),
        ),
        row("queue, 64 workers: add + get + done, CPU, ns", None, crowd),
        row("queue, 64 workers ÷ one worker", Some(2.0), grown),
        row("no-op reconcile, 100,000 keys: CPU, µs", Some(1.0), many),
        row(
            "no-op reconcile, growth from 5,000 to 100,000 keys",
            Some(1.1),
            flat,
        ),
        row(
            "reconcile that reads its object, decoded, 100,000 keys: CPU, µs",
            None,
            reconcile(100_000, true),
        ),
    ]
}

fn reads(look: &Look<'_>) -> Vec<Row> {
    let pods = super::plan::count(look.size(Work::Reads, 100_000));
    let of = |name, factor| {
        let case = format!("{pods} Pods");
        look.all(Work::Reads, &case, Figure::Raw(name, factor))
    };
    // Where measured, controller-runtime without copies, and kube-rs, which has no index, by
    // filtering.
    let or = |best: Vec<Option<f64>>, usual: Vec<Option<f64>>| {
        let both = best.into_iter().zip(usual);
        both.map(|(best, usual)| best.or(usual)).collect::<Vec<_>>()
    };
    let index = of("by_index_ns", 1e-3);
    let otherwise = or(of("by_index_uncopied_ns", 1e-3), of("by_filter_ns", 1e-3));
    let selector = of("selector_ns", 1e-6);
    vec![
        row(
            "lookup by index, 20 objects: CPU, µs",
            Some(0.4),
            index.clone(),
        ),
        row(
            "the same, controller-runtime without copies, kube-rs by filtering all objects: µs",
            None,
            or(otherwise, index),
        ),
        row(
            "selector over 100,000 objects: CPU, ms",
            Some(1.0),
            selector.clone(),
        ),
        row(
            "the same, controller-runtime without copies: ms",
            None,
            or(of("selector_uncopied_ns", 1e-6), selector),
        ),
    ]
}

/// Returns the rows of the Foo controllers.
pub(super) fn foos(results: &Results) -> Vec<Row> {
    let look = Look(results);
    let case = format!("{} Foos", super::plan::count(look.size(Work::Foo, 1000)));
    let row = |what, goal, figure| Row {
        what,
        goal,
        values: ["pintle", GO_FOO]
            .map(|peer| look.median(Work::Foo, &case, peer, figure))
            .to_vec(),
    };
    vec![
        row(
            "CPU per Foo, ms",
            Some(Goal::PartOfPeer(3.0)),
            Figure::Raw("cpu_ms_per_foo", 1.0),
        ),
        row(
            "peak memory, MiB",
            Some(Goal::PartOfPeer(4.0)),
            Figure::Raw("peak_kib", 1.0 / 1024.0),
        ),
        row(
            "writes per Foo, including events",
            None,
            Figure::Raw("writes_per_foo", 1.0),
        ),
        row("Foos per second (more is better)", None, Figure::PerSecond),
    ]
}

/// Returns the rows of the API servers.
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
        row(
            "start to ready, ms",
            Some(Goal::AtMost(10.0)),
            "ready_ms",
            1.0,
        ),
        row(
            "idle memory, MB",
            Some(Goal::AtMost(15.0)),
            "idle_kib",
            1.024e-3,
        ),
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

/// Renders all tables as markdown.
pub(super) fn table(results: &Results) -> String {
    let mut text = String::new();
    one_table(
        &mut text,
        &PEERS.map(|peer| if peer == "pintle" { "Pintle" } else { peer }),
        &libraries(results),
    );
    text.push('\n');
    one_table(
        &mut text,
        &["Pintle's sample-controller", GO_FOO],
        &foos(results),
    );
    text.push('\n');
    one_table(&mut text, &[PINTLE_SERVER, REAL_SERVER], &servers(results));
    text
}

/// Renders the three figures that the README shows.
pub(super) fn excerpt(results: &Results) -> String {
    let look = Look(results);
    let kept = |figure| look.all(Work::Sync, &sync_case("keep"), figure);
    let queue = look.all(Work::Queue, &queue_case(1), Figure::CpuNsPerCount);
    let mut text = String::from("| | Pintle | client-go | controller-runtime | kube-rs |\n");
    text.push_str("|---|---:|---:|---:|---:|\n");
    for (what, unit, values) in [
        (
            "CPU per Pod, first sync over JSON",
            "µs",
            kept(Figure::CpuPerCount),
        ),
        ("memory per cached Pod", "KB", kept(Figure::MemoryPerObject)),
        (
            "CPU per queue cycle: add, get, done (kube-rs: add, get)",
            "ns",
            queue,
        ),
    ] {
        let cells = row(what, None, values).cells();
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| match cell.split_once(' ') {
                Some((value, factor)) => format!("{value} {unit} {factor}"),
                None if cell == "–" => cell.clone(),
                None => format!("{cell} {unit}"),
            })
            .collect();
        let _ = writeln!(text, "| {what} | {} |", cells.join(" | "));
    }
    text
}

fn one_table(text: &mut String, columns: &[&str], rows: &[Row]) {
    let _ = writeln!(text, "| figure | goal | {} | |", columns.join(" | "));
    let _ = writeln!(text, "|---|---:|{}---|", "---:|".repeat(columns.len()));
    for row in rows {
        let goal = row.goal.map(Goal::show).unwrap_or_default();
        let noise = row
            .values
            .first()
            .copied()
            .flatten()
            .is_some_and(|ours| ours < 0.0);
        let verdict = match (row.reached(), row.goal) {
            (Some(true), _) if noise => "met (within noise)",
            (Some(true), _) => "met",
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
mod tests;
