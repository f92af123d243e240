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
//! request ─► service ─► api (route, verb) ─► strategy (set, check) ─► store (commit) ─► watchers
//!                         │                        │
//!                      registry (which kinds)   meta, schema, patch
//! ```
//!
//! Objects are generic over kinds: a small parsed header and their canonical bytes. What differs
//! between kinds is data. Time and chance are injected, so a run replays from its seed.

#![deny(missing_docs)]

mod api;
mod chance;
#[cfg(feature = "client")]
mod client;
mod clock;
mod codec;
mod meta;
mod patch;
mod points;
mod registry;
mod schema;
mod serve;
mod server;
mod service;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    api::{Body, ControllerRegistration, User},
    clock::Clock,
    points::{Hold, Points, Write},
    serve::{Bound, ServeError, ServeOptions},
    server::{ApiServer, Builder, PodDeletion},
    service::ApiService,
};
