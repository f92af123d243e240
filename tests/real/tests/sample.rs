//! The sample controller on a real control plane: the scenarios of the embedded cluster, unchanged.

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
/// Proves sample/field-manager, sample/deployment.
#[tokio::test]
async fn a_foo_becomes_a_deployment_with_status_and_event() {
    scenarios::create(&scene().await).await;
}

/// Proves sample/replicas.
#[tokio::test]
async fn scaling_a_foo_scales_its_deployment_and_leaves_the_labels_of_others() {
    scenarios::scale(&scene().await).await;
}

/// Proves sample/foreign-deployment.
#[tokio::test]
async fn a_deployment_of_somebody_else_is_left_alone_until_it_goes() {
    scenarios::foreign_deployment(&scene().await).await;
}

/// Proves sample/triggers, sample/deployment.
#[tokio::test]
async fn a_deleted_deployment_comes_back() {
    scenarios::deleted_deployment(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test]
async fn a_deployment_goes_with_its_foo() {
    scenarios::deleted_foo(&scene().await).await;
}

/// Proves sample/deployment.
#[tokio::test]
async fn a_foo_keeps_only_the_deployment_it_names() {
    scenarios::renamed_deployment(&scene().await).await;
}

/// Proves sample/gone-foo.
#[tokio::test]
async fn a_foo_that_names_no_deployment_is_told_so_once() {
    scenarios::missing_name(&scene().await).await;
}

/// Proves sample/triggers.
#[tokio::test]
async fn what_happened_while_the_controller_was_down_is_made_good() {
    scenarios::controller_down(&scene().await).await;
}

/// Proves sample/two-controllers.
#[tokio::test]
async fn two_controllers_at_once_end_in_the_same_state_and_rest() {
    scenarios::two_controllers(&scene().await).await;
}

/// Proves sample/retries.
#[tokio::test]
async fn failing_and_conflicting_requests_only_delay() {
    scenarios::faults(&scene().await).await;
}

/// Proves sample/retries, sample/apiserver-restart.
#[tokio::test]
async fn a_restart_of_the_api_server_is_survived() {
    scenarios::api_server_restarted(&Scene::new(Real::alone().await).await).await;
}

/// Lets the controllers of a world do what `rules` say.
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

/// The role that is printed is enough on a real server, and what is missing of it is told.
///
/// Proves sample/least-privilege, sample/missing-rights.
#[tokio::test]
async fn a_right_that_is_missing_is_told_and_once_granted_the_work_begins() {
    let scene = Scene::new(Real::with_rights_to_come().await).await;
    let rules = manifests::role(false).rules.unwrap();
    let (deployments, others) = rules
        .into_iter()
        .partition(|rule| rule.resources == Some(vec!["deployments".to_owned()]));
    grant(&scene, "others", others).await;
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene
        .eventually("the reason", async || {
            let why = running.informers.not_synced()?.to_string();
            let told = why.contains("deployments.apps is forbidden") && why.contains("403");
            (told && !why.contains("foos")).then_some(())
        })
        .await;
    assert!(scene.deployment("web").await.is_none());

    grant(&scene, "deployments", deployments).await;
    scene.available("a", 1).await;
    running.stop().await;
}

/// The events that `kubectl describe` shows of a Foo: type, reason, source, message.
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
    // A heading and a line below it.
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

async fn describes_what_the_original_does<W: World>(scene: &Scene<W>, arguments: &[&Path]) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = scene.run();
    scene.available("a", 2).await;
    let synced = "Normal Synced: Foo synced successfully";
    scene.told("a", &[synced]).await;
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
async fn kubectl_describes_the_events_of_a_foo() {
    let kubeconfig = real_tests::kubeconfig();
    let arguments = [Path::new("--kubeconfig"), &kubeconfig];
    describes_what_the_original_does(&scene().await, &arguments).await;
}

/// Proves sample/synced-event.
#[tokio::test]
async fn kubectl_describes_the_same_events_on_the_embedded_cluster() {
    let scene = Scene::new(OverTcp::new().await).await;
    let url = scene.world.url();
    let arguments = ["--kubeconfig", "/dev/null", "--server", &url].map(Path::new);
    describes_what_the_original_does(&scene, &arguments).await;
}
