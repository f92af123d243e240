//! `ReplicaSet`s: as many Pods as wanted.

mod plan;
