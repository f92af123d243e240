//! The sample controller from outside: what its users see, what it is allowed to do, how it is run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod image;
mod manifests;
mod program;
mod scenarios;
