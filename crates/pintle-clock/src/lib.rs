//! Wall-clock time and randomness as values that tests can replace.
//!
//! A run can only be replayed if nothing in it reads the system clock or the operating system's
//! entropy directly. Pintle's crates take both from here instead: [`Clock`] for timestamps that
//! leave the process, [`Rng`] for jitter, generated names and UIDs. Durations and timers come from
//! tokio, which tests can pause.

#![deny(missing_docs)]

mod clock;
mod rng;

pub use self::{
    clock::{Clock, format_seconds},
    rng::Rng,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
