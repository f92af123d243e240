//! Kubernetes' sample controller, written with [`pintle`].
//!
//! A [`Foo`](foo::Foo) names a Deployment and a number of replicas. The controller creates and
//! scales that Deployment and reports the result in the status of the Foo and in events.
//!
//! Start with [`controller`], which follows the `controller.go` of [kubernetes/sample-controller]
//! function by function.
//!
//! [kubernetes/sample-controller]: https://github.com/kubernetes/sample-controller

pub mod controller;
pub mod crd;
pub mod deployment;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod foo;
pub mod install;
pub mod manifests;
pub mod narrate;
pub mod status;
pub mod webhook;

/// Compiles and runs the example in the README of the repository.
#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
