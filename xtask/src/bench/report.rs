//! The report, and the part of it that the README shows.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::goals;
use super::live::{
    GO_FOO, PINTLE_LOOPS, PINTLE_LOOPS_REAL, PINTLE_SERVER, REAL_LOOPS, REAL_SERVER,
};
use super::plan::{PEERS, Work};
use super::samples::{MissKind, Results, WorkResults};

const BEGIN: &str = "<!-- written by cargo xtask bench: begin -->";
const END: &str = "<!-- written by cargo xtask bench: end -->";

const NOT_COMPARED: &str = "Not compared: more than one machine, a network that is slow or breaks, \
TLS and HTTP/2 apart from the live rows, gzip, trimmed caches, other allocators and settings of Go's \
collector.";

/// What every figure of a cache has to be read with.
const CAVEAT: &str = "Pintle caches each object's bytes with a parsed header and decodes on demand, \
while client-go, controller-runtime and kube-rs hold decoded objects.";

/// Who stands in a work's table.
fn columns(work: Work) -> Vec<&'static str> {
    match work {
        Work::Foo => vec!["pintle", GO_FOO],
        Work::Apiserver => vec![PINTLE_SERVER, REAL_SERVER],
        Work::Cluster => vec![PINTLE_LOOPS, PINTLE_LOOPS_REAL, REAL_LOOPS],
        _ => PEERS.to_vec(),
    }
}

fn shown(peer: &str) -> &str {
    if peer == "pintle" { "Pintle" } else { peer }
}

/// The whole report, as markdown.
pub(super) fn render(results: &Results) -> String {
    let mut text = String::from(
        "# Pintle beside client-go, controller-runtime and kube-rs\n\n\
         Written by `cargo xtask bench`; nothing in it is typed by hand.\n\n",
    );
    if results.works.values().any(|work| work.quick) {
        text += "**A trial (`--quick`): one round of a tenth of everything. Its figures mean nothing.**\n\n";
    }
    text += "## Against the goals\n\n\
             Medians. In brackets, how many times Pintle's figure that is: above 1 Pintle needs less. \
             A dash is a figure that is not there; the tables below say why.\n\n";
    let _ = write!(text, "**{CAVEAT}**\n\n");
    text += &goals::table(results);
    provenance(&mut text, results);
    text += "\n## Everything\n\nMedian (lowest–highest) of the rounds.\n";
    for work in Work::ALL {
        if let Some(measured) = results.works.get(work.name()) {
            one_work(&mut text, work, measured);
        } else {
            let _ = write!(
                text,
                "\n### {}\n\nNot measured: `cargo xtask bench {}`.\n",
                work.title(),
                work.name()
            );
        }
    }
    text += METHOD;
    let _ = write!(text, "\n{NOT_COMPARED}\n");
    text
}

/// Where, when and with what.
fn provenance(text: &mut String, results: &Results) {
    text.push_str("\n## Where and with what\n\n");
    let mut machines = BTreeSet::new();
    for work in results.works.values() {
        let machine = &work.machine;
        machines.insert(format!(
            "{}, {} cores, {} GiB, {}; {}; {}",
            machine.cpu,
            machine.cores,
            machine.memory_gib,
            machine.kernel,
            machine.rustc,
            machine.go
        ));
    }
    for machine in machines {
        let _ = writeln!(text, "- {machine}");
    }
    let versions: BTreeSet<String> = results
        .works
        .values()
        .flat_map(|work| {
            let peers = work.samples.iter().map(|sample| sample.peer.as_str());
            let peers: BTreeSet<&str> = peers.collect();
            peers
                .into_iter()
                .filter_map(|peer| Some(format!("{} {}", shown(peer), work.version(peer)?)))
        })
        .collect();
    for version in versions {
        let _ = writeln!(text, "- {version}");
    }
    text.push_str("\n| work | date | commit | rounds | took |\n|---|---|---|---:|---:|\n");
    for work in Work::ALL {
        if let Some(measured) = results.works.get(work.name()) {
            let WorkResults {
                date,
                commit,
                rounds,
                took_s,
                ..
            } = measured;
            let _ = writeln!(
                text,
                "| {} | {date} | {commit} | {rounds} | {took_s:.0} s |",
                work.name()
            );
        }
    }
}

fn one_work(text: &mut String, work: Work, measured: &WorkResults) {
    let columns = columns(work);
    let _ = write!(text, "\n### {}\n\n", work.title());
    let heads: Vec<&str> = columns.iter().map(|peer| shown(peer)).collect();
    let _ = writeln!(text, "| | {} |", heads.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
    let mut notes: Vec<String> = Vec::new();
    for case in cases(measured) {
        let _ = writeln!(
            text,
            "| **{}** ({}) |{}",
            escaped(&case),
            rounds(measured, &case),
            " |".repeat(columns.len())
        );
        for (name, figure) in work.figures() {
            let cells: Vec<Option<String>> = columns
                .iter()
                .map(|peer| Some(measured.spread(&case, peer, *figure)?.show()))
                .collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let cells: Vec<String> = cells
                .into_iter()
                .map(|cell| cell.unwrap_or("–".into()))
                .collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
    }
    for miss in &measured.misses {
        let what = match miss.kind {
            MissKind::Cannot => "cannot",
            MissKind::Partly => "cannot do all of it",
            MissKind::Failed => "**failed**",
        };
        let reason = miss.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        notes.push(format!(
            "- {}, {}: {what}: {}",
            shown(&miss.peer),
            escaped(&miss.case),
            escaped(&reason)
        ));
    }
    if !notes.is_empty() {
        let _ = write!(text, "\n{}\n", notes.join("\n"));
    }
}

/// The cases in the order in which they were measured.
fn cases(measured: &WorkResults) -> Vec<String> {
    let mut cases: Vec<String> = Vec::new();
    let samples = measured.samples.iter().map(|sample| &sample.case);
    for case in samples.chain(measured.misses.iter().map(|miss| &miss.case)) {
        if !cases.contains(case) && case != "all" {
            cases.push(case.clone());
        }
    }
    cases
}

/// How often a case was measured, at most.
fn rounds(measured: &WorkResults, case: &str) -> String {
    let samples = measured.samples.iter().filter(|one| one.case == case);
    match samples.map(|one| one.round).max().unwrap_or_default() {
        1 => "1 round".into(),
        rounds => format!("{rounds} rounds"),
    }
}

/// Text that ends no table cell and starts no tag.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

const METHOD: &str = "
## How it is measured

- `cargo xtask bench` does all of it, `cargo xtask bench queue` one work; `--quick` is a trial. It needs \
Go besides Rust, and builds a real control plane the first time.
- Every run is a fresh process. Peers take turns, A B C D and then D C B A.
- Servers run on the first core, what is measured on the second, unless a row says otherwise.
- CPU is the processor time of the process, user and system, over the measured phase only; start-up is \
left out. Memory is resident memory before the phase, at its peak, and two seconds after it.
- The recorded stream is 10,000 Pods of about 6 KB with `managedFields`, served over plain HTTP from \
memory, in pages. The live rows are the same Pods in a real kube-apiserver and etcd, over TLS; client \
limits and gzip are off everywhere.
- Small Pods (about 400 bytes) are in the cache where no server takes part.
- Pintle caches each object's bytes with a parsed header and decodes on demand, while client-go, \
controller-runtime and kube-rs hold decoded objects. One row lets Pintle decode every object on its way \
in and keep it so, besides its bytes; a reconcile that reads its object has it decoded in all.
- \"As shipped\" is no like for like: Pintle leaves `managedFields` out of its cache, the others keep \
them. No goal stands on it.
- A second figure of memory is taken after the Go programs forced a collection that returns all it can, \
and after kube-rs called `malloc_trim`. Pintle has none: its programs are safe code, which cannot call \
`malloc_trim`.
- Cases that take long have fewer rounds; each says how many. Of one round there is no spread. \
\"Not rebuilt\" beside a commit: the programs were taken as they were built last, perhaps of another.
- KB are 1,000 bytes, KiB 1,024.
- kube-rs's queue is its scheduler, which is public; the runner that completes it is not, so a \"done\" \
is in its reconciles only.
- The API servers and the Foo controllers are looked at from outside, through `/proc`. kube-apiserver \
and etcd are added up, etcd without fsync. Both start with making their \
certificates. Pintle's server is ready when it listens, the real one when kubectl, asking ten times a \
second, is told so by `/readyz` and finds the default namespace.
- Pintle's Foo controller is built as its image is, without the cluster that it can bring along: the \
other has none.
- No kubelet runs: Pods of the cluster's loops stay pending. kube-controller-manager runs the five loops \
that Pintle's are, its client limits lifted.
- What each program does exactly: `benches/peers/README.md`.
";

/// Puts the plots into the README, between the two marks.
pub(super) fn update_readme(file: &Path, results: &Results) -> Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let Some(changed) = replaced(&text, &section(results)) else {
        return Ok(());
    };
    std::fs::write(file, changed).with_context(|| format!("cannot write {}", file.display()))
}

fn replaced(text: &str, section: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

fn section(results: &Results) -> String {
    let mut text = String::new();
    let plots = super::plot::all(results);
    let plots: BTreeSet<&str> = plots.iter().map(|(file, _)| *file).collect();
    if !plots.is_empty() {
        let _ = write!(text, "{CAVEAT}\n\n");
    }
    for (file, what) in [
        ("memory.svg", "Memory per cached Pod"),
        ("sync.svg", "CPU per Pod of the first sync"),
        ("foo.svg", "The Foo controllers: throughput, CPU and memory"),
    ] {
        if plots.contains(file) {
            let _ = writeln!(text, "![{what}](benches/plots/{file})\n");
        }
    }
    let _ = writeln!(
        text,
        "All figures, with spread, versions, machine and goals missed: [benches/RESULTS.md](benches/RESULTS.md); \
         `cargo xtask bench` measures them again. {NOT_COMPARED}"
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plan::sync_case;
    use super::super::samples::{Miss, Sample};
    use super::*;

    fn line(peer: &str, cpu: f64) -> serde_json::Value {
        json!({
            "peer": peer, "version": "1.0", "objects": 1000, "count": 1000, "user_s": cpu, "system_s": 0.0,
            "base_kib": 1000, "steady_kib": 6000, "peak_kib": 6600, "wall_s": 1.0, "extra": {},
        })
    }

    fn results() -> Results {
        let mut work = WorkResults {
            rounds: 3,
            ..WorkResults::default()
        };
        for (round, cpu) in [(1, 0.003), (2, 0.005), (3, 0.004)] {
            for fields in ["keep", "strip"] {
                let case = sync_case(fields);
                work.samples
                    .push(Sample::new(&case, round, &line("pintle", cpu)).unwrap());
                work.samples
                    .push(Sample::new(&case, round, &line("client-go", cpu * 10.0)).unwrap());
            }
        }
        for (peer, kind, reason) in [
            (
                "kube-rs",
                MissKind::Failed,
                "exit status: 1: it\nbroke | here",
            ),
            ("controller-runtime", MissKind::Cannot, "no such thing"),
        ] {
            work.misses.push(Miss {
                case: sync_case("keep"),
                peer: peer.into(),
                kind,
                reason: reason.into(),
            });
        }
        let mut results = Results::default();
        results.works.insert("sync".into(), work);
        results
    }

    #[test]
    fn the_report_has_medians_spread_ratios_and_reasons() {
        let report = render(&results());
        assert!(
            report.contains("| CPU per Pod, µs | 4.00 (3.00–5.00) | 40.0 (30.0–50.0) | – | – |"),
            "{report}"
        );
        let goal = "| first sync over JSON, managedFields kept in all: CPU per Pod, µs | ≤ 5 | 4.00 | 40.0 (10.0×) | – | – | reached |";
        assert!(report.contains(goal), "{report}");
        let caveat = report.find(CAVEAT).unwrap();
        assert!(caveat < report.find("| figure | goal |").unwrap());
        assert!(report.contains("| **recorded, JSON, managedFields kept** (3 rounds) |"));
        assert!(report.contains("**failed**: exit status: 1: it broke \\| here"));
        assert!(report.contains(
            "controller-runtime, recorded, JSON, managedFields kept: cannot: no such thing"
        ));
        assert!(report.contains("Not measured: `cargo xtask bench queue`"));
    }

    #[test]
    fn the_readme_changes_between_its_marks_only() {
        let readme = format!("# Top\n{BEGIN}\nold\n{END}\nbottom\n");
        let changed = replaced(&readme, &section(&results())).unwrap();
        assert!(changed.starts_with("# Top\n") && changed.ends_with("\nbottom\n"));
        assert!(!changed.contains("old\n") && changed.contains("benches/plots/memory.svg"));
        let caveat = changed.find(CAVEAT).unwrap();
        assert!(caveat < changed.find("memory.svg").unwrap(), "first of all");
        assert!(!changed.contains("foo.svg"), "there is no such figure yet");
        assert_eq!(replaced(&changed, &section(&results())).unwrap(), changed);
        assert!(replaced("no marks", "x").is_none());
    }
}
