//! Serves admission and conversion webhooks to the API server.
//!
//! A webhook needs an HTTPS server, a certificate that the API server trusts, and code that unpacks
//! reviews and packs responses. This module takes care of all that, so that a webhook is an async
//! function of a typed object. [`WebhookServer`] decodes each review, calls the function, and
//! encodes its result:
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use pintle::webhook::{Admission, Denied, WebhookServer};
//!
//! async fn check(admission: Admission<ConfigMap>) -> Result<(), Denied> {
//!     let data = admission.object.and_then(|map| map.data).unwrap_or_default();
//!     if data.contains_key("password") {
//!         return Err(Denied::new("passwords belong in a Secret"));
//!     }
//!     Ok(())
//! }
//!
//! async fn label(mut map: ConfigMap, _: Admission<ConfigMap>) -> Result<ConfigMap, Denied> {
//!     let labels = map.metadata.labels.get_or_insert_default();
//!     labels.insert("team".to_owned(), "shop".to_owned());
//!     Ok(map)
//! }
//!
//! let webhooks = WebhookServer::new().validate("/validate", check).mutate("/mutate", label);
//! # drop(webhooks);
//! ```
//!
//! A [`Manager`](crate::manager::Manager) serves it on every replica, over TLS:
//!
//! ```no_run
//! # use pintle::{manager::Manager, webhook::{Certificates, Injection, WebhookServer}};
//! # fn example(manager: &mut Manager, webhooks: WebhookServer) -> Result<(), Box<dyn std::error::Error>> {
//! // A certificate from cert-manager or another Secret, reloaded when it changes.
//! let certificates = Certificates::files("/certs/tls.crt", "/certs/tls.key")?;
//! // Or one that the program generates, and whose CA it writes into its configuration.
//! let certificates = Certificates::self_signed(["webhooks.shop.svc"])?
//!     .inject(Injection::validating("shop-operator"));
//! manager.add(webhooks.component("webhooks", "0.0.0.0:9443", certificates));
//! # Ok(())
//! # }
//! ```
//!
//! In tests no socket is needed: [`WebhookServer::handler`] is a tower service, which
//! `pintle_apiserver::WebhookTarget::service` accepts.
//!
//! # Failures
//!
//! A request that cannot be decoded gets 400 and an unknown path 404. A panic in a function is
//! logged and counted, and the response is 500; the API server then follows the failure policy of
//! the configuration. A body that does not arrive in time gets 408, and a function that does not
//! return in its caller's time gets 504. The size of bodies and the number of connections are
//! limited; if there are too many, the oldest idle one is closed.

mod certificates;
mod diff;
mod handler;
mod injection;
mod metrics;
mod review;
mod serve;

pub use self::{
    certificates::{CertificateError, Certificates},
    handler::WebhookHandler,
    injection::Injection,
    review::{Admission, Denied},
    serve::WebhookServer,
};
