//! Namespaces that are deleted empty themselves.

mod plan;
