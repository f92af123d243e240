//! The controller: watches a kind, and calls a reconcile function for every object that needs work.
//!
//! # Flow
//!
//! Handlers on the informers of the controller's own kind, of the kinds it [owns](Controller::owns)
//! and of those it [watches](Controller::watches) turn changes into keys and add them to a
//! [`WorkQueue`](crate::queue::WorkQueue). Workers dequeue keys, never the same key concurrently,
//! and call the reconcile function. Its result decides when the key runs again:
//!
//! | result | the key |
//! |---|---|
//! | [`Action::await_change`] | runs when something changes |
//! | [`Action::requeue_after`] | runs after the delay, or when something changes |
//! | an error | is retried with back-off, unless the [error policy](Controller::error_policy) or the [error](ReconcileError) says otherwise |
//! | a panic, or the [time limit](Controller::timeout) | is retried with back-off |
//!
//! # What is watched
//!
//! By default a controller watches every object of a kind, in the namespaces of its
//! [`InformerFactory`](crate::informer::InformerFactory). For anything else, pass a
//! [`WatchInput`](crate::informer::WatchInput) to [`of`](Controller::of),
//! [`owns_from`](Controller::owns_from) or [`watches_from`](Controller::watches_from): a kind known
//! only at run time, several namespaces, selectors, a transform, another cluster.
//! [`wakes`](Controller::wakes) adds keys from outside Kubernetes.
//!
//! # By object or by key
//!
//! [`run`](Controller::run) calls the function with the object and is what most controllers want.
//! [`run_by_key`](Controller::run_by_key) calls it with the key, even when the object is gone, for
//! controllers that have to see deletions. For a [`Manager`](crate::manager::Manager), which runs
//! several controllers, use [`build`](Controller::build) and
//! [`build_by_key`](Controller::build_by_key) instead.
//!
//! # Guarantees
//!
//! - The first reconcile starts when every cache is filled *and* every handler has seen it.
//! - A reconcile sees what the previous reconcile of the same key wrote through its [`Context`],
//!   unless the caches take longer than
//!   [`read_own_writes_within`](Controller::read_own_writes_within).
//! - A deletion reaches the queue regardless of the predicates, even if the watch missed it.
//! - The first list and resyncs enter the queue at low priority, so they do not delay real changes.
//!
//! # Example
//!
//! A Deployment for every ConfigMap, with status and events left out:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
//! use pintle::{
//!     controller::{Action, ApplyError, Context, Controller},
//!     informer::InformerFactory,
//!     signals,
//! };
//! # fn deployment_for(_: &ConfigMap) -> Deployment { unimplemented!() }
//!
//! async fn reconcile(config: Arc<ConfigMap>, cx: Context) -> Result<Action, ApplyError> {
//!     cx.apply_owned(deployment_for(&config)).await?; // writes only if something differs
//!     Ok(Action::await_change())
//! }
//!
//! # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let informers = InformerFactory::new(client);
//! Controller::<ConfigMap>::new("config-deployer", &informers)
//!     .owns::<Deployment>()
//!     .workers(4)
//!     .run(reconcile, &signals::shutdown_on_signal()?)
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod action;
mod applied_configurations;
mod apply;
mod apply_set;
mod builder;
mod built;
mod cause;
mod children;
mod context;
mod error;
mod events;
mod listers;
mod metrics;
mod opened;
mod own_writes;
mod predicate;
mod primary;
mod reconciler;
mod report;
mod rules;
mod run;
mod settings;
mod status;
mod trigger;
mod wakes;
mod watches;
mod worker;
mod writes;

pub use self::{
    action::{Action, ErrorAction},
    apply::{Applied, Apply, ApplyError, ApplyOwned},
    apply_set::{
        APPLY_SET_LABEL, AppliedSet, ApplySet, ApplySetError, FailedObject, Member, ObjectError,
        PrunedObject,
    },
    builder::Controller,
    built::BuiltController,
    context::{Context, Writable},
    error::ReconcileError,
    listers::{Listers, NotWatched},
    predicate::Predicate,
    primary::Primary,
    run::{ControllerError, StopReason, Stopped},
    writes::Writes,
};
pub(crate) use self::{
    built::Defaults,
    opened::{Opened, Term},
};
use crate::cache::Kind;

/// A kind whose resource is known from its type. Other kinds are described by a value; see
/// [`WatchInput::of`](crate::informer::WatchInput::of).
pub trait Watchable: Kind<DynamicType: Default> {}

impl<K: Kind<DynamicType: Default>> Watchable for K {}
