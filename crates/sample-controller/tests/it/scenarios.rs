//! What a user of the sample sees, on the embedded cluster under virtual time. The scenarios
//! themselves are those that are played on a real control plane, too.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event};
use pintle::limits::RateLimit;
use sample_scenarios::{Crd, InProcess, OverTcp, Pace, Scene, World, scenarios};
use serde_json::json;
use tokio::time::sleep;
use tower::Layer;

async fn scene() -> Scene<InProcess> {
    Scene::new(InProcess::new(Crd::Today).await).await
}

/// Proves sample/triggers, sample/gone-foo, sample/status, sample/synced-event.
/// Proves sample/field-manager, sample/deployment.
#[tokio::test(start_paused = true)]
async fn a_foo_becomes_a_deployment_with_status_and_event() {
    scenarios::create(&scene().await).await;
}

/// Proves sample/replicas.
#[tokio::test(start_paused = true)]
async fn scaling_a_foo_scales_its_deployment_and_leaves_the_labels_of_others() {
    scenarios::scale(&scene().await).await;
}

/// Proves sample/replicas.
#[tokio::test(start_paused = true)]
async fn a_foo_without_replicas_leaves_the_number_to_others() {
    scenarios::no_replicas(&scene().await).await;
}

/// Proves sample/gone-foo.
#[tokio::test(start_paused = true)]
async fn a_foo_that_names_no_deployment_is_told_so_once() {
    scenarios::missing_name(&scene().await).await;
}

/// Proves sample/foreign-deployment.
#[tokio::test(start_paused = true)]
async fn a_deployment_of_somebody_else_is_left_alone_until_it_goes() {
    scenarios::foreign_deployment(&scene().await).await;
}

/// Proves sample/triggers, sample/deployment.
#[tokio::test(start_paused = true)]
async fn a_deleted_deployment_comes_back() {
    scenarios::deleted_deployment(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn a_deployment_goes_with_its_foo() {
    scenarios::deleted_foo(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test(start_paused = true)]
async fn a_foo_keeps_only_the_deployment_it_names() {
    scenarios::renamed_deployment(&scene().await).await;
}

/// Proves sample/triggers.
#[tokio::test(start_paused = true)]
async fn what_happened_while_the_controller_was_down_is_made_good() {
    scenarios::controller_down(&scene().await).await;
}

/// Proves sample/two-controllers.
#[tokio::test(start_paused = true)]
async fn two_controllers_at_once_end_in_the_same_state_and_rest() {
    scenarios::two_controllers(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test(start_paused = true)]
async fn failing_and_conflicting_requests_only_delay() {
    scenarios::faults(&scene().await).await;
}

/// Proves sample/retries, sample/apiserver-restart.
#[tokio::test]
async fn a_restart_of_the_api_server_is_survived() {
    scenarios::api_server_restarted(&Scene::new(OverTcp::new().await).await).await;
}

/// Proves sample/status, sample/retries.
#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_however_often_it_resyncs() {
    const HOURS: [(Crd, u64); 4] = [
        (Crd::Today, 6),
        (Crd::Classic, 1),
        (Crd::Original, 1),
        (Crd::OriginalWithStatus, 1),
    ];
    for (crd, hours) in HOURS {
        let scene = Scene::new(InProcess::new(crd).await).await;
        scene
            .apply("a", json!({"deploymentName": "web", "replicas": 2}))
            .await;
        let running = scene.run();
        scene.available("a", 2).await;
        scene.rest().await;
        let before = scene.gate.writes();
        sleep(Duration::from_hours(hours)).await;
        assert_eq!(scene.gate.writes(), before, "{crd:?}");
        scene.available("a", 2).await;
        running.stop().await;
    }
}

/// A world whose controllers keep to a limit.
struct Limited(InProcess, RateLimit);

impl World for Limited {
    fn client(&self) -> kube::Client {
        self.0.client()
    }

    fn controller_client(&self) -> kube::Client {
        kube::Client::new(self.1.layer(self.0.service()), "default")
    }

    fn namespace(&self) -> String {
        self.0.namespace()
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }

    fn clock(&self) -> pintle::clock::Clock {
        self.0.clock()
    }
}

/// Proves limits/lanes.
#[tokio::test(start_paused = true)]
async fn events_do_not_wait_behind_reconciles_that_wait_for_the_limit() {
    let limit = RateLimit::new(0.1, 4).unwrap();
    let scene = Scene::new(Limited(InProcess::new(Crd::Today).await, limit)).await;
    for number in 0..20 {
        let name = format!("foo-{number}");
        let spec = json!({"deploymentName": name, "replicas": 1});
        scene.apply(&name, spec).await;
    }
    let running = scene.run();
    // Twenty Deployments at one write in ten seconds: this is far from the end.
    sleep(Duration::from_mins(2)).await;
    let made = scene.list::<Deployment>().await.len();
    let told = scene.list::<Event>().await;
    let told = told
        .iter()
        .filter(|event| event.reason.as_deref() == Some("Synced"));
    assert!((2..20).contains(&made), "{made} Deployments");
    assert!(told.count() > 0, "what is done is told");
    for number in 0..20 {
        scene.available(&format!("foo-{number}"), 1).await;
    }
    running.stop().await;
}
