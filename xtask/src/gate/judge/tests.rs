use super::super::baseline::Toolchain;
use super::*;

fn counts(counts: &[(&str, f64)]) -> Vec<Count> {
    let counts = counts.iter().map(|(path, instructions)| Count {
        path: (*path).to_owned(),
        what: String::new(),
        instructions: *instructions,
    });
    counts.collect()
}

fn baseline(before: &[(&str, f64)]) -> Baseline {
    Baseline::new(Toolchain::default(), &counts(before), "first")
}

fn report(before: &[(&str, f64)], now: &[(&str, f64)]) -> Report {
    Report::new(&baseline(before), &counts(now), true)
}

#[test]
fn regression_of_five_percent_fails() {
    let before = [("skim", 20_000.0), ("queue", 400.0)];
    let report = report(&before, &[("skim", 20_000.0), ("queue", 420.0)]);
    assert_eq!(report.failures(), ["queue"]);
    assert!(report.to_string().contains("+5.00 %"));
    assert!(report.to_string().contains("REGRESSION"));
}

#[test]
fn change_within_the_limit_passes() {
    let report = report(&[("a", 100.0), ("b", 100.0)], &[("a", 102.9), ("b", 97.1)]);
    assert!(report.failures().is_empty());
    assert!(report.names(Verdict::Improvement).is_empty());
}

#[test]
fn improvement_is_reported_and_passes() {
    let report = report(&[("a", 100.0)], &[("a", 90.0)]);
    assert!(report.failures().is_empty());
    assert_eq!(report.names(Verdict::Improvement), ["a"]);
}

#[test]
fn new_and_removed_paths_fail_until_accepted() {
    let mut baseline = baseline(&[("old", 1.0)]);
    let now = counts(&[("new", 1.0)]);
    let report = Report::new(&baseline, &now, true);
    assert_eq!(report.failures(), ["new", "old"]);
    assert_eq!(baseline.accept(&report, &[], "renamed"), ["new", "old"]);
    assert!(Report::new(&baseline, &now, true).failures().is_empty());
}

#[test]
fn unnamed_paths_are_not_judged() {
    let baseline = baseline(&[("a", 100.0), ("b", 100.0)]);
    let report = Report::new(&baseline, &counts(&[("a", 100.0)]), false);
    assert!(report.failures().is_empty());
}

#[test]
fn accept_stores_only_changes_beyond_the_limit() {
    let mut baseline = baseline(&[("a", 100.0), ("b", 100.0)]);
    let now = counts(&[("a", 110.0), ("b", 102.0)]);
    let report = Report::new(&baseline, &now, true);
    assert_eq!(baseline.accept(&report, &[], "checks more"), ["a"]);
    let text = serde_json::to_string(&baseline).unwrap();
    assert!(text.contains(r#""a":{"instructions":110.0,"reason":"checks more"}"#));
    assert!(text.contains(r#""b":{"instructions":100.0,"reason":"first"}"#));
}

#[test]
fn accept_of_a_named_path_stores_small_changes() {
    let mut baseline = baseline(&[("a", 100.0)]);
    let report = Report::new(&baseline, &counts(&[("a", 98.0)]), false);
    let stored = baseline.accept(&report, &["a".to_owned()], "faster");
    assert_eq!(stored, ["a"]);
}
