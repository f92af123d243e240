//! Pods on simulated nodes.

pub(crate) mod state;
