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
//! The server is generic over kinds: an object is a small parsed header and its canonical bytes.
//! Differences between kinds are data and, where code is needed, the hooks in `api/kinds`. Time and
//! randomness are injected, so a run can be replayed from its seed.
//!
//! # Users
//!
//! Every request is made by a user. [`ApiServer::service`] acts as the administrator and
//! [`ApiServer::service_as`] as any other user; over TLS the user follows from the certificate or
//! token. RBAC decides what a user may do, with the default roles of Kubernetes; the administrator
//! is in `system:masters` and may do everything. See [`Authorization`].
//!
//! # Webhooks
//!
//! `MutatingWebhookConfiguration`, `ValidatingWebhookConfiguration` and the conversion webhooks of
//! CRDs work as in Kubernetes: the server calls them over HTTPS. [`ApiServer::route_webhooks`]
//! sends a Service to an address or a tower service, and [`ApiServer::register_webhook`] and
//! [`ApiServer::register_converter`] take closures, which need no socket and run under a paused
//! clock. A configuration with a `caBundle` trusts only that; without one, it trusts the system's
//! certificates, or those of [`Builder::webhook_roots`].
//!
//! # Objects without effect
//!
//! The server accepts every built-in kind but does not implement all of them. A write of an object
//! that is only stored, such as a `StatefulSet` without a controller, succeeds with a `Warning`
//! header that says so. A controller that implements such a kind calls
//! [`ApiServer::register_controller`].
//!
//! # Pods
//!
//! New Pods pass the admission plugins that Kubernetes enables by default: a Pod that names a
//! missing `priorityClassName`, `runtimeClassName` or `serviceAccountName` is denied, and a Pod
//! with an account gets its token volume. The account `default` is the exception: nothing creates
//! it on a bare server, so it need not exist. Quotas apply once a controller has counted their
//! usage, as `pintle-cluster` does. The labels `pod-security.kubernetes.io/*` of a namespace deny
//! Pods, warn and audit as in Kubernetes.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
mod api;
mod audit;
mod authority;
mod authz;
#[cfg(feature = "client")]
mod client;
mod codec;
mod conversion_webhook;
pub mod crd;
mod meta;
mod patch;
mod points;
pub mod quota;
mod registry;
mod schema;
mod serve;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod tower_service;
mod webhook;
mod x509;

pub use pintle_clock::Clock;

pub use self::{
    admission::policy_warnings,
    api::{Body, ControllerRegistration, PodLogLine, PodLogRequest, PodLogsRegistration, User},
    audit::{AuditEvent, AuditObject},
    authority::{Authority, AuthorityError},
    authz::{Authorization, AuthorizationError},
    points::{Hold, Points, Write},
    serve::{Bound, KubeconfigError, MergedContext, ServeError, ServeOptions},
    server::{ApiServer, Builder, PodDeletion},
    tower_service::ApiService,
    webhook::{
        AdmissionRequest, AdmissionResponse, ConversionRequest, HttpService, Webhook, WebhookError,
        WebhookRegistration, WebhookTarget,
    },
    x509::{AlternativeName, SigningRequest},
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
