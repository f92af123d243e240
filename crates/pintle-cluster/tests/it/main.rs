//! Tests of whole clusters through their API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod components;
mod convergence;
mod disruption;
mod garbage;
mod policies;
#[cfg(all(unix, feature = "cli"))]
mod program;
mod quota;
mod rbac;
mod rollout;
mod scheduling;
mod storage;
mod support;
mod your_controller;
