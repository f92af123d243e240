//! The sample controller from outside: what its users see, what it is allowed to do, how it is run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod failures;
mod image;
mod manifests;
mod newcomer;
mod program;
mod scenarios;
mod status;
