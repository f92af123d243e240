//! Deployments: one template after the other, without an interruption.

mod plan;
mod revision;
mod size;
mod status;
