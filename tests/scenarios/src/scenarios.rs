//! The scenarios. Each runs one or more controllers on a fresh [`Scene`].

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt;
use sample_controller::foo::Foo;
use serde_json::json;

use crate::{Scene, World};

const SYNCED: &str = "Normal Synced: Foo synced successfully";

/// A Foo gets a Deployment, a status and an event; nothing is written after that.
pub async fn create<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = scene.run();
    let deployment = scene.deployment_with("web", 2).await;
    assert_eq!(deployment.owner_references()[0].name, "a");
    let status = scene.available("a", 2).await;
    scene.assert_ready_reason(&status, "Available");
    scene.has_events("a", &[SYNCED]).await;
    scene.goes_idle().await;
    scene.has_events("a", &[SYNCED]).await;
    assert_eq!(
        scene.gate.anonymous_writes(),
        0,
        "every write names its field manager"
    );
    running.stop().await;
}

/// The Deployment follows the replicas of its Foo and keeps the labels others set.
pub async fn scale<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    let label = json!({"metadata": {"labels": {"team": "shop"}}});
    scene.patch::<Deployment>("web", label).await;
    scene
        .patch::<Foo>("a", json!({"spec": {"replicas": 3}}))
        .await;
    let deployment = scene.deployment_with("web", 3).await;
    assert_eq!(deployment.labels()["team"], "shop");
    scene.available("a", 3).await;

    // The Foo overrides a user who scales the Deployment.
    let five = json!({"spec": {"replicas": 5}});
    scene.patch::<Deployment>("web", five).await;
    scene.deployment_with("web", 3).await;
    scene.available("a", 3).await;
    running.stop().await;
}

/// A Foo without replicas leaves the number to others.
pub async fn no_replicas<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web"}))
        .await;
    let running = scene.run();
    scene.deployment_with("web", 1).await; // Defaulted by the API server.
    scene.available("a", 1).await;
    let four = json!({"spec": {"replicas": 4}});
    scene.patch::<Deployment>("web", four).await;
    scene.available("a", 4).await;
    running.stop().await;
}

/// A Foo without a Deployment name gets a condition and one warning.
pub async fn missing_name<W: World>(scene: &Scene<W>) {
    scene.create_foo("a", json!({"replicas": 1})).await;
    let running = scene.run();
    let warning =
        "Warning MissingDeploymentName: spec.deploymentName must name the Deployment to manage";
    scene.has_events("a", &[warning]).await;
    scene.goes_idle().await;
    scene.has_events("a", &[warning]).await;
    assert_eq!(scene.gate.event_writes(), 1, "one warning");
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    scene.assert_ready_reason(&foo.status.expect("a status"), "MissingDeploymentName");
    scene
        .patch::<Foo>("a", json!({"spec": {"deploymentName": "web"}}))
        .await;
    scene.available("a", 1).await;
    running.stop().await;
}

/// A Deployment that the Foo does not control is left alone. Once it is gone, the Foo gets its own.
pub async fn foreign_deployment<W: World>(scene: &Scene<W>) {
    scene.create_deployment("web").await;
    let before = scene.deployment("web").await.expect("a Deployment");
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = scene.run();
    let warning =
        r#"Warning ErrResourceExists: Resource "web" already exists and is not managed by Foo"#;
    scene.has_events("a", &[warning]).await;
    scene.goes_idle().await;
    let after = scene.deployment("web").await.expect("a Deployment");
    assert_eq!(before.spec, after.spec);
    scene.has_events("a", &[warning]).await;
    assert_eq!(
        scene.gate.event_writes(),
        1,
        "retries do not repeat the warning"
    );
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    scene.assert_ready_reason(&foo.status.expect("a status"), "ErrResourceExists");

    scene.delete::<Deployment>("web").await;
    let deployment = scene.deployment_with("web", 2).await;
    assert_eq!(deployment.owner_references()[0].name, "a");
    running.stop().await;
}

/// A deleted Deployment is created again.
pub async fn deleted_deployment<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    let first = scene.deployment("web").await.expect("a Deployment").uid();
    scene.delete::<Deployment>("web").await;
    scene
        .eventually("another Deployment", async || {
            let second = scene.deployment("web").await?.uid();
            (second != first).then_some(())
        })
        .await;
    scene.available("a", 1).await;
    running.stop().await;
}

/// Garbage collection deletes the Deployment and Pods of a deleted Foo.
pub async fn deleted_foo<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    scene.delete::<Foo>("a").await;
    scene
        .eventually("everything to be gone", async || {
            let deployment = scene.deployment("web").await;
            let pods = scene.list::<Pod>().await;
            (deployment.is_none() && pods.is_empty()).then_some(())
        })
        .await;
    running.stop().await;
}

/// A Foo that names another Deployment gets that one, and the old one is deleted.
pub async fn renamed_deployment<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "blue", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    let green = json!({"spec": {"deploymentName": "green"}});
    scene.patch::<Foo>("a", green).await;
    scene.deployment_with("green", 1).await;
    scene
        .eventually("the old Deployment to be deleted", async || {
            scene.deployment("blue").await.is_none().then_some(())
        })
        .await;
    running.stop().await;
}

/// The controller catches up on changes made while it was down.
pub async fn controller_down<W: World>(scene: &Scene<W>) {
    for name in ["scaled", "deleted"] {
        let spec = json!({"deploymentName": name, "replicas": 1});
        scene.create_foo(name, spec).await;
    }
    let running = scene.run();
    scene.available("scaled", 1).await;
    scene.available("deleted", 1).await;
    running.stop().await;

    let four = json!({"spec": {"replicas": 4}});
    scene.patch::<Foo>("scaled", four).await;
    scene.delete::<Deployment>("deleted").await;
    scene
        .create_foo("new", json!({"deploymentName": "new", "replicas": 2}))
        .await;
    scene.wait().await;
    assert!(
        scene.deployment("new").await.is_none(),
        "no controller is running"
    );

    let running = scene.run();
    for (name, replicas) in [("scaled", 4), ("deleted", 1), ("new", 2)] {
        scene.deployment_with(name, replicas).await;
        scene.available(name, replicas).await;
    }
    running.stop().await;
}

/// Conflicts on every other write and internal errors on every tenth request only cause delays.
pub async fn faults<W: World>(scene: &Scene<W>) {
    const NAMES: [&str; 4] = ["one", "two", "three", "four"];
    scene.gate.inject_faults();
    for name in NAMES {
        let spec = json!({"deploymentName": name, "replicas": 1});
        scene.create_foo(name, spec).await;
    }
    let running = scene.run();
    for name in NAMES {
        scene.available(name, 1).await;
    }
    for name in NAMES {
        let two = json!({"spec": {"replicas": 2}});
        scene.patch::<Foo>(name, two).await;
    }
    for name in NAMES {
        scene.available(name, 2).await;
    }
    let (conflicts, errors) = scene.gate.faults();
    // At least one creation, one patch and one status write per Foo.
    assert!(conflicts >= 3 * NAMES.len(), "{conflicts} conflicts");
    assert!(errors >= 2, "{errors} errors");
    running.stop().await;
}

/// Two controllers on the same Foo converge and go idle.
pub async fn two_controllers<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let (one, two) = (scene.run(), scene.run());
    scene.available("a", 2).await;
    scene
        .patch::<Foo>("a", json!({"spec": {"replicas": 3}}))
        .await;
    scene.available("a", 3).await;
    scene.goes_idle().await;
    assert_eq!(scene.list::<Deployment>().await.len(), 1);
    scene.available("a", 3).await;
    one.stop().await;
    two.stop().await;
}

/// The controller continues after an API server restart.
pub async fn api_server_restarted<W: World>(scene: &Scene<W>) {
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    scene.world.restart_api_server().await;
    scene
        .patch::<Foo>("a", json!({"spec": {"replicas": 2}}))
        .await;
    scene.available("a", 2).await;
    scene.delete::<Deployment>("web").await;
    scene.available("a", 2).await;
    scene.deployment_with("web", 2).await;
    running.stop().await;
}
