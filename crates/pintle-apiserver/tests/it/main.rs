//! The API server as its clients see it, over its real HTTP path.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assertion is how a test reports"
)]

mod accounts;
mod apply;
mod bootstrap;
mod client;
mod cluster;
mod concurrency;
mod connections;
mod definitions;
mod forms;
mod identity;
mod limits;
mod lists;
mod mutations;
mod notices;
mod objects;
mod openapi;
mod pods;
mod points;
mod properties;
mod scales;
mod services;
mod serving;
mod signing_requests;
mod specs;
mod subresources;
mod support;
mod tables;
mod text;
mod watches;
mod websockets;
mod writes;
