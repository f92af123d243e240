//! ReplicaSets: as many Pods as wanted.

mod plan;
