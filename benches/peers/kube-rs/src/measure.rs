//! Measures CPU time and memory, and prints the result line.

use std::{
    any::Any,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::{Flags, client};

/// Returns user and system time of this process so far, in seconds.
fn cpu() -> Result<(f64, f64)> {
    #[allow(clippy::cast_precision_loss, reason = "seconds of a short run")]
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((seconds(usage.user_time()), seconds(usage.system_time())))
}

/// Returns the CPU time of this process so far, in seconds.
pub fn cpu_seconds() -> Result<f64> {
    cpu().map(|(user, system)| user + system)
}

/// Returns a size from `/proc/self/status`, in KiB.
fn memory(name: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .with_context(|| format!("no {name} in /proc/self/status"))
}

/// Returns the current resident memory in KiB.
pub fn resident() -> Result<u64> {
    memory("VmRSS")
}

/// Resets the peak resident memory.
pub fn reset_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak")
}

/// Returns the allocator's unused memory to the system.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The measured part of a run.
pub struct Phase {
    start: Instant,
    begin: (f64, f64),
    end: (f64, f64),
    wall_s: f64,
    base_kib: u64,
    bytes: u64,
    pub extra: Map<String, Value>,
    /// Keeps values alive until memory is measured.
    keep: Option<Box<dyn Any + Send>>,
}

impl Phase {
    pub fn begin() -> Result<Self> {
        let base_kib = resident()?;
        let begin = cpu()?;
        Ok(Self {
            start: Instant::now(),
            begin,
            end: begin,
            wall_s: 0.0,
            base_kib,
            bytes: client::received(),
            extra: Map::new(),
            keep: None,
        })
    }

    pub fn end(&mut self) -> Result<()> {
        self.end = cpu()?;
        self.wall_s = self.start.elapsed().as_secs_f64();
        self.bytes = client::received() - self.bytes;
        Ok(())
    }

    pub fn keep(&mut self, what: impl Any + Send) {
        self.keep = Some(Box::new(what));
    }

    /// Returns the result line, with the current memory.
    pub fn to_json(mut self, work: &str, flags: &Flags) -> Result<String> {
        let (peak_kib, steady_kib) = (memory("VmHWM")?, resident()?);
        trim();
        self.extra
            .insert("steady_trim_kib".into(), resident()?.into());
        if work == "relist" {
            self.extra.insert("peak_kib".into(), peak_kib.into());
        }
        let mut line = json!({
            "peer": "kube-rs",
            "version": env!("KUBE_VERSION"),
            "work": work,
            "user_s": self.end.0 - self.begin.0,
            "system_s": self.end.1 - self.begin.1,
            "wall_s": self.wall_s,
            "base_kib": self.base_kib,
            "peak_kib": peak_kib,
            "steady_kib": steady_kib,
            "bytes_received": self.bytes,
            "extra": self.extra,
        });
        if let (Value::Object(line), Value::Object(flags)) =
            (&mut line, serde_json::to_value(flags)?)
        {
            line.extend(flags);
        }
        drop(self.keep);
        Ok(line.to_string())
    }
}

/// Signals when a count is reached.
#[derive(Clone)]
pub struct Countdown(Arc<(AtomicUsize, Notify)>);

impl Countdown {
    pub fn new(count: usize) -> Self {
        Self(Arc::new((AtomicUsize::new(count), Notify::new())))
    }

    pub fn decrement(&self) {
        if self.0.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.1.notify_one();
        }
    }

    pub async fn wait(&self, what: &str) -> Result<()> {
        let limit = Duration::from_secs(300);
        if tokio::time::timeout(limit, self.0.1.notified())
            .await
            .is_err()
        {
            let left = self.0.0.load(Ordering::Relaxed);
            bail!("timed out after {limit:?} waiting until {what}; {left} missing");
        }
        Ok(())
    }
}
