//! Runs the scenarios of the sample controller against its builder version.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use pintle::{clock::Clock, informer::InformerFactory};
use sample_scenarios::{Crd, InProcess, OverTcp, Scene, scenarios};
use tokio_util::sync::CancellationToken;

/// Runs the controller until `shutdown`.
fn run(
    _: Client,
    informers: InformerFactory,
    clock: Clock,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    async move {
        let controller = foo_builder::controller(&informers).clock(clock);
        controller
            .run(foo_builder::reconcile, &shutdown)
            .await
            .expect("the controller runs until the shutdown");
        informers.shutdown().await;
    }
    .boxed()
}

async fn scene() -> Scene<InProcess> {
    Scene::with(InProcess::new(Crd::Own).await, run).await
}

/// Proves sample/builder, sample/status, sample/synced-event, sample/least-privilege.
#[tokio::test(start_paused = true)]
async fn foo_gets_a_deployment_status_and_event() {
    scenarios::create(&scene().await).await;
}

/// Proves sample/builder, sample/deployment.
#[tokio::test(start_paused = true)]
async fn scaling_preserves_labels_set_by_others() {
    scenarios::scale(&scene().await).await;
}

/// Proves sample/builder, sample/deployment.
#[tokio::test(start_paused = true)]
async fn unset_replicas_are_left_to_other_writers() {
    scenarios::no_replicas(&scene().await).await;
}

/// Proves sample/builder.
#[tokio::test(start_paused = true)]
async fn missing_deployment_name_is_reported_once() {
    scenarios::missing_name(&scene().await).await;
}

/// Proves sample/builder, sample/deployment.
#[tokio::test(start_paused = true)]
async fn foreign_deployment_is_left_alone() {
    scenarios::foreign_deployment(&scene().await).await;
}

/// Proves sample/builder.
#[tokio::test(start_paused = true)]
async fn deleted_deployment_is_recreated() {
    scenarios::deleted_deployment(&scene().await).await;
}

/// Proves sample/builder.
#[tokio::test(start_paused = true)]
async fn deployment_is_deleted_with_its_foo() {
    scenarios::deleted_foo(&scene().await).await;
}

/// Proves sample/builder.
#[tokio::test(start_paused = true)]
async fn renaming_the_deployment_deletes_the_old_one() {
    scenarios::renamed_deployment(&scene().await).await;
}

/// Proves sample/builder.
#[tokio::test(start_paused = true)]
async fn changes_during_downtime_are_caught_up() {
    scenarios::controller_down(&scene().await).await;
}

/// Proves sample/builder, sample/retries.
#[tokio::test(start_paused = true)]
async fn two_controllers_converge() {
    scenarios::two_controllers(&scene().await).await;
}

/// Proves sample/builder, sample/retries.
#[tokio::test(start_paused = true)]
async fn failed_requests_are_retried() {
    scenarios::faults(&scene().await).await;
}

/// Proves sample/builder, sample/retries.
#[tokio::test]
async fn controller_survives_an_api_server_restart() {
    scenarios::api_server_restarted(&Scene::with(OverTcp::new().await, run).await).await;
}
