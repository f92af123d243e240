//! The program `pintle-cluster` with kubectl, and under load.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod kubectl;
#[cfg(target_os = "linux")]
mod load;
#[path = "../it/support/mod.rs"]
mod support;
