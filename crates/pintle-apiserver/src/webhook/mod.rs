//! Calls to webhooks: admission and conversion.
//!
//! ```text
//! clientConfig ─► target ─┬─► local: a closure or a tower service in this process
//!                         └─► remote: resolve ─► pool ─► TLS ─► POST
//! ```
//!
//! A configuration names a webhook by URL or by Service. [`Client`] resolves a Service to an
//! address or service that was registered for it, otherwise to its endpoints, and posts the review.
//!
//! # Bounds
//!
//! Webhooks are third-party code. Each call has a deadline, each webhook has limits on concurrent
//! calls and large responses, and each response has limits on bytes and values. Few idle
//! connections are kept. Waiting for a free slot counts towards the deadline. Code in this process
//! runs in its own task, so that a panic is an error and a webhook that calls itself cannot exhaust
//! the stack. No lock is held during a call.

mod client;
mod config;
mod errors;
mod limits;
mod local;
mod pool;
mod registration;
mod services;
mod tls;

use std::time::Duration;

pub(crate) use self::{
    client::{Answer, Client, Sent},
    config::{ClientConfig, Destination},
    errors::CallError,
    limits::{Held, Limits, apart, check_values},
    local::LocalWebhook,
    tls::Roots,
};
pub use self::{
    local::{AdmissionRequest, AdmissionResponse, ConversionRequest},
    registration::{HttpService, Webhook, WebhookError, WebhookRegistration, WebhookTarget},
};

/// The deadline of a conversion. Admission webhooks have their own.
pub(crate) const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
