//! `cargo xtask guarantees`: checks that every promise has a test and every cited promise exists.
//!
//! A promise is a line `- **queue/no-lost-add** …` of docs/guarantees.md. A test cites it in a comment
//! line of its own, `/// Proves queue/no-lost-add, queue/dedup.`, with only attributes and other
//! comments between that line and the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::source::{Keep, mask};
use crate::workspace;

const PROMISES: &str = "docs/guarantees.md";

pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let text = std::fs::read_to_string(root.join(PROMISES))
        .with_context(|| format!("cannot read {PROMISES}"))?;
    let mut check = Check::default();
    check.read_promises(&text);
    for file in workspace::files(root, &["rs"])? {
        let source = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        check.read_source(workspace::relative(root, &file), &source);
    }
    print!("{}", check.report());
    let problems = check.problems();
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        println!("  {problem}");
    }
    bail!(
        "{} problems between {PROMISES} and the tests",
        problems.len()
    )
}

#[derive(Default)]
struct Check {
    /// Title and ids, in the order of the document.
    sections: Vec<(String, Vec<String>)>,
    /// The places that cite each id.
    citations: BTreeMap<String, Vec<String>>,
    problems: Vec<String>,
}

static PROMISE: LazyLock<Regex> = LazyLock::new(|| regex(r"^- \*\*([^*]+)\*\*(.*)$"));
static ID: LazyLock<Regex> = LazyLock::new(|| regex(r"^[a-z0-9-]+/[a-z0-9-]+$"));
/// Anything that looks like a citation; [`cited`] validates it.
static CITATION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s*//[/!]?\s*Proves ([a-z0-9-]+/[a-z0-9].*)$"));
static TEST_ATTRIBUTE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"#\[\s*(?:\w+::)*(?:test|rstest|test_case)\b"));
static IGNORED: LazyLock<Regex> = LazyLock::new(|| regex(r"#\[\s*ignore\b"));
static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+\w+"));
static MACRO_CALL: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*(?:\w+::)*(\w+)!\s*[({\[]"));

fn regex(pattern: &str) -> Regex {
    #[expect(
        clippy::expect_used,
        reason = "the patterns are constants of this file"
    )]
    Regex::new(pattern).expect("a valid pattern")
}

impl Check {
    fn read_promises(&mut self, text: &str) {
        let mut seen = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let at = format!("{PROMISES}:{}", number + 1);
            if let Some(title) = line.strip_prefix("## ") {
                self.sections.push((title.trim().to_owned(), Vec::new()));
            } else if let Some(found) = PROMISE.captures(line) {
                let id = found[1].to_owned();
                if !ID.is_match(&id) {
                    self.problems
                        .push(format!("{at}: {id} is not an id such as queue/no-lost-add"));
                }
                if found[2].trim().is_empty() {
                    self.problems.push(format!("{at}: {id} has no text"));
                }
                if !seen.insert(id.clone()) {
                    self.problems.push(format!("{at}: {id} is a duplicate"));
                } else if let Some((_, ids)) = self.sections.last_mut() {
                    ids.push(id);
                } else {
                    self.problems
                        .push(format!("{at}: {id} is outside any section"));
                }
            }
        }
    }

    fn read_source(&mut self, file: &Path, source: &str) {
        let masked = mask(source, Keep::CodeAndComments);
        let code = mask(source, Keep::Code);
        let lines: Vec<&str> = masked.lines().collect();
        let code_lines: Vec<&str> = code.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(found) = CITATION.captures(line) else {
                continue;
            };
            let at = format!("{}:{}", file.display(), number + 1);
            let Some(ids) = cited(&found[1]) else {
                let problem = format!(
                    "{at}: expected `Proves queue/no-lost-add, queue/dedup.`: {}",
                    line.trim()
                );
                self.problems.push(problem);
                continue;
            };
            match proof(&code, &code_lines, &lines, number) {
                Ok(()) => {
                    for id in ids {
                        self.citations.entry(id).or_default().push(at.clone());
                    }
                }
                Err(why) => self.problems.push(format!("{at}: {why}")),
            }
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.clone();
        let promised: BTreeSet<&String> = self.sections.iter().flat_map(|(_, ids)| ids).collect();
        for (id, places) in &self.citations {
            if !promised.contains(id) {
                problems.push(format!("{}: {id} is not in {PROMISES}", places.join(", ")));
            }
        }
        for id in promised {
            if !self.citations.contains_key(id) {
                problems.push(format!("{PROMISES}: no test proves {id}"));
            }
        }
        problems
    }

    /// Renders the coverage by section.
    fn report(&self) -> String {
        let mut report = String::new();
        let (mut proven, mut promised, mut tests) = (0, 0, BTreeSet::new());
        for (title, ids) in &self.sections {
            let here = ids
                .iter()
                .filter(|id| self.citations.contains_key(*id))
                .count();
            let _ = writeln!(
                report,
                "{title:<24} {here:>4} of {:>4} promises proven",
                ids.len()
            );
            proven += here;
            promised += ids.len();
        }
        tests.extend(self.citations.values().flatten());
        let _ = writeln!(
            report,
            "{:<24} {proven:>4} of {promised:>4} promises proven, by {} tests",
            "all",
            tests.len()
        );
        report
    }
}

/// Parses `queue/no-lost-add, queue/dedup.`
fn cited(text: &str) -> Option<Vec<String>> {
    let ids = text.trim_end().strip_suffix('.')?.split(", ");
    ids.map(|id| ID.is_match(id).then(|| id.to_owned()))
        .collect()
}

/// Checks that the comment on line `number` belongs to a test that runs.
fn proof(code: &str, code_lines: &[&str], lines: &[&str], number: usize) -> Result<(), String> {
    let is_comment = |n: usize| lines[n].trim_start().starts_with("//");
    let is_blank = |n: usize| lines[n].trim().is_empty();

    // Upwards: the rest of the comment, and attributes above it.
    let mut attributes = String::new();
    for n in (0..number).rev() {
        let line = code_lines[n].trim();
        if line.starts_with("#[") {
            attributes.push_str(line);
        } else if !is_comment(n) || is_blank(n) {
            break;
        }
    }

    // Downwards to the item. An attribute may span several lines.
    let mut open = 0_usize;
    for (n, line) in code_lines.iter().enumerate().skip(number + 1) {
        if open == 0 && FUNCTION.is_match(line) {
            if !TEST_ATTRIBUTE.is_match(&attributes) {
                return Err("citation above a function that is not a test".into());
            }
            if IGNORED.is_match(&attributes) {
                return Err("citation above an ignored test".into());
            }
            return Ok(());
        }
        if open == 0
            && let Some(call) = MACRO_CALL.captures(line)
        {
            return if makes_tests(code, &call[1]) {
                Ok(())
            } else {
                Err(format!(
                    "citation above {}!, which defines no test",
                    &call[1]
                ))
            };
        }
        let starts_attribute = line.trim_start().starts_with("#[");
        if open > 0 || starts_attribute {
            attributes.push_str(line);
            open += line.matches('[').count();
            open = open.saturating_sub(line.matches(']').count());
        } else if !is_comment(n) || is_blank(n) {
            break;
        }
    }
    Err("citation without a test below it".into())
}

/// Returns whether calls of this macro define tests: `proptest!`, or a macro of the same file that
/// expands to tests.
fn makes_tests(code: &str, name: &str) -> bool {
    if name == "proptest" {
        return true;
    }
    let Some(start) = code.find(&format!("macro_rules! {name}")) else {
        return false;
    };
    let definition = &code[start..];
    let end = definition.find("\n}").unwrap_or(definition.len());
    TEST_ATTRIBUTE.is_match(&definition[..end])
}

#[cfg(test)]
mod tests {
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
}
