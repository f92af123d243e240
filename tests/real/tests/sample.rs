//! The shared scenarios of the sample controller on a real control plane.

use std::path::Path;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use real_tests::Real;
use sample_controller::manifests;
use sample_scenarios::{OverTcp, Scene, World, scenarios};
use serde_json::{from_value, json};
use tokio::process::Command;

async fn scene() -> Scene<Real> {
    Scene::new(Real::new().await).await
}

/// Proves sample/triggers, sample/gone-foo, sample/status, sample/synced-event.
/// Proves sample/least-privilege, sample/deployment.
#[tokio::test]
async fn foo_gets_deployment_status_and_event() {
    scenarios::create(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test]
async fn scaling_a_foo_keeps_foreign_labels_of_its_deployment() {
    scenarios::scale(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test]
async fn foreign_deployment_is_left_alone() {
    scenarios::foreign_deployment(&scene().await).await;
}

/// Proves sample/triggers, sample/deployment.
#[tokio::test]
async fn deleted_deployment_is_recreated() {
    scenarios::deleted_deployment(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test]
async fn deployment_is_deleted_with_its_foo() {
    scenarios::deleted_foo(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test]
async fn renaming_the_deployment_deletes_the_old_one() {
    scenarios::renamed_deployment(&scene().await).await;
}

/// Proves sample/gone-foo.
#[tokio::test]
async fn missing_deployment_name_is_reported_once() {
    scenarios::missing_name(&scene().await).await;
}

/// Proves sample/triggers.
#[tokio::test]
async fn changes_during_downtime_are_caught_up() {
    scenarios::controller_down(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test]
async fn two_controllers_converge_and_go_idle() {
    scenarios::two_controllers(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test]
async fn conflicts_and_server_errors_are_retried() {
    scenarios::faults(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test]
async fn controller_survives_an_api_server_restart() {
    scenarios::api_server_restarted(&Scene::new(Real::alone().await).await).await;
}

/// Grants `rules` to the controllers of a world.
async fn grant(scene: &Scene<Real>, name: &str, rules: Vec<PolicyRule>) {
    let (client, namespace) = (scene.world.client(), scene.world.namespace());
    let role: Role = from_value(json!({ "metadata": { "name": name }, "rules": rules })).unwrap();
    let binding: RoleBinding = from_value(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": namespace }],
    }))
    .unwrap();
    let roles = Api::<Role>::namespaced(client.clone(), &namespace);
    roles.create(&PostParams::default(), &role).await.unwrap();
    let bindings = Api::<RoleBinding>::namespaced(client, &namespace);
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
}

/// The printed role suffices on a real server, and missing permissions are reported.
///
/// Proves sample/least-privilege, sample/says-what-is-wrong.
#[tokio::test]
async fn missing_permissions_are_reported_until_granted() {
    let scene = Scene::new(Real::without_permissions().await).await;
    let rules = manifests::rbac("default")
        .cluster_role
        .unwrap()
        .rules
        .unwrap();
    let (deployments, others) = rules
        .into_iter()
        .partition(|rule| rule.resources == Some(vec!["deployments".to_owned()]));
    grant(&scene, "others", others).await;
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene
        .eventually("the reason", async || {
            let why = running.informers.not_synced()?.to_string();
            let forbidden = why.contains("deployments.apps is forbidden") && why.contains("403");
            (forbidden && !why.contains("foos")).then_some(())
        })
        .await;
    assert!(scene.deployment("web").await.is_none());

    grant(&scene, "deployments", deployments).await;
    scene.available("a", 1).await;
    running.stop().await;
}

/// Returns type, reason, source and message of the events `kubectl describe` shows for a Foo.
async fn describe(arguments: &[&Path], namespace: &str) -> Vec<Vec<String>> {
    let described = Command::new(real_tests::kubectl())
        .args(arguments)
        .args(["--namespace", namespace, "describe", "foo", "a"])
        .env_remove("KUBECONFIG")
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(described.stdout).unwrap();
    let (_, events) = text
        .split_once("\nEvents:")
        .unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&described.stderr)));
    // Skip the table header.
    let rows = events
        .lines()
        .filter(|line| !line.trim().is_empty())
        .skip(2);
    rows.map(|row| {
        let cells = row
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        let cells: Vec<_> = cells.map(str::to_owned).collect();
        assert_eq!(cells.len(), 5, "type, reason, age, source, message: {row}");
        [0, 1, 3, 4].map(|cell| cells[cell].clone()).to_vec()
    })
    .collect()
}

async fn kubectl_describe_shows_synced<W: World>(scene: &Scene<W>, arguments: &[&Path]) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = scene.run();
    scene.available("a", 2).await;
    let synced = "Normal Synced: Foo synced successfully";
    scene.has_events("a", &[synced]).await;
    let namespace = scene.world.namespace();
    let expected = [
        "Normal",
        "Synced",
        "sample-controller",
        "Foo synced successfully",
    ];
    assert_eq!(describe(arguments, &namespace).await, [expected]);
    running.stop().await;
}

/// Proves sample/synced-event.
#[tokio::test]
async fn kubectl_describe_shows_foo_events() {
    let kubeconfig = real_tests::kubeconfig();
    let arguments = [Path::new("--kubeconfig"), &kubeconfig];
    kubectl_describe_shows_synced(&scene().await, &arguments).await;
}

/// Proves sample/synced-event.
#[tokio::test]
async fn kubectl_describe_shows_foo_events_on_embedded_cluster() {
    let scene = Scene::new(OverTcp::new().await).await;
    let url = scene.world.url();
    let arguments = ["--kubeconfig", "/dev/null", "--server", &url].map(Path::new);
    kubectl_describe_shows_synced(&scene, &arguments).await;
}
