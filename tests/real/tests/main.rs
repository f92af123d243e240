//! The tests that need a real control plane: `cargo xtask test-real`.

// Helpers of tests are tests too: what they did not expect fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;
mod control_plane;
mod differential;
mod events;
mod informer;
mod kube_client;
mod kube_runtime;
mod kubectl;
mod reflector;
mod sample;
mod tokens;
