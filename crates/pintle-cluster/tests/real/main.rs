//! The program `pintle-cluster` beside kubectl, and under thousands of connections.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assertion is how a test reports"
)]

mod kubectl;
#[cfg(target_os = "linux")]
mod load;
#[path = "../it/support/mod.rs"]
mod support;
