//! A Kubernetes cluster in one process.

#![deny(missing_docs)]
#![allow(dead_code)]

mod deployment;
mod garbage_collector;
mod meta;
mod namespace;
mod nodes;
mod pods;
mod replica_set;
mod service_account;
