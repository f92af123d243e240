//! The scenarios: given, when, then, in the words of a user.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt;
use sample_controller::foo::Foo;
use serde_json::json;

use crate::{Scene, World};

const SYNCED: &str = "Normal Synced: Foo synced successfully";

/// A Foo becomes a Deployment, with status and event, and then nothing is written any more.
pub async fn create<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = scene.run();
    let deployment = scene.deployment_with("web", 2).await;
    assert_eq!(deployment.owner_references()[0].name, "a");
    let status = scene.available("a", 2).await;
    scene.is_ready_because(&status, "Available");
    scene.told("a", &[SYNCED]).await;
    scene.rests().await;
    scene.told("a", &[SYNCED]).await;
    assert_eq!(scene.gate.anonymous_writes(), 0, "every write is signed");
    running.stop().await;
}

/// The Deployment follows its Foo, whoever scales it, and keeps what others wrote on it.
pub async fn scale<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
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

    // Somebody scales the Deployment: the Foo wins.
    let five = json!({"spec": {"replicas": 5}});
    scene.patch::<Deployment>("web", five).await;
    scene.deployment_with("web", 3).await;
    scene.available("a", 3).await;
    running.stop().await;
}

/// A Foo that names no number leaves it to others.
pub async fn no_replicas<W: World>(scene: &Scene<W>) {
    scene.apply("a", json!({"deploymentName": "web"})).await;
    let running = scene.run();
    scene.deployment_with("web", 1).await; // The server's default.
    scene.available("a", 1).await;
    let four = json!({"spec": {"replicas": 4}});
    scene.patch::<Deployment>("web", four).await;
    scene.available("a", 4).await;
    running.stop().await;
}

/// A Foo that names no Deployment is told so, once.
pub async fn missing_name<W: World>(scene: &Scene<W>) {
    scene.apply("a", json!({"replicas": 1})).await;
    let running = scene.run();
    let told =
        "Warning MissingDeploymentName: spec.deploymentName must name the Deployment to keep";
    scene.told("a", &[told]).await;
    scene.rests().await;
    scene.told("a", &[told]).await;
    assert_eq!(scene.gate.event_writes(), 1, "told once");
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    scene.is_ready_because(&foo.status.expect("reported"), "MissingDeploymentName");
    scene
        .patch::<Foo>("a", json!({"spec": {"deploymentName": "web"}}))
        .await;
    scene.available("a", 1).await;
    running.stop().await;
}

/// A Deployment of somebody else is left alone until it goes.
pub async fn foreign_deployment<W: World>(scene: &Scene<W>) {
    scene.make_deployment("web").await;
    let before = scene.deployment("web").await.expect("there");
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let running = scene.run();
    let told =
        r#"Warning ErrResourceExists: Resource "web" already exists and is not managed by Foo"#;
    scene.told("a", &[told]).await;
    scene.rests().await;
    let after = scene.deployment("web").await.expect("there");
    assert_eq!(before.spec, after.spec);
    scene.told("a", &[told]).await;
    assert_eq!(
        scene.gate.event_writes(),
        1,
        "told once, however often it is retried"
    );
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    scene.is_ready_because(&foo.status.expect("reported"), "ErrResourceExists");

    scene.delete::<Deployment>("web").await;
    let deployment = scene.deployment_with("web", 2).await;
    assert_eq!(deployment.owner_references()[0].name, "a");
    running.stop().await;
}

/// A deleted Deployment comes back.
pub async fn deleted_deployment<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    let first = scene.deployment("web").await.expect("made").uid();
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

/// When a Foo is deleted, all that was made for it goes, by garbage collection.
pub async fn deleted_foo<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
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

/// A Foo keeps exactly the Deployment it names.
pub async fn renamed_deployment<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "blue", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;
    let green = json!({"spec": {"deploymentName": "green"}});
    scene.patch::<Foo>("a", green).await;
    scene.deployment_with("green", 1).await;
    scene
        .eventually("the former Deployment to go", async || {
            scene.deployment("blue").await.is_none().then_some(())
        })
        .await;
    running.stop().await;
}

/// What happened while the controller was down is made good.
pub async fn controller_down<W: World>(scene: &Scene<W>) {
    for name in ["scaled", "robbed"] {
        let spec = json!({"deploymentName": name, "replicas": 1});
        scene.apply(name, spec).await;
    }
    let running = scene.run();
    scene.available("scaled", 1).await;
    scene.available("robbed", 1).await;
    running.stop().await;

    let four = json!({"spec": {"replicas": 4}});
    scene.patch::<Foo>("scaled", four).await;
    scene.delete::<Deployment>("robbed").await;
    scene
        .apply("new", json!({"deploymentName": "new", "replicas": 2}))
        .await;
    scene.rest().await;
    assert!(scene.deployment("new").await.is_none(), "nobody works");

    let running = scene.run();
    for (name, replicas) in [("scaled", 4), ("robbed", 1), ("new", 2)] {
        scene.deployment_with(name, replicas).await;
        scene.available(name, replicas).await;
    }
    running.stop().await;
}

/// Conflicts on every write, and internal errors on every tenth call, only delay.
pub async fn faults<W: World>(scene: &Scene<W>) {
    const NAMES: [&str; 4] = ["one", "two", "three", "four"];
    scene.gate.fail();
    for name in NAMES {
        let spec = json!({"deploymentName": name, "replicas": 1});
        scene.apply(name, spec).await;
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
    let (conflicts, errors) = scene.gate.failed();
    // A creation, a scaling and a status of each, at the least.
    assert!(conflicts >= 3 * NAMES.len(), "{conflicts} conflicts");
    assert!(errors >= 2, "{errors} errors");
    running.stop().await;
}

/// Two controllers at once do no harm: they end in the same state, and rest.
pub async fn two_controllers<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 2}))
        .await;
    let (one, two) = (scene.run(), scene.run());
    scene.available("a", 2).await;
    scene
        .patch::<Foo>("a", json!({"spec": {"replicas": 3}}))
        .await;
    scene.available("a", 3).await;
    scene.rests().await;
    assert_eq!(scene.list::<Deployment>().await.len(), 1);
    scene.available("a", 3).await;
    one.stop().await;
    two.stop().await;
}

/// The API server goes away and comes back: the controller goes on where it was.
pub async fn api_server_restarted<W: World>(scene: &Scene<W>) {
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
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
