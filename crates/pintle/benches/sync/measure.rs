//! Processor time and memory of this process, from the kernel's own accounts.

use std::{fs, time::Duration};

/// Processor time of this thread so far: everything here runs on one.
pub(super) fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let size = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    size.unwrap_or_default() * 1024
}

/// How much memory is resident, in bytes.
pub(super) fn resident() -> usize {
    status("VmRSS")
}

/// How much was resident at most.
pub(super) fn peak() -> usize {
    status("VmHWM")
}

/// Forgets the peak so far.
pub(super) fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

pub(super) fn megabytes(bytes: usize) -> usize {
    bytes / 1_000_000
}
