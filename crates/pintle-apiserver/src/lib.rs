//! A Kubernetes API server as a library.
//!
//! ```no_run
//! # #[cfg(feature = "client")]
//! # async fn example() {
//! use pintle_apiserver::ApiServer;
//!
//! let server = ApiServer::builder().build(); // milliseconds; nothing listens
//! let client: kube::Client = server.client(); // in process, no sockets
//! # drop(client);
//! # }
//! ```
//!
//! # Flow
//!
//! ```text
//! request ─► tower_service ─► api (request ─► write or read ─► response) ─► store ─► watches
//!                                  │            │
//!                                registry   meta, schema, patch
//! ```
//!
//! The server is generic over kinds: an object is a small parsed header and its canonical bytes. What
//! differs between kinds is data and, where code is needed, the hooks in `api/kinds`. Time and
//! randomness are injected, so a run can be replayed from its seed.
//!
//! # Users
//!
//! Every request is made by a user. [`ApiServer::service`] acts as the administrator and
//! [`ApiServer::service_as`] as anyone else; over TLS the user follows from the certificate or
//! token. The administrator may impersonate others with the `Impersonate-User` headers. There is no
//! authorization yet: apart from impersonation every user may do everything.
//!
//! # Objects without effect
//!
//! The server accepts every built-in kind but does not implement all of them. A write of an object
//! that is only stored, such as a `ResourceQuota` or a `StatefulSet` without a controller, succeeds
//! with a `Warning` header that says so. A controller that implements such a kind calls
//! [`ApiServer::register_controller`].
//!
//! # Pods
//!
//! A Pod that names a missing `priorityClassName` or `serviceAccountName` is refused, as on a real
//! cluster. The account `default` is the exception: nothing creates it on a bare server, so it need
//! not exist.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
#[cfg(feature = "client")]
mod client;
mod codec;
mod meta;
mod names;
mod patch;
mod points;
mod registry;
mod schema;
mod serve;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod tower_service;

pub use pintle_clock::Clock;

pub use self::{
    api::{Body, ControllerRegistration, User},
    points::{Hold, Points, Write},
    serve::{Bound, KubeconfigError, MergedContext, ServeError, ServeOptions},
    server::{ApiServer, Builder, PodDeletion},
    tower_service::ApiService,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
