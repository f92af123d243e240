//! Compares counts with the baseline.

use std::fmt;

use super::baseline::Baseline;
use super::count::Count;

/// Allowed change of a path relative to its baseline, in percent.
pub(super) const LIMIT: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    Regression,
    Improvement,
    /// Measured, but not in the baseline.
    New,
    /// In the baseline, but not measured.
    Gone,
}

/// One path.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) path: String,
    what: String,
    before: Option<f64>,
    pub(super) now: Option<f64>,
}

impl Row {
    /// In percent.
    fn change(&self) -> Option<f64> {
        Some((self.now? / self.before? - 1.0) * 100.0)
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.change() {
            None if self.before.is_none() => Verdict::New,
            None => Verdict::Gone,
            Some(change) if change > LIMIT => Verdict::Regression,
            Some(change) if change < -LIMIT => Verdict::Improvement,
            // The count and its baseline are both zero.
            Some(change) if change.is_nan() => Verdict::New,
            Some(_) => Verdict::Same,
        }
    }
}

pub(super) struct Report {
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Compares `counts` with the baseline. With `all`, a path without a count counts as removed.
    pub(super) fn new(baseline: &Baseline, counts: &[Count], all: bool) -> Self {
        let before = |path: &str| Some(baseline.paths.get(path)?.instructions);
        let mut rows: Vec<Row> = counts
            .iter()
            .map(|count| Row {
                path: count.path.clone(),
                what: count.what.clone(),
                before: before(&count.path),
                now: Some(count.instructions),
            })
            .collect();
        let measured = |path: &str| counts.iter().any(|count| count.path == path);
        if all {
            let gone = baseline.paths.keys().filter(|path| !measured(path));
            rows.extend(gone.map(|path| Row {
                path: path.clone(),
                what: "no longer measured".to_owned(),
                before: before(path),
                now: None,
            }));
        }
        Self { rows }
    }

    pub(super) fn names(&self, verdict: Verdict) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.verdict() == verdict);
        rows.map(|row| row.path.clone()).collect()
    }

    /// Returns the paths that need a reason.
    pub(super) fn failures(&self) -> Vec<String> {
        [Verdict::Regression, Verdict::New, Verdict::Gone]
            .iter()
            .flat_map(|verdict| self.names(*verdict))
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>12} {:>12} {:>9}  instructions per …",
            "path", "baseline", "now", "change"
        )?;
        for row in &self.rows {
            let number = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.1}"));
            let change = row.change();
            let change = change.map_or(String::new(), |change| format!("{change:+.2} %"));
            let mark = match row.verdict() {
                Verdict::Same => "",
                Verdict::Regression => "  <- REGRESSION",
                Verdict::Improvement => "  <- improvement",
                Verdict::New => "  <- no baseline",
                Verdict::Gone => "  <- not measured",
            };
            writeln!(
                f,
                "{:<16} {:>12} {:>12} {change:>9}  {}{mark}",
                row.path,
                number(row.before),
                number(row.now),
                row.what,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
