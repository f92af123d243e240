//! The shared scenarios on the embedded cluster, under virtual time where no socket is involved.
//! `tests/real` runs the same scenarios on a real control plane.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event};
use kube::Client;
use pintle::limits::RateLimit;
use sample_scenarios::{Crd, InProcess, OverTcp, Scene, scenarios};
use serde_json::json;
use tokio::time::sleep;
use tower::Layer;

async fn scene() -> Scene<InProcess> {
    Scene::new(InProcess::new(Crd::Own).await).await
}

/// Proves sample/triggers, sample/gone-foo, sample/status, sample/synced-event.
/// Proves sample/least-privilege, sample/deployment.
#[tokio::test(start_paused = true)]
async fn foo_gets_deployment_status_and_event() {
    scenarios::create(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn scaling_a_foo_keeps_foreign_labels_of_its_deployment() {
    scenarios::scale(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn foo_without_replicas_leaves_their_number_alone() {
    scenarios::no_replicas(&scene().await).await;
}

/// Proves sample/gone-foo.
#[tokio::test(start_paused = true)]
async fn missing_deployment_name_is_reported_once() {
    scenarios::missing_name(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn foreign_deployment_is_left_alone() {
    scenarios::foreign_deployment(&scene().await).await;
}

/// Proves sample/triggers, sample/deployment.
#[tokio::test(start_paused = true)]
async fn deleted_deployment_is_recreated() {
    scenarios::deleted_deployment(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn deployment_is_deleted_with_its_foo() {
    scenarios::deleted_foo(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn renaming_the_deployment_deletes_the_old_one() {
    scenarios::renamed_deployment(&scene().await).await;
}

/// Proves sample/triggers.
#[tokio::test(start_paused = true)]
async fn changes_during_downtime_are_caught_up() {
    scenarios::controller_down(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test(start_paused = true)]
async fn two_controllers_converge_and_go_idle() {
    scenarios::two_controllers(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test(start_paused = true)]
async fn conflicts_and_server_errors_are_retried() {
    scenarios::faults(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test]
async fn controller_survives_an_api_server_restart() {
    scenarios::api_server_restarted(&Scene::new(OverTcp::new().await).await).await;
}

/// Proves sample/status, sample/retries.
#[tokio::test(start_paused = true)]
async fn resyncs_write_nothing_when_idle() {
    for (crd, hours) in [(Crd::Own, 6), (Crd::Upstream, 1)] {
        let scene = Scene::new(InProcess::new(crd).await).await;
        scene
            .create_foo("a", json!({"deploymentName": "web", "replicas": 2}))
            .await;
        let running = scene.run();
        scene.available("a", 2).await;
        scene.wait().await;
        let before = scene.gate.writes();
        sleep(Duration::from_hours(hours)).await;
        assert_eq!(scene.gate.writes(), before, "{crd:?}");
        scene.available("a", 2).await;
        running.stop().await;
    }
}

/// Proves limits/lanes.
#[tokio::test(start_paused = true)]
async fn events_do_not_queue_behind_rate_limited_writes() {
    let limit = RateLimit::new(0.1, 4).unwrap();
    let world = InProcess::new(Crd::Own).await;
    let limited = Client::new(limit.layer(world.service()), "default");
    let scene = Scene::new(world.with_controller_client(limited)).await;
    for number in 0..20 {
        let name = format!("foo-{number}");
        let spec = json!({"deploymentName": name, "replicas": 1});
        scene.create_foo(&name, spec).await;
    }
    let running = scene.run();
    // At one write every ten seconds, twenty Deployments are far from done by now.
    sleep(Duration::from_mins(2)).await;
    let created = scene.list::<Deployment>().await.len();
    assert!((2..20).contains(&created), "{created} Deployments");
    let events = scene.list::<Event>().await;
    let synced = |event: &Event| event.reason.as_deref() == Some("Synced");
    assert!(events.iter().any(synced), "no event was written");
    for number in 0..20 {
        scene.available(&format!("foo-{number}"), 1).await;
    }
    running.stop().await;
}
