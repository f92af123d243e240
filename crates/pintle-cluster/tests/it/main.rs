//! Tests of whole clusters through their API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod components;
mod convergence;
mod cron_job;
mod daemon_set;
mod disruption;
mod garbage;
mod job;
mod pod_scripts;
mod policies;
#[cfg(all(unix, feature = "cli"))]
mod program;
mod quota;
mod rbac;
mod rollout;
mod scheduling;
mod stateful_set;
mod storage;
mod support;
mod trials;
mod your_controller;
