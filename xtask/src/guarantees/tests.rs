use super::*;

const DOCUMENT: &str = "# Title\n\n## Queue\n\n- **queue/one** One.\n- **queue/two** Two.\n\n## Real\n\n- **objects/three** Three.\n";

fn problems(document: &str, source: &str) -> Vec<String> {
    let mut check = Check::default();
    check.read_promises(document);
    check.read_source(Path::new("a.rs"), source);
    check.problems()
}

const GOOD: &str = "
/// Keys come once.
/// Proves queue/one, objects/three.
#[tokio::test(
    start_paused = true
)]
async fn once() {}

proptest! {
    // Proves queue/two.
    #[test]
    fn two(x in 0..3) {}
}
";

#[test]
fn proven_promises_pass() {
    assert_eq!(problems(DOCUMENT, GOOD), [] as [&str; 0]);
}

#[test]
fn report_counts_by_section() {
    let mut check = Check::default();
    check.read_promises(DOCUMENT);
    check.read_source(
        Path::new("a.rs"),
        "/// Proves queue/two.\n#[test]\nfn a() {}\n",
    );
    let report = check.report();
    assert!(
        report.contains("Queue                       1 of    2 promises proven\n"),
        "{report}"
    );
    assert!(
        report.contains("1 of    3 promises proven, by 1 tests\n"),
        "{report}"
    );
}

#[test]
fn promise_without_a_test_fails() {
    let source = GOOD.replace("    // Proves queue/two.\n", "");
    assert_eq!(
        problems(DOCUMENT, &source),
        ["docs/guarantees.md: no test proves queue/two"]
    );
}

#[test]
fn unknown_id_fails() {
    let source = GOOD.replace("queue/two.", "queue/two, queue/nine.");
    assert_eq!(
        problems(DOCUMENT, &source),
        ["a.rs:10: queue/nine is not in docs/guarantees.md"]
    );
}

#[test]
fn duplicate_id_fails() {
    let document = format!("{DOCUMENT}- **queue/one** Again.\n");
    assert_eq!(
        problems(&document, GOOD),
        ["docs/guarantees.md:11: queue/one is a duplicate"]
    );
}

#[test]
fn citation_needs_a_test_that_runs() {
    let one = "## Queue\n- **queue/one** One.\n";
    for (source, why) in [
        (
            "/// Proves queue/one.\nfn helper() {}\n",
            "a.rs:1: citation above a function that is not a test",
        ),
        (
            "/// Proves queue/one.\n\n#[test]\nfn a() {}\n",
            "a.rs:1: citation without a test below it",
        ),
        (
            "/// Proves queue/one.\nstruct X;\n#[test]\nfn a() {}\n",
            "a.rs:1: citation without a test below it",
        ),
        (
            "/// Proves queue/one.\n#[test]\n#[ignore]\nfn a() {}\n",
            "a.rs:1: citation above an ignored test",
        ),
        (
            "// Proves queue/one.\nvec![1];\n",
            "a.rs:1: citation above vec!, which defines no test",
        ),
    ] {
        let found = problems(one, source);
        assert_eq!(found.first().map(String::as_str), Some(why), "{source}");
    }
}

#[test]
fn macros_that_define_tests_count() {
    let one = "## Queue\n- **queue/one** One.\n";
    let source = "macro_rules! scenario {\n    ($n:ident) => {\n        #[test]\n        fn $n() {}\n    };\n}\n// Proves queue/one.\nscenario!(a);\n";
    assert_eq!(problems(one, source), [] as [&str; 0]);
    assert_eq!(
        problems(one, "// Proves queue/one.\nproptest! {}\n"),
        [] as [&str; 0]
    );
}

#[test]
fn malformed_citation_fails_and_prose_does_not() {
    let one = "## Queue\n- **queue/one** One.\n";
    let found = problems(
        one,
        "/// Proves queue/one and queue/two\n#[test]\nfn a() {}\n",
    );
    assert!(found[0].contains("expected `Proves"), "{found:?}");
    let source = "/// Proves queue/one.\n#[test]\nfn a() {\n    // Proves that words are only words.\n    let _ = \"\n/// Proves queue/seven.\n\";\n}\n";
    assert_eq!(problems(one, source), [] as [&str; 0]);
}
