//! Adds up the results that test binaries print.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::LazyLock;

use regex::Regex;

/// The sum of `test result:` lines, and the names of ignored tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) ignored: u32,
    pub(crate) ignored_names: Vec<String>,
}

static RESULT: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the pattern is a constant")]
    Regex::new(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
        .expect("the pattern must be valid")
});

static IGNORED: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the pattern is a constant")]
    Regex::new(r"^test (.+) \.\.\. ignored").expect("the pattern must be valid")
});

impl Totals {
    /// Prints `output` as it arrives and adds up the results.
    pub(crate) fn echo(output: impl Read) -> Self {
        let mut totals = Self::default();
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            totals.add_line(&line);
        }
        totals
    }

    fn add_line(&mut self, line: &str) {
        if let Some(found) = RESULT.captures(line) {
            let number = |at: usize| found[at].parse().unwrap_or(0);
            self.add(Self {
                passed: number(1),
                failed: number(2),
                ignored: number(3),
                ignored_names: Vec::new(),
            });
        } else if let Some(found) = IGNORED.captures(line) {
            self.ignored_names.push(found[1].to_owned());
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.ignored_names.extend(other.ignored_names);
    }
}

#[cfg(test)]
mod tests;
