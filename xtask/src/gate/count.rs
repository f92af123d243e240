//! Counts the instructions of each path with callgrind.
//!
//! Callgrind collects only while `pintle_gate::measured` is on the stack, which excludes start-up
//! and input generation. Every path runs twice and both counts have to agree: a nondeterministic
//! path cannot be judged.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{self, cargo};

/// The function whose instructions are counted.
const MEASURED: &str = "pintle_gate::measured";

/// Allowed difference between two runs of one path, in percent.
const NOISE: f64 = 0.5;

/// Time limit of one run, which normally takes seconds.
const PATIENCE: Duration = Duration::from_secs(300);

/// The number of instructions per unit of work.
#[derive(Clone, Debug)]
pub(super) struct Count {
    pub(super) path: String,
    pub(super) what: String,
    pub(super) instructions: f64,
}

/// A path, as listed by `pintle-gate`.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    name: String,
    units: u32,
    what: String,
}

/// Returns the directory of the profiles, for `callgrind_annotate`.
pub(super) fn profiles() -> PathBuf {
    workspace::target().join("callgrind")
}

/// Builds `pintle-gate` and counts the paths in `named`, or all of them.
pub(super) fn all(named: &[String]) -> Result<Vec<Count>> {
    let mut build = cargo();
    build.args(["build", "--profile", "gate", "--package", "pintle-gate"]);
    workspace::run(&mut build)?;
    let program = workspace::target().join("gate/pintle-gate");
    let mut listed = list(&program)?;
    for name in named {
        ensure!(
            listed.iter().any(|path| path.name == *name),
            "unknown path {name}"
        );
    }
    listed.retain(|path| named.is_empty() || named.contains(&path.name));
    std::fs::create_dir_all(profiles())
        .with_context(|| format!("cannot create {}", profiles().display()))?;
    on_all_cores(&listed, |path| count(&program, path))
}

fn list(program: &Path) -> Result<Vec<Listed>> {
    let out = Command::new(program)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8(out.stdout)?;
    let lines = text.lines().map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut word = || {
            words
                .next()
                .context("pintle-gate must list `name count description`")
        };
        Ok(Listed {
            name: word()?.to_owned(),
            units: word()?
                .parse()
                .context("pintle-gate listed a count that is not a number")?,
            what: word()?.to_owned(),
        })
    });
    lines.collect()
}

/// Runs `work` for each item on all cores and returns the results in the items' order.
fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, item))
        } {
            done.push((at, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, Result<R>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().filter_map(|worker| worker.join().ok());
        results.flatten().collect()
    });
    ensure!(done.len() == items.len(), "a worker thread panicked");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn count(program: &Path, path: &Listed) -> Result<Count> {
    let run = || {
        let instructions = run(program, &path.name);
        instructions.with_context(|| format!("cannot count path {}", path.name))
    };
    let instructions = agreed(&path.name, run()?, run()?)?;
    Ok(Count {
        path: path.name.clone(),
        what: path.what.clone(),
        instructions: (instructions / f64::from(path.units) * 10.0).round() / 10.0,
    })
}

/// Returns the smaller of two counts, if they agree.
fn agreed(path: &str, first: f64, second: f64) -> Result<f64> {
    let difference = (first - second).abs() / first.min(second) * 100.0;
    ensure!(
        difference <= NOISE,
        "two runs of path {path} took {first} and {second} instructions, {difference:.2} % \
         apart: something in it is not deterministic"
    );
    Ok(first.min(second))
}

/// Runs one path under callgrind and returns its instruction count.
fn run(program: &Path, path: &str) -> Result<f64> {
    let profile = profiles().join(format!("{path}.out"));
    let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
    out_file.push(&profile);
    let child = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(out_file)
        .arg(program)
        .arg(path)
        // The environment shifts the stack, whose address seeds the hash maps.
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot run valgrind")?;
    let status = wait(child)?;
    ensure!(status.success(), "pintle-gate failed: {status}");
    let text = std::fs::read_to_string(&profile)
        .with_context(|| format!("no profile in {}", profile.display()))?;
    collected(&text)
}

fn wait(mut child: Child) -> Result<ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("not finished within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn collected(profile: &str) -> Result<f64> {
    let total = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals:"));
    let total: f64 = total
        .and_then(|total| total.trim().parse().ok())
        .context("the profile has no totals")?;
    ensure!(
        total > 0.0,
        "callgrind collected nothing: was {MEASURED} inlined or renamed?"
    );
    Ok(total)
}

#[cfg(test)]
mod tests;
