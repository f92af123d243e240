//! What is special about a built-in kind.

pub(crate) mod api_services;
pub(crate) mod component_statuses;
pub(crate) mod definitions;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod idle;
pub(crate) mod namespaces;
pub(crate) mod pods;
pub(crate) mod reviews;
pub(crate) mod service_accounts;
pub(crate) mod services;
pub(crate) mod signing_requests;
