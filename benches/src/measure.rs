//! Measures CPU time and memory, and formats the result line.

use std::fs;

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::Flags;

/// CPU time of this process so far: the exact total in seconds, and user and system time in clock
/// ticks.
#[derive(Clone, Copy)]
struct Cpu {
    total: f64,
    user_ticks: f64,
    system_ticks: f64,
}

impl Cpu {
    fn now() -> Result<Self> {
        let total = clock_gettime(ClockId::ProcessCPUTime);
        let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
        // The name, in parentheses, may contain any character.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let ticks = |n| {
            let field = fields.and_then(|fields| fields.split_whitespace().nth(n));
            field
                .and_then(|field| field.parse::<f64>().ok())
                .context("unexpected format of /proc/self/stat")
        };
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a short run")]
        let total = total.tv_sec as f64 + total.tv_nsec as f64 / 1e9;
        Ok(Self {
            total,
            user_ticks: ticks(11)?,
            system_ticks: ticks(12)?,
        })
    }

    /// Returns user and system time since `earlier`, in seconds.
    fn since(self, earlier: Self) -> (f64, f64) {
        let total = self.total - earlier.total;
        let user = self.user_ticks - earlier.user_ticks;
        let ticks = user + self.system_ticks - earlier.system_ticks;
        let user = if ticks > 0.0 {
            total * user / ticks
        } else {
            total
        };
        (user, total - user)
    }
}

/// Returns the resident memory of another process in KiB, or 0 if it has exited.
#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) fn resident_of(pid: u32) -> f64 {
    memory(&pid.to_string(), "VmRSS").map_or(0.0, |size| size as f64)
}

/// Returns a size from the status of a process, in KiB.
fn memory(process: &str, name: &str) -> Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{process}/status")).context("no such process")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let size = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    size.with_context(|| format!("no {name} in /proc/{process}/status"))
}

/// Returns the current resident memory in KiB.
pub(crate) fn resident() -> Result<u64> {
    memory("self", "VmRSS")
}

/// Returns the peak resident memory in KiB.
pub(crate) fn peak() -> Result<u64> {
    memory("self", "VmHWM")
}

/// Resets the peak.
pub(crate) fn reset_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak")
}

/// A running measurement.
pub(crate) struct Phase {
    base_kib: u64,
    cpu: Cpu,
    begin: Instant,
}

/// A finished measurement.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Cost {
    user_s: f64,
    system_s: f64,
    wall_s: f64,
    base_kib: u64,
    peak_kib: u64,
    steady_kib: u64,
}

impl Phase {
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self {
            base_kib: resident()?,
            cpu: Cpu::now()?,
            begin: Instant::now(),
        })
    }

    /// Returns the CPU time from the start of the process to the start of the phase, in seconds.
    pub(crate) fn total(&self) -> f64 {
        self.cpu.total
    }

    /// Returns the CPU time of the phase so far, in seconds.
    pub(crate) fn so_far(&self) -> Result<f64> {
        Ok(Cpu::now()?.total - self.cpu.total)
    }

    /// Ends the phase and measures memory; [`Cost::settled`] measures it again.
    pub(crate) fn end(self) -> Result<Cost> {
        let wall_s = self.begin.elapsed().as_secs_f64();
        let (user_s, system_s) = Cpu::now()?.since(self.cpu);
        Ok(Cost {
            user_s,
            system_s,
            wall_s,
            base_kib: self.base_kib,
            peak_kib: peak()?,
            steady_kib: resident()?,
        })
    }
}

impl Cost {
    /// Waits, then measures memory again.
    pub(crate) async fn settled(mut self, flags: &Flags) -> Result<Self> {
        tokio::time::sleep(flags.settle()).await;
        self.steady_kib = resident()?;
        self.peak_kib = peak()?;
        Ok(self)
    }

    /// Returns the total CPU time in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// The result of a benchmark.
pub(crate) struct Outcome {
    pub(crate) work: &'static str,
    /// The number of operations.
    pub(crate) count: u64,
    pub(crate) cost: Cost,
    pub(crate) bytes_received: u64,
    pub(crate) extra: Map<String, Value>,
}

#[derive(Serialize)]
struct Line<'a> {
    peer: &'static str,
    version: &'static str,
    work: &'static str,
    #[serde(flatten)]
    flags: &'a Flags,
    count: u64,
    #[serde(flatten)]
    cost: Cost,
    bytes_received: u64,
    extra: &'a Map<String, Value>,
}

impl Outcome {
    pub(crate) fn to_json(&self, flags: &Flags) -> Result<String> {
        let line = Line {
            peer: "pintle",
            version: env!("CARGO_PKG_VERSION"),
            work: self.work,
            flags,
            count: self.count,
            cost: self.cost,
            bytes_received: self.bytes_received,
            extra: &self.extra,
        };
        Ok(serde_json::to_string(&line)?)
    }
}
