//! Runs the measured programs and the servers they talk to.
//!
//! Each runs in its own process group on the given cores. Dropping its handle kills the whole
//! group, so that nothing is left behind.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::machine;
use crate::interrupt::Interrupt;

/// The exit code of a program that does not support a benchmark.
const CANNOT_DO: i32 = 3;
/// Grace period after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// The cores that a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cores {
    /// The first, for servers.
    Server,
    /// The second, for the measured program.
    Client,
    All,
}

/// The result of a program.
#[derive(Debug)]
pub(super) enum Outcome {
    Line(Value),
    Cannot(String),
    Failed(String),
}

/// Returns a command pinned to the given cores, or unpinned with a single core or without
/// `taskset`.
pub(super) fn command(program: &Path, cores: Cores) -> Command {
    let core = match cores {
        Cores::Server => "0",
        Cores::Client => "1",
        Cores::All => return Command::new(program),
    };
    if machine::cores() < 2 || !Path::new("/usr/bin/taskset").exists() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/taskset");
    command.args(["-c", core]).arg(program);
    command
}

/// Runs `start` pinned to the first core, so that the processes it starts inherit the pinning.
pub(super) fn on_the_first_core<T>(start: impl FnOnce() -> T) -> T {
    let all = sched_getaffinity(None)
        .ok()
        .filter(|_| machine::cores() >= 2);
    let mut first = CpuSet::new();
    first.set(0);
    if all.is_some() {
        // If pinning is not permitted, everything runs on all cores.
        let _ = sched_setaffinity(None, &first);
    }
    let started = start();
    if let Some(all) = all {
        let _ = sched_setaffinity(None, &all);
    }
    started
}

/// A background process.
pub(super) struct Running {
    name: String,
    child: Child,
    /// Our own programs stop when it is closed.
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Running {
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("no output")?;
        let mut stderr = child.stderr.take().context("no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let errors = std::thread::spawn(move || last_words(&mut stderr));
        Ok(Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            child,
            lines,
            errors: Some(errors),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its next line of output, unless that takes too long.
    pub(super) fn line(&mut self, patience: Duration) -> Result<String> {
        if let Ok(line) = self.lines.recv_timeout(patience) {
            return Ok(line);
        }
        let name = self.name.clone();
        let words = self.end();
        bail!("{name} did not become ready: {words}")
    }

    /// Returns whether it is still running.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for it to exit and returns the last line of output and the standard error.
    fn wait(
        mut self,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<(ExitStatus, String, String)> {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if interrupt.is_raised() {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                let words = self.end();
                bail!("not finished within {} s {words}", patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let last = self.lines.iter().last().unwrap_or_default();
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        Ok((status, last, errors.unwrap_or_default()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Fails only if the process has already exited.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Stops it and returns the end of its standard error.
    pub(super) fn end(&mut self) -> String {
        self.stdin = None;
        if self.is_alive() {
            self.signal(Signal::TERM);
            let deadline = Instant::now() + GRACE;
            while self.is_alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if self.is_alive() {
            self.signal(Signal::KILL);
        }
        let _ = self.child.wait();
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        errors.unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads an output of any length and returns its end.
fn last_words(from: &mut impl std::io::Read) -> String {
    const KEPT: usize = 600;
    let (mut kept, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..read]);
        let more = kept.len().saturating_sub(KEPT);
        kept.drain(..more);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// Runs a program to completion and parses its last line as its result.
pub(super) fn run(
    name: &str,
    command: &mut Command,
    patience: Duration,
    interrupt: &Interrupt,
) -> Outcome {
    let ended = Running::start(name, command).and_then(|running| running.wait(patience, interrupt));
    match ended {
        Ok((status, last, errors)) => read(status, &last, errors),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn read(status: ExitStatus, last: &str, errors: String) -> Outcome {
    if status.code() == Some(CANNOT_DO) {
        return Outcome::Cannot(errors);
    }
    if !status.success() {
        return Outcome::Failed(format!("{status}: {errors}"));
    }
    match serde_json::from_str(last) {
        Ok(line) => Outcome::Line(line),
        Err(error) => Outcome::Failed(format!("no result line: {error}")),
    }
}

/// Returns the CPU time a process has used so far, in seconds.
pub(super) fn cpu_of(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let nanos = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// Returns a size from the status of a process, in KiB: `VmRSS` or `VmHWM`.
pub(super) fn memory_of(pid: u32, what: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let size = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    size.unwrap_or_default()
}

/// Returns a command for one benchmark of `pintle-bench`.
pub(super) fn ours(program: &Path, work: &str, cores: Cores) -> Command {
    let mut command = command(program, cores);
    command.arg(work);
    command
}

/// Formats a path for display.
pub(super) fn shown(path: &Path) -> String {
    let root = crate::workspace::root();
    let path: PathBuf = crate::workspace::relative(root, path).to_owned();
    path.display().to_string()
}

#[cfg(test)]
mod tests;
