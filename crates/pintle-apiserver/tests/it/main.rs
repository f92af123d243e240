//! Scenario tests: the API server as its clients see it, over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assertion is how a test reports"
)]

mod acceptance;
mod admission;
mod admission_details;
mod admission_plugins;
mod apply;
mod audit;
mod authorized_paths;
mod bodies;
mod bootstrap;
mod client;
mod concurrency;
mod connections;
mod content_types;
mod conversion;
mod conversion_answers;
mod copies;
mod crd_details;
mod custom_resources;
mod definitions;
mod deletions;
mod discovery;
mod encoding;
mod every_write;
mod hostile;
mod identity;
mod limits;
mod lists;
mod mutations;
mod namespaces;
mod objects;
mod openapi;
mod pod_resizes;
mod pod_security;
mod pods;
mod points;
mod policies;
mod properties;
mod quota;
mod quota_edges;
mod rbac;
mod rbac_limits;
mod registered_webhooks;
mod resource_claims;
mod scales;
mod service_accounts;
mod services;
mod serving;
mod signing_requests;
mod specs;
mod stored_custom_objects;
mod subresources;
mod support;
mod tables;
mod warnings;
mod watches;
mod webhook_answers;
mod webhook_matching;
mod webhook_roots;
mod webhook_transport;
mod webhooks;
mod websockets;
mod writes;
