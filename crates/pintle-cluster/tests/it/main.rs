//! Tests of whole clusters through their API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod autoscaler;
mod certificates;
mod components;
mod convergence;
mod cron_job;
mod daemon_set;
mod disruption;
mod endpoints;
mod garbage;
mod job;
mod logs;
mod nodes;
mod pod_life;
mod pod_scripts;
mod policies;
#[cfg(all(unix, feature = "cli"))]
mod program;
mod quota;
mod rbac;
mod recovery;
mod replication_controller;
mod rollout;
mod scheduler;
mod scheduling;
mod service_cidrs;
mod stale_caches;
mod stateful_set;
mod storage;
mod support;
mod tokens;
mod trials;
mod volumes;
mod your_controller;
