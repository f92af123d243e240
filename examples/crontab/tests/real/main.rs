//! The tutorial with kubectl and the program `pintle-cluster`.

#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

#[path = "../it/reader.rs"]
mod reader;
mod tutorial;
