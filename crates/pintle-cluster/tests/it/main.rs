//! A whole cluster as its users see it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assertion is how a test reports"
)]

mod components;
mod convergence;
mod disruption;
mod garbage;
#[cfg(all(unix, feature = "cli"))]
mod program;
mod rollout;
mod scheduling;
mod storage;
mod support;
mod your_controller;
