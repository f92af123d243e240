//! The sample controller on the `Controller` builder: a Foo names a Deployment and a number of
//! replicas, and the controller maintains that Deployment.
//!
//! It is equivalent to `crates/sample-controller`, which manages informers, a queue and workers
//! itself, and passes the same scenarios.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use pintle::{
    clock::Clock,
    conditions::{NewCondition, set_condition},
    controller::{Action, ApplyError, Context, Controller, ErrorAction, NotWatched},
    events::EventType,
    informer::InformerFactory,
    owner::OwnerError,
};
use sample_controller::{
    controller::NAME,
    deployment,
    foo::{Foo, FooStatus},
};

/// The condition that reports whether a Foo has its desired replicas.
const READY: &str = "Ready";

/// Why a Foo could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Foo names no Deployment.
    #[error("spec.deploymentName must name the Deployment to manage")]
    MissingName,
    /// The Deployment is not controlled by the Foo.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    NotOurs(String),
    /// The Deployment could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The API server rejected another write, or did not respond.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The Foo cannot own a Deployment.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The controller does not watch Deployments.
    #[error(transparent)]
    NotWatched(#[from] NotWatched),
}

impl Error {
    /// Returns the reason to report in the Foo's status, for errors its owner can fix.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::MissingName => Some("MissingDeploymentName"),
            Self::NotOurs(_) => Some("ErrResourceExists"),
            Self::Apply(error) => {
                let refused = |code| matches!(code, 400 | 403 | 422);
                let status = error.status().filter(|status| refused(status.code));
                status.map(|_| "DeploymentRefused")
            }
            _ => None,
        }
    }
}

/// Builds the controller.
pub fn controller(informers: &InformerFactory) -> Controller<Foo, (), Error> {
    Controller::<Foo>::new(NAME, informers)
        .owns::<Deployment>()
        .error_policy(error_policy)
        .workers(2)
}

/// Reconciles a Foo: applies its Deployment and reports the status.
pub async fn reconcile(foo: Arc<Foo>, cx: Context) -> Result<Action, Error> {
    if let Err(error) = sync(&foo, &cx).await {
        if let Some(reason) = error.reason() {
            cx.report_error(&*foo, READY, reason, &error).await?;
        }
        return Err(error);
    }
    Ok(Action::await_change())
}

fn error_policy(_: Arc<Foo>, error: &Error, _: Context) -> ErrorAction {
    match error {
        Error::MissingName => ErrorAction::Terminal,
        _ => ErrorAction::Retry,
    }
}

async fn sync(foo: &Foo, cx: &Context) -> Result<(), Error> {
    let name = foo.spec.deployment_name.as_str();
    if name.is_empty() {
        return Err(Error::MissingName);
    }
    let applied = cx.apply_owned(deployment::new_deployment(foo)?).await;
    let deployment = applied.map_err(|error| match error {
        error if error.is_foreign() => Error::NotOurs(name.to_owned()),
        error => error.into(),
    })?;
    let mut changed = deployment.is_changed();
    // Delete a Deployment that the Foo named before.
    for former in cx.owned::<Deployment>()? {
        if former.key().name() != name && !former.is_being_deleted() {
            cx.delete(&former).await?;
            changed = true;
        }
    }
    changed |= cx
        .update_status(foo, &status(foo, &deployment, cx.clock()))
        .await?;
    if changed {
        cx.event(EventType::Normal, "Synced", "Foo synced successfully");
    }
    Ok(())
}

/// Returns the status of a Foo that has its Deployment: ready once all replicas are available.
fn status(foo: &Foo, deployment: &Deployment, clock: &Clock) -> FooStatus {
    let available = deployment
        .status
        .as_ref()
        .and_then(|status| status.available_replicas);
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let (available, wanted) = (available.unwrap_or(0), wanted.unwrap_or(1));
    let is_ready = available >= wanted;
    let reason = if is_ready { "Available" } else { "Progressing" };
    let name = &foo.spec.deployment_name;
    let message = format!("{available} of {wanted} replicas of Deployment {name:?} are available");
    let ready = NewCondition::new(READY, is_ready, reason, message)
        .observed_generation(foo.metadata.generation);
    let mut status = foo.status.clone().unwrap_or_default();
    set_condition(&mut status.conditions, ready, clock);
    FooStatus {
        available_replicas: available,
        observed_generation: foo.metadata.generation,
        ..status
    }
}
