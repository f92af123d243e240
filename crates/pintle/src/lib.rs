//! Kubernetes controllers the client-go way.
//!
//! An event travels through the modules in the order in which they stand here, and each knows only
//! those before it:
//!
//! ```text
//! source ─► reflector ─► delta_fifo ─► cache ─► informer ─► queue ─► controller
//! ```
//!
//! [`controller`] is where to begin: a reconcile function and the builder around it. The stages
//! before it are there to be used alone: an [`informer`] with its [`cache`] for a program that only
//! watches, a [`queue`] for one that has its own workers. [`events`] is what users read in `kubectl
//! describe`, [`probes`] what a kubelet and a Prometheus ask a program.
//!
//! The k8s-openapi crate wants to know for which Kubernetes version it builds. Libraries leave that
//! open, so the program says it: `k8s-openapi = { version = "0.29", features = ["v1_36"] }`.
//!
//! # Features
//!
//! Both are enabled by default.
//!
//! - `probes`: the module [`probes`], an HTTP server for liveness, readiness and metrics.
//! - `rustls-tls`: TLS with rustls and ring. To use OpenSSL instead, disable the default features and
//!   enable `openssl-tls` of the `kube` crate in your program.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The loop. (A blank line between each keeps rustfmt from sorting them.)

mod object;

pub mod source;

pub mod reflector;

pub mod delta_fifo;

pub mod cache;

pub mod informer;

pub mod queue;

pub mod controller;

// What a reconcile needs besides.

pub mod conditions;
pub mod events;
pub mod finalizer;
pub mod owner;

// What surrounds it in a program.

pub mod leader_election;
#[cfg(feature = "probes")]
pub mod probes;
pub mod signals;

// What everything stands on.

pub mod client;
pub mod clock;
pub mod limits;
pub mod metrics;
pub mod repeats;
mod sync;

#[cfg(test)]
mod testing;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the migration guides.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-kube-rs.md")]
#[doc = include_str!("../../../docs/from-controller-runtime.md")]
struct MigrationGuides;
