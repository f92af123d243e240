//! Simulated nodes.

pub(crate) mod plan;
