//! Kubernetes controllers the client-go way.
//!
//! A change on the API server passes through the modules in this order, and each module knows only
//! those before it:
//!
//! ```text
//! source ─► reflector ─► delta_fifo ─► cache ─► informer ─► queue ─► controller
//! ```
//!
//! Start with [`controller`]: a reconcile function and the builder around it. The earlier stages
//! can be used on their own: an [`informer`] with its [`cache`] in a program that only watches, a
//! [`queue`] in one that has its own workers. [`events`], [`conditions`], [`finalizer`], [`owner`]
//! and [`kstatus`] help a reconcile. A [`manager`] puts a program together: many controllers,
//! leader election, probes, metrics and an orderly shutdown.
//!
//! k8s-openapi has to know which Kubernetes version to build for. Libraries leave that open, so the
//! program chooses: `k8s-openapi = { version = "0.29", features = ["v1_36"] }`.
//!
//! # Features
//!
//! All but `webhook` are enabled by default.
//!
//! - `inspect`: the module `inspect`, which records why keys run, wait and fail, and serves a page
//!   that shows it. Implies `probes`.
//! - `limits`: the module [`limits`], client-side rate limits, and
//!   [`client::build_limited`].
//! - `metrics`: Prometheus metrics of every stage. Without it, [`metrics::Metrics`] can still be
//!   passed around but records nothing, and `prometheus-client` is not compiled.
//! - `probes`: the module [`probes`], an HTTP server for liveness, readiness and metrics.
//! - `rustls-tls`: TLS with rustls and ring. To use OpenSSL instead, disable the default features
//!   and enable `openssl-tls` of the `kube` crate in your program.
//! - `webhook`: the module `webhook`, a TLS server for admission and conversion webhooks.
//!
//! Events and leader election need no feature, because they add no dependencies.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The control loop, in order. (Blank lines keep rustfmt from sorting the modules.)

mod object;

pub mod source;

pub mod reflector;

pub mod delta_fifo;

pub mod cache;

pub mod informer;

pub mod queue;

pub mod controller;

// Helpers for a reconcile.

pub mod conditions;
pub mod events;
pub mod finalizer;
pub mod kstatus;
pub mod owner;

// The rest of a program around its controllers.

pub mod client;
#[cfg(feature = "inspect")]
pub mod inspect;
#[cfg(not(feature = "inspect"))]
#[path = "inspect/disabled.rs"]
mod inspect;
pub mod leader_election;
#[cfg(feature = "limits")]
pub mod limits;
pub mod manager;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/disabled.rs"]
pub mod metrics;
#[cfg(feature = "probes")]
pub mod probes;
pub mod rbac;
pub mod repeats;
pub mod signals;
#[cfg(feature = "webhook")]
pub mod webhook;

// Foundations.

pub mod clock;
mod json;
mod sync;
mod token_bucket;

/// An error of any type, as user functions return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The names that most operators need, for `use pintle::prelude::*`.
///
/// # Examples
///
/// ```no_run
/// use std::{convert::Infallible, sync::Arc};
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use pintle::prelude::*;
///
/// async fn reconcile(_: Arc<ConfigMap>, _: Context) -> Result<Action, Infallible> {
///     Ok(Action::await_change())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = kube::Client::try_default().await?;
/// Controller::<ConfigMap>::new("example", &InformerFactory::new(client))
///     .run(reconcile, &shutdown_on_signal()?)
///     .await?;
/// # Ok(())
/// # }
/// ```
pub mod prelude {
    pub use crate::{
        controller::{Action, Context, Controller, Predicate, ReconcileError},
        events::EventType,
        informer::InformerFactory,
        manager::Manager,
        signals::shutdown_on_signal,
    };
}

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
