//! A Kubernetes cluster in one process.

#![deny(missing_docs)]
#![allow(dead_code)]

mod deployment;
mod meta;
mod pods;
mod replica_set;
