//! What a user of the sample sees, on the embedded cluster under virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt;
use serde_json::json;
use support::{Crd, World};
use tokio::time::sleep;

/// Proves C-5, C-7, C-10, C-11, C-13, C-14.
#[tokio::test(start_paused = true)]
async fn a_foo_becomes_a_deployment_with_status_and_event() {
    let world = World::new(Crd::Today).await;
    world
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = world.run();
    world.settle().await;

    let deployment = world.deployment("web").await.expect("made");
    assert_eq!(
        deployment.spec.as_ref().and_then(|spec| spec.replicas),
        Some(2)
    );
    assert_eq!(deployment.owner_references()[0].name, "a");
    assert_eq!(world.anonymous_writes(), 0);
    let status = world.foo("a").await.status.expect("reported");
    assert_eq!(status.available_replicas, 2);
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(
        (
            status.conditions[0].type_.as_str(),
            status.conditions[0].status.as_str()
        ),
        ("Ready", "True")
    );
    assert_eq!(
        world.events_of("a").await,
        ["Normal Synced: Foo synced successfully"]
    );
    running.stop().await;
}

/// Proves C-9.
#[tokio::test(start_paused = true)]
async fn scaling_a_foo_scales_its_deployment_and_leaves_the_labels_of_others() {
    let world = World::new(Crd::Today).await;
    world
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = world.run();
    world.settle().await;
    world
        .patch_deployment("web", json!({"metadata": {"labels": {"team": "shop"}}}))
        .await;
    world.patch_foo("a", json!({"spec": {"replicas": 3}})).await;
    world.settle().await;
    let deployment = world.deployment("web").await.expect("kept");
    assert_eq!(
        deployment.spec.as_ref().and_then(|spec| spec.replicas),
        Some(3)
    );
    assert_eq!(
        deployment.labels().get("team").map(String::as_str),
        Some("shop")
    );
    assert_eq!(
        world
            .foo("a")
            .await
            .status
            .map(|status| status.available_replicas),
        Some(3)
    );

    // Somebody scales the Deployment: the Foo wins.
    world
        .patch_deployment("web", json!({"spec": {"replicas": 5}}))
        .await;
    world.settle().await;
    let deployment = world.deployment("web").await.expect("kept");
    assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(3));
    running.stop().await;
}

/// Proves C-9.
#[tokio::test(start_paused = true)]
async fn a_foo_without_replicas_leaves_the_number_to_others() {
    let world = World::new(Crd::Today).await;
    world.apply("a", json!({"deploymentName": "web"})).await;
    let running = world.run();
    world.settle().await;
    let deployment = world.deployment("web").await.expect("made");
    assert_eq!(
        deployment.spec.and_then(|spec| spec.replicas),
        Some(1),
        "the server's default"
    );
    world
        .patch_deployment("web", json!({"spec": {"replicas": 4}}))
        .await;
    world.settle().await;
    let deployment = world.deployment("web").await.expect("kept");
    assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(4));
    running.stop().await;
}

/// Proves C-7.
#[tokio::test(start_paused = true)]
async fn a_foo_that_names_no_deployment_is_told_so_once() {
    let world = World::new(Crd::Today).await;
    world.apply("a", json!({"replicas": 1})).await;
    let running = world.run();
    sleep(Duration::from_secs(600)).await;
    let status = world.foo("a").await.status.expect("reported");
    assert_eq!(status.conditions[0].reason, "MissingDeploymentName");
    let told = world.events_of("a").await;
    assert_eq!(
        told,
        ["Warning MissingDeploymentName: spec.deploymentName must name the Deployment to keep"]
    );
    assert_eq!(world.event_writes(), 1, "told once");
    world
        .patch_foo("a", json!({"spec": {"deploymentName": "web"}}))
        .await;
    world.settle().await;
    assert_eq!(
        world.foo("a").await.status.expect("reported").conditions[0].status,
        "True"
    );
    running.stop().await;
}

/// Proves C-8.
#[tokio::test(start_paused = true)]
async fn a_deployment_of_somebody_else_is_left_alone_until_it_goes() {
    let world = World::new(Crd::Today).await;
    world.make_deployment("web").await;
    let before = world.deployment("web").await.expect("there");
    world
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = world.run();
    sleep(Duration::from_secs(600)).await;
    let after = world.deployment("web").await.expect("there");
    assert_eq!(before.spec, after.spec);
    let told = world.events_of("a").await;
    assert_eq!(
        told,
        [r#"Warning ErrResourceExists: Resource "web" already exists and is not managed by Foo"#]
    );
    assert_eq!(
        world.foo("a").await.status.expect("reported").conditions[0].reason,
        "ErrResourceExists"
    );

    assert_eq!(
        world.event_writes(),
        1,
        "told once, however often it is retried"
    );

    world.delete::<Deployment>("web").await;
    sleep(Duration::from_secs(1200)).await;
    assert_eq!(
        world
            .deployment("web")
            .await
            .expect("made")
            .owner_references()[0]
            .name,
        "a"
    );
    running.stop().await;
}

/// Proves C-5, C-14.
#[tokio::test(start_paused = true)]
async fn a_deleted_deployment_comes_back_and_goes_with_its_foo() {
    let world = World::new(Crd::Today).await;
    world
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = world.run();
    world.settle().await;
    let first = world.deployment("web").await.expect("made").uid();
    world.delete::<Deployment>("web").await;
    world.settle().await;
    let second = world.deployment("web").await.expect("made again").uid();
    assert_ne!(first, second);

    world.delete::<sample_controller::foo::Foo>("a").await;
    world.settle().await;
    assert!(world.deployment("web").await.is_none());
    assert!(world.list::<Pod>().await.is_empty());
    running.stop().await;
}

/// Proves C-15.
#[tokio::test(start_paused = true)]
async fn a_foo_keeps_only_the_deployment_it_names() {
    let world = World::new(Crd::Today).await;
    world
        .apply("a", json!({"deploymentName": "blue", "replicas": 1}))
        .await;
    let running = world.run();
    world.settle().await;
    world
        .patch_foo("a", json!({"spec": {"deploymentName": "green"}}))
        .await;
    world.settle().await;
    assert!(world.deployment("green").await.is_some());
    assert!(world.deployment("blue").await.is_none());
    running.stop().await;
}

/// Proves C-6.
#[tokio::test(start_paused = true)]
async fn what_happened_while_the_controller_was_down_is_made_good() {
    let world = World::new(Crd::Today).await;
    world
        .apply("scaled", json!({"deploymentName": "scaled", "replicas": 1}))
        .await;
    world
        .apply("robbed", json!({"deploymentName": "robbed", "replicas": 1}))
        .await;
    world.run_for_a_while().await;
    world
        .patch_foo("scaled", json!({"spec": {"replicas": 4}}))
        .await;
    world.delete::<Deployment>("robbed").await;
    world
        .apply("new", json!({"deploymentName": "new", "replicas": 2}))
        .await;
    world.settle().await;
    world.run_for_a_while().await;
    for (name, replicas) in [("scaled", 4), ("robbed", 1), ("new", 2)] {
        let deployment = world.deployment(name).await.expect(name);
        assert_eq!(
            deployment.spec.and_then(|spec| spec.replicas),
            Some(replicas),
            "{name}"
        );
    }
}

/// Proves C-10, C-12.
#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_however_often_it_resyncs() {
    const HOURS: [(Crd, u64); 4] = [
        (Crd::Today, 6),
        (Crd::Classic, 1),
        (Crd::Original, 1),
        (Crd::OriginalWithStatus, 1),
    ];
    for (crd, hours) in HOURS {
        let world = World::new(crd).await;
        world
            .apply("a", json!({"deploymentName": "web", "replicas": 2}))
            .await;
        let running = world.run();
        world.settle().await;
        let before = world.writes();
        sleep(Duration::from_secs(hours * 3600)).await;
        assert_eq!(world.writes(), before, "{crd:?}");
        let status = world.foo("a").await.status.expect("reported");
        assert_eq!(status.available_replicas, 2, "{crd:?}");
        running.stop().await;
    }
}

/// Proves PS-1.
#[tokio::test(start_paused = true)]
async fn two_controllers_at_once_end_in_the_same_state_and_rest() {
    let world = World::new(Crd::Today).await;
    world
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let (one, two) = (world.run(), world.run());
    world.settle().await;
    world.patch_foo("a", json!({"spec": {"replicas": 3}})).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(world.list::<Deployment>().await.len(), 1);
    assert_eq!(
        world
            .foo("a")
            .await
            .status
            .map(|status| status.available_replicas),
        Some(3)
    );
    let before = world.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes(), before);
    one.stop().await;
    two.stop().await;
}

/// Proves C-12.
#[tokio::test(start_paused = true)]
async fn failing_and_conflicting_writes_only_delay() {
    let world = World::new(Crd::Today).await;
    world.fail_writes();
    for number in 0..5 {
        let name = format!("foo-{number}");
        world
            .apply(&name, json!({"deploymentName": name, "replicas": 1}))
            .await;
    }
    let running = world.run();
    sleep(Duration::from_secs(300)).await;
    for number in 0..5 {
        let name = format!("foo-{number}");
        world
            .patch_foo(&name, json!({"spec": {"replicas": 2}}))
            .await;
    }
    sleep(Duration::from_secs(1200)).await;
    assert!(
        world.failed() > 5,
        "the faults really happened: {}",
        world.failed()
    );
    for number in 0..5 {
        let foo = world.foo(&format!("foo-{number}")).await;
        assert_eq!(foo.status.map(|status| status.available_replicas), Some(2));
    }
    running.stop().await;
}
