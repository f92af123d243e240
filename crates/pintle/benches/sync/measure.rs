//! CPU time and memory of this process, from the kernel's accounting.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of this thread so far. Everything here runs on one thread.
pub(super) fn cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let size = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    size.unwrap_or_default() * 1024
}

/// Returns the resident memory in bytes.
pub(super) fn resident() -> usize {
    status("VmRSS")
}

/// Returns the peak of resident memory in bytes.
pub(super) fn peak() -> usize {
    status("VmHWM")
}

/// Resets the peak.
pub(super) fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

pub(super) fn megabytes(bytes: usize) -> usize {
    bytes / 1_000_000
}
