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
    pub(crate) budget: Duration,
    pub(crate) budget_from_env: bool,
    pub(crate) jobs: usize,
    pub(crate) seed: u64,
    pub(crate) seeds: u64,
    pub(crate) pairs: bool,
    pub(crate) terminal_errors: bool,
    pub(crate) replay: Option<String>,
    pub(crate) relaxed: Vec<(Oracle, String)>,
    pub(crate) notes: Vec<String>,
    pub(crate) without: Vec<(String, String)>,
    pub(crate) only: Option<BTreeSet<String>>,
    pub(crate) may_write: Vec<ResourceName>,
    pub(crate) role: Option<Value>,
    pub(crate) pages: PathBuf,
    pub(crate) regressions: PathBuf,
}

impl Options {
    /// Reads the environment.
    pub(crate) fn from_env() -> Self {
        let variable = |name: &str| std::env::var(format!("PINTLE_TRIALS_{name}")).ok();
        let budget = variable("BUDGET").and_then(|text| duration(&text));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let seeds = variable("SEEDS").and_then(|text| text.parse().ok());
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        Self {
            name: test_name(),
            budget: budget.unwrap_or(Duration::from_secs(30)),
            budget_from_env: budget.is_some(),
            jobs: variable("JOBS")
                .and_then(|text| text.parse().ok())
                .filter(|jobs| *jobs > 0)
                .unwrap_or(cores),
            seed: variable("SEED")
                .and_then(|text| text.parse().ok())
                .unwrap_or(1),
            // If a budget is set explicitly, random combinations use the rest of it.
            seeds: seeds.unwrap_or(if budget.is_some() { u64::MAX / 2 } else { 0 }),
            pairs: budget.is_some(),
            terminal_errors: false,
            replay: variable("REPLAY").filter(|token| !token.is_empty()),
            relaxed: Vec::new(),
            notes: Vec::new(),
            without: Vec::new(),
            only: None,
            may_write: Vec::new(),
            role: None,
            pages: target_folder(manifest.as_deref()).join("trials"),
            regressions: manifest.unwrap_or_default().join("trials-regressions"),
        }
    }

    pub(crate) fn relaxes(&self, oracle: Oracle) -> bool {
        self.relaxed.iter().any(|(relaxed, _)| *relaxed == oracle)
    }

    /// Returns whether a family is to be tried.
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

/// Parses `90s`, `5m`, `2h` or a number of seconds.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let seconds = match &text[digits.len()..] {
        "ms" => return Some(Duration::from_millis(number)),
        "" | "s" => number,
        "m" => number * 60,
        "h" => number * 3600,
        _ => return None,
    };
    Some(Duration::from_secs(seconds))
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
