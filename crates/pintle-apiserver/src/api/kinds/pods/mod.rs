//! Pods: admission of new ones, binding, eviction.

pub(crate) mod admission;
pub(crate) mod binding;
pub(crate) mod eviction;
