//! The settings of a check, from its builder and from environment variables.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::{gateway::request::ResourceName, oracles::Oracle};

/// The settings of a check.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: String,
    /// How to replay a scenario: what precedes the token, and what follows it.
    pub(crate) replay_with: (&'static str, String),
    pub(crate) budget: Duration,
    pub(crate) budget_from_env: bool,
    pub(crate) jobs: usize,
    pub(crate) seed: u64,
    /// How many random combinations to try. `None`: as many as the budget allows.
    pub(crate) seeds: Option<usize>,
    /// The maximum number of single faults to try, unless a budget is set explicitly.
    pub(crate) sample: Option<usize>,
    pub(crate) pairs: bool,
    pub(crate) terminal_errors: bool,
    pub(crate) replay: Option<String>,
    pub(crate) relaxed: Vec<(Oracle, String)>,
    pub(crate) notes: Vec<String>,
    pub(crate) without: Vec<(String, String)>,
    pub(crate) only: Option<BTreeSet<String>>,
    pub(crate) may_write: Vec<ResourceName>,
    /// Kinds that hold data, in addition to those that always do.
    pub(crate) precious: Vec<ResourceName>,
    pub(crate) role: Option<Value>,
    pub(crate) pages: PathBuf,
    pub(crate) regressions: PathBuf,
    /// Variables whose values are invalid.
    pub(crate) errors: Vec<String>,
}

impl Options {
    /// Reads the environment.
    pub(crate) fn from_env() -> Self {
        Self::from_variables(|name| {
            let value = std::env::var_os(name)?;
            Some(value.to_string_lossy().into_owned())
        })
    }

    /// Reads variables. An empty one counts as unset.
    fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut errors = Vec::new();
        let variable = |name: &str| {
            let name = format!("PINTLE_TRIALS_{name}");
            let value = lookup(&name).filter(|value| !value.trim().is_empty())?;
            Some((name, value))
        };
        let mut number = |name: &str| {
            let (name, value) = variable(name)?;
            let number = value.trim().parse::<u64>();
            let wrong = |_| errors.push(format!("{name}: {value:?} is not a number"));
            number.map_err(wrong).ok()
        };
        let (jobs, seed, seeds) = (number("JOBS"), number("SEED"), number("SEEDS"));
        if jobs == Some(0) {
            errors.push("PINTLE_TRIALS_JOBS: expected at least 1, found 0".to_owned());
        }
        let budget = variable("BUDGET").and_then(|(name, value)| {
            let wrong = |why| errors.push(format!("{name}: {why}"));
            duration(&value).map_err(wrong).ok()
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let name = test_name();
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        Self {
            replay_with: ("PINTLE_TRIALS_REPLAY=", format!(" cargo test {name}")),
            name,
            budget: budget.unwrap_or(Duration::from_secs(30)),
            budget_from_env: budget.is_some(),
            jobs: jobs
                .and_then(|jobs| usize::try_from(jobs).ok())
                .unwrap_or(cores),
            seed: seed.unwrap_or(1),
            // If a budget is set explicitly, random combinations use the rest of it.
            seeds: match seeds {
                Some(seeds) => Some(usize::try_from(seeds).unwrap_or(usize::MAX)),
                None => budget.is_none().then_some(0),
            },
            sample: None,
            pairs: budget.is_some(),
            terminal_errors: false,
            replay: variable("REPLAY").map(|(_, token)| token),
            relaxed: Vec::new(),
            notes: Vec::new(),
            without: Vec::new(),
            only: None,
            may_write: Vec::new(),
            precious: Vec::new(),
            role: None,
            pages: target_folder(manifest.as_deref()).join("trials"),
            regressions: manifest.unwrap_or_default().join("trials-regressions"),
            errors,
        }
    }

    pub(crate) fn relaxes(&self, oracle: Oracle) -> bool {
        self.relaxed.iter().any(|(relaxed, _)| *relaxed == oracle)
    }

    /// Returns whether to try a family.
    pub(crate) fn wants(&self, family: &str) -> bool {
        let matches = |pattern: &str| {
            family == pattern
                || family
                    .strip_prefix(pattern)
                    .is_some_and(|rest| rest.starts_with('-'))
        };
        let only = self.only.as_ref();
        only.is_none_or(|only| only.iter().any(|it| matches(it)))
            && !self.without.iter().any(|(it, _)| matches(it))
    }

    /// Returns the name as part of a file's name.
    pub(crate) fn file_name(&self) -> String {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        };
        self.name.chars().map(plain).collect()
    }
}

/// Returns the name of the running test: test threads are named after their tests.
fn test_name() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some("main") | None => "trial".to_owned(),
        Some(name) => name.to_owned(),
    }
}

fn target_folder(manifest: Option<&Path>) -> PathBuf {
    if let Some(target) = std::env::var_os("CARGO_TARGET_DIR") {
        return target.into();
    }
    let ancestors = manifest.into_iter().flat_map(Path::ancestors);
    ancestors
        .map(|folder| folder.join("target"))
        .find(|target| target.is_dir())
        .unwrap_or_else(|| PathBuf::from("target"))
}

/// Parses `250ms`, `90s`, `5m`, `2h` or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wrong = || format!("{text:?} is not a duration such as 90s, 10m or 2h");
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = match &text[digits.len()..] {
        "ms" => return Ok(Duration::from_millis(number)),
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.checked_mul(unit);
    let seconds = seconds.ok_or_else(|| format!("{text:?} is too long"))?;
    Ok(Duration::from_secs(seconds))
}

/// Measures real time, for budgets and reports only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "budgets are real time")]
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    #[allow(clippy::disallowed_methods, reason = "budgets are real time")]
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests;
