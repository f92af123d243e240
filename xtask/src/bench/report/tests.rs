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
fn report_has_medians_spread_ratios_and_reasons() {
    let report = render(&results());
    assert!(
        report.contains("| CPU per Pod, µs | 4.00 (3.00–5.00) | 40.0 (30.0–50.0) | – | – |"),
        "{report}"
    );
    let goal = "| first sync over JSON, managedFields kept in all: CPU per Pod, µs | ≤ 5 | 4.00 | 40.0 (10.0×) | – | – | met |";
    assert!(report.contains(goal), "{report}");
    let caveat = report.find(CAVEAT).unwrap();
    assert!(caveat < report.find("| figure | goal |").unwrap());
    assert!(report.contains("| **recorded, JSON, managedFields kept** (3 rounds) |"));
    assert!(report.contains("**failed**: exit status: 1: it broke \\| here"));
    assert!(report.contains(
        "controller-runtime, recorded, JSON, managedFields kept: not supported: no such thing"
    ));
    assert!(report.contains("Not measured: `cargo xtask bench queue`"));
}

#[test]
fn readme_changes_between_the_markers_only() {
    let readme = format!("# Top\n{BEGIN}\nold\n{END}\nbottom\n");
    let changed = replaced(&readme, &section(&results())).unwrap();
    assert!(changed.starts_with("# Top\n") && changed.ends_with("\nbottom\n"));
    assert!(!changed.contains("old\n") && changed.contains(CAVEAT));
    assert!(
        changed.contains("| 4.00 µs | 40.0 µs (10.0×) | – | – |"),
        "{changed}"
    );
    assert_eq!(replaced(&changed, &section(&results())).unwrap(), changed);
    assert!(replaced("no marks", "x").is_none());
}
