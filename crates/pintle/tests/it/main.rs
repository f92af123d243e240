//! The library on the embedded API server, as a controller author uses it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assertion is how a test reports"
)]

mod controller;
mod events;
mod informers;
mod informers_tcp;
mod inputs;
mod inspect;
mod leader_election;
mod limits;
mod manager;
mod metrics;
mod probes;
mod queue_soak;
mod readiness;
#[cfg(unix)]
mod signals;
mod support;
mod webhook;
mod webhook_limits;
