//! Garbage: what no owner is left for.

mod graph;
