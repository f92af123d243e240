//! `cargo xtask ci`: every check, cheapest first.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::test_output::Totals;
use crate::workspace::{self, ChildFailed, cargo, run};
use crate::{features, fuzz, gate, guarantees, lint, release, semver, test_real};

/// The test command in the README. CI runs exactly this command.
const TEST_COMMAND: &str = "cargo test";

type Stage = (&'static str, fn(&mut Totals) -> Result<()>);

const STAGES: [Stage; 14] = [
    ("format", |_| run(cargo().args(["fmt", "--all", "--check"]))),
    ("lint", |_| lint::run()),
    ("clippy", |_| {
        let all = ["--workspace", "--all-targets", "--all-features"];
        run(cargo()
            .arg("clippy")
            .args(all)
            .args(["--", "-D", "warnings"]))
    }),
    ("features", |_| features::combinations()),
    ("guarantees", |_| guarantees::run()),
    ("tests", |totals| some_ran(totals, readme_tests)),
    ("browser", |totals| some_ran(totals, browser_tests)),
    ("docs", |_| {
        let all = ["--workspace", "--no-deps", "--all-features"];
        run(cargo()
            .arg("doc")
            .args(all)
            .env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("dependencies", |_| {
        run(cargo().args([
            "deny",
            "--log-level",
            "error",
            "check",
            "licenses",
            "bans",
            "sources",
        ]))
    }),
    ("fuzz", |_| fuzz::run(&fuzz::Args::default())),
    ("release dry run", |_| {
        release::run(&release::Args::dry_run())
    }),
    ("semver", |_| semver::check()),
    ("gate", |_| gate::run(&gate::Args::default())),
    ("real control plane", |totals| {
        some_ran(totals, |totals| {
            test_real::run(&test_real::Args::default(), totals)
        })
    }),
];

/// Runs every stage and stops at the first failure. Ends with the duration of each stage and the
/// number of tests, even after a failure.
pub(crate) fn run_all() -> Result<()> {
    let mut totals = Totals::default();
    let mut times = Vec::new();
    let mut outcome = Ok(());
    for (name, stage) in STAGES {
        println!("\n=== {name}");
        let started = Instant::now();
        outcome = stage(&mut totals).with_context(|| format!("stage `{name}` failed"));
        times.push((name, started.elapsed()));
        if outcome.is_err() {
            break;
        }
    }
    if outcome.is_ok() && totals.ignored > 0 {
        let names = totals.ignored_names.join(", ");
        outcome = Err(anyhow::anyhow!("CI allows no ignored tests: {names}"));
    }
    println!("\n{}", table(&times));
    println!("{} passed, {} failed", totals.passed, totals.failed);
    outcome
}

/// Runs tests and fails if none ran.
fn some_ran(totals: &mut Totals, run: impl FnOnce(&mut Totals) -> Result<()>) -> Result<()> {
    let before = totals.passed;
    run(totals)?;
    if totals.passed == before {
        bail!("no test ran");
    }
    Ok(())
}

fn table(times: &[(&str, Duration)]) -> String {
    let total = ("total", times.iter().map(|(_, time)| *time).sum());
    let rows = times.iter().chain([&total]);
    let rows = rows.map(|(name, time)| format!("{name:<20}{:>8.1} s", time.as_secs_f32()));
    rows.collect::<Vec<_>>().join("\n")
}

/// Runs the command the README documents, after checking that it is still there.
fn readme_tests(totals: &mut Totals) -> Result<()> {
    let readme = std::fs::read_to_string(workspace::root().join("README.md"))
        .context("cannot read README.md")?;
    if !shell_lines(&readme).any(|line| line == TEST_COMMAND) {
        bail!("README.md has no shell block with the line `{TEST_COMMAND}`");
    }
    let mut command = Command::new("sh");
    command
        .args(["-c", TEST_COMMAND])
        .current_dir(workspace::root())
        .stdin(Stdio::null());
    workspace::as_from_a_shell(&mut command);
    counted(command, TEST_COMMAND, totals)
}

/// Runs the tests that drive the inspector's page in Chromium.
fn browser_tests(totals: &mut Totals) -> Result<()> {
    let mut command = cargo();
    command.args([
        "test",
        "--package",
        "sample-controller",
        "--features",
        "browser",
    ]);
    command.args(["--test", "it", "inspect::browser"]);
    counted(command, "the browser tests", totals)
}

/// Runs a test command and counts its tests.
fn counted(mut command: Command, what: &str, totals: &mut Totals) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {what}"))?;
    totals.add(child.stdout.take().map(Totals::echo).unwrap_or_default());
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(ChildFailed::new(what, status).into())
    }
}

/// Returns the lines of all fenced blocks marked `sh`.
fn shell_lines(markdown: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    markdown.lines().map(str::trim).filter(move |line| {
        let fence = line.strip_prefix("```");
        match fence {
            Some(_) if inside => inside = false,
            Some(language) => inside = language.split_whitespace().next() == Some("sh"),
            None => {}
        }
        inside && fence.is_none()
    })
}

#[cfg(test)]
mod tests;
