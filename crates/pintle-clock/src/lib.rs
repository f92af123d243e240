//! Wall-clock time, randomness and hashes that are the same in every run of a test.
//!
//! A run can only be replayed if nothing in it reads the system clock or the operating system's
//! entropy directly. Pintle's crates take both from here instead: [`Clock`] for timestamps that
//! leave the process, [`Rng`] for jitter, generated names and UIDs, [`StableHash`] for names and
//! fingerprints that follow from data. Durations and timers come from tokio, which tests can pause.

#![deny(missing_docs)]

mod clock;
mod rng;
mod stable_hash;

pub use self::{
    clock::{Clock, format_seconds},
    rng::Rng,
    stable_hash::StableHash,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
