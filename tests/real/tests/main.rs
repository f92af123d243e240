//! Tests that need a real control plane; run them with `cargo xtask test-real`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod cluster;
mod control_plane;
mod corpus;
mod differential;
mod election;
mod events;
mod informer;
mod kube_client;
mod kube_runtime;
mod kubectl;
mod reflector;
mod sample;
mod tokens;
