//! Background processes that outlive the task that started them.
//!
//! A pid alone does not identify a process, because pids are reused. A process is identified by its
//! pid together with its start time and command line, and only signalled if both still match.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) pid: i32,
    started: String,
    command: String,
    log: PathBuf,
    /// The command line, for a restart.
    #[serde(default)]
    program: PathBuf,
    #[serde(default)]
    args: Vec<String>,
}

impl Process {
    /// Starts `program` with its output appended to `log`, in its own process group, so that Ctrl-C
    /// does not reach it.
    pub(crate) fn spawn(name: &str, program: &Path, args: &[String], log: &Path) -> Result<Self> {
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(program)
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = i32::try_from(child.id()).context("pid out of range")?;
        let command = format!("{} {}", program.display(), args.join(" "));
        // The new command line shows up only shortly after exec.
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Some(seen) = look(pid) {
            if seen.command == command {
                let (name, log) = (name.to_owned(), log.to_owned());
                return Ok(Self {
                    name,
                    pid,
                    started: seen.started,
                    command,
                    log,
                    program: program.to_owned(),
                    args: args.to_owned(),
                });
            }
            if Instant::now() > deadline {
                bail!("{name} (pid {pid}) runs another command: {}", seen.command);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("{name} exited immediately:\n{}", last_lines(log, 10))
    }

    /// Restarts the process with the same flags.
    pub(crate) fn restart(&self) -> Result<Self> {
        self.stop()?;
        Self::spawn(&self.name, &self.program, &self.args, &self.log)
    }

    /// Returns the value of a flag it was started with.
    pub(crate) fn flag(&self, name: &str) -> Option<&str> {
        let begin = format!("--{name}=");
        self.args.iter().find_map(|arg| arg.strip_prefix(&begin))
    }

    pub(crate) fn is_alive(&self) -> bool {
        look(self.pid).is_some_and(|now| now.started == self.started && now.command == self.command)
    }

    /// Returns the end of the process's log.
    pub(crate) fn last_words(&self) -> String {
        last_lines(&self.log, 12)
    }

    /// Returns whether the log says that its port was taken.
    pub(crate) fn lost_its_port(&self) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains("address already in use"))
    }

    /// Sends SIGTERM, waits, then sends SIGKILL. Returns whether the process was alive.
    pub(crate) fn stop(&self) -> Result<bool> {
        if !self.is_alive() {
            return Ok(false);
        }
        for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
            self.signal(signal);
            let deadline = Instant::now() + patience;
            while Instant::now() < deadline {
                if !self.is_alive() {
                    return Ok(true);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        bail!("{} (pid {}) survived SIGKILL", self.name, self.pid)
    }

    fn signal(&self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            // Fails only if the process has already exited, which is fine.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The system's record of a process.
struct Sight {
    started: String,
    command: String,
}

/// Looks a process up; `None` if it has ended.
#[cfg(target_os = "linux")]
fn look(pid: i32) -> Option<Sight> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, started) = (*fields.first()?, *fields.get(19)?);
    if matches!(state, "Z" | "X") {
        return None;
    }
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command)
        .replace('\0', " ")
        .trim_end()
        .to_owned();
    Some(Sight {
        started: started.to_owned(),
        command,
    })
}

/// Looks a process up; `None` if it has ended.
#[cfg(not(target_os = "linux"))]
fn look(pid: i32) -> Option<Sight> {
    let ask = |column: &str| {
        let pid = pid.to_string();
        let out = Command::new("ps")
            .args(["-ww", "-o", column, "-p", &pid])
            .output()
            .ok()?;
        let text = String::from_utf8(out.stdout).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    if ask("stat=")?.starts_with('Z') {
        return None;
    }
    Some(Sight {
        started: ask("lstart=")?,
        command: ask("command=")?,
    })
}

/// The last `count` lines of a log, indented.
pub(crate) fn last_lines(log: &Path, count: usize) -> String {
    let text = std::fs::read(log).map(|b| String::from_utf8_lossy(&b).into_owned());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(count)..];
    let tail: Vec<String> = tail.iter().map(|line| format!("  | {line}")).collect();
    format!("{}\n  (all of it: {})", tail.join("\n"), log.display())
}

#[cfg(test)]
mod tests;
