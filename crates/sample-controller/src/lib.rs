//! Kubernetes' sample controller, written with [`pintle`].
//!
//! A [`Foo`](foo::Foo) names a Deployment and a number of replicas; the controller makes it so and
//! reports status and events. Read [`controller`] from top to bottom: it is the tutorial.

pub mod controller;
pub mod crd;
pub mod deployment;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod foo;
pub mod install;
pub mod manifests;
pub mod narrate;
mod refusals;
mod status;
mod status_writer;
