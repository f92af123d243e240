//! `cargo xtask guarantees`: checks that every promise has a test and every cited promise exists.
//!
//! A promise is a line `- **queue/no-lost-add** …` of docs/guarantees.md. A test cites it in a
//! comment line of its own, `/// Proves queue/no-lost-add, queue/dedup.`, with only attributes and
//! other comments between that line and the test.

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
    /// Title and ids, in document order.
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
    Regex::new(pattern).expect("the pattern must be valid")
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
mod tests;
