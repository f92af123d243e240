//! Pods on simulated nodes.

mod plan;
pub(crate) mod state;
