//! The controller of the tutorial, its program, and `docs/your-own-crd.md` itself.
//!
//! The test shown in the tutorial is `tests/controller.rs`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

mod deletion;
mod document;
#[cfg(unix)]
mod program;
#[cfg(unix)]
mod reader;
#[cfg(unix)]
mod steps;
mod trials;
