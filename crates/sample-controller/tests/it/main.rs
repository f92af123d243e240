//! Tests of the sample controller: its behaviour, its permissions, its program and its image.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod failures;
mod image;
mod inspect;
mod manifests;
mod misconfiguration;
mod program;
mod scenarios;
mod status;
mod webhook;
