//! What a Foo's status says when the server refuses something: a Foo that is gone, a definition
//! that changes, a Deployment that cannot be.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use pintle::{clock::Clock, conditions::find_condition};
use sample_controller::foo::{Foo, FooStatus};
use sample_scenarios::{Crd, InProcess, Pace, Right, Scene, World};
use serde_json::json;

/// A world in which Foo `a` is deleted just before its status would be written.
struct Deleting(InProcess);

impl World for Deleting {
    fn client(&self) -> Client {
        self.0.client()
    }

    fn controller_client(&self) -> Client {
        let inner = self.0.client();
        let deleting = tower::service_fn(move |request: Request<Body>| {
            let inner = inner.clone();
            async move {
                if request.uri().path().ends_with("/foos/a/status") {
                    let foos = Api::<Foo>::namespaced(inner.clone(), "default");
                    let _ = foos.delete("a", &DeleteParams::background()).await;
                }
                inner.send(request).await
            }
        });
        Client::new(deleting, "default")
    }

    fn namespace(&self) -> String {
        self.0.namespace()
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }
}

fn patches_foos(rights: impl IntoIterator<Item = Right>) -> bool {
    let mut rights = rights.into_iter();
    rights.any(|right| right.verb == "patch" && right.resource == "foos")
}

/// Proves sample/status-subresource.
#[tokio::test(start_paused = true)]
async fn foo_deleted_in_mid_sync_leaves_other_statuses_alone() {
    let scene = Scene::new(Deleting(InProcess::new(Crd::Today).await)).await;
    let running = scene.run();
    scene
        .apply("a", json!({"deploymentName": "gone", "replicas": 1}))
        .await;
    scene
        .eventually("the Foo to be gone", async || {
            let foo = scene.api::<Foo>().get_opt("a").await.unwrap();
            foo.is_none().then_some(())
        })
        .await;
    scene
        .apply("b", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    scene.available("b", 1).await;
    assert!(
        !patches_foos(scene.gate.rights()),
        "the role without the classic CRD allows no patch of foos"
    );
    scene.rests().await;
    running.stop().await;
}

/// Replaces the definition of Foo.
async fn redefine(client: &Client, crd: Crd) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let versions = crd.definition().spec.versions;
    let patch = Patch::Merge(json!({ "spec": { "versions": versions } }));
    definitions
        .patch(
            "foos.samplecontroller.k8s.io",
            &PatchParams::default(),
            &patch,
        )
        .await
        .unwrap();
}

/// Proves sample/status-subresource.
#[tokio::test(start_paused = true)]
async fn status_follows_a_definition_that_changes() {
    for (before, after) in [
        (Crd::Classic, Crd::Today),
        (Crd::Today, Crd::Classic),
        (Crd::Original, Crd::OriginalWithStatus),
        (Crd::Original, Crd::Today),
    ] {
        let scene = Scene::new(InProcess::new(before).await).await;
        let running = scene.run();
        scene
            .apply("a", json!({"deploymentName": "web", "replicas": 1}))
            .await;
        scene.available("a", 1).await;
        redefine(&scene.world.client(), after).await;
        scene
            .patch::<Foo>("a", json!({"spec": {"replicas": 3}}))
            .await;
        scene.available("a", 3).await;
        scene.rests().await;
        running.stop().await;
    }
}

/// Counts the attempts to create a Deployment.
struct Counting(InProcess, Arc<AtomicUsize>);

impl World for Counting {
    fn client(&self) -> Client {
        self.0.client()
    }

    fn controller_client(&self) -> Client {
        let (inner, creates) = (self.0.client(), Arc::clone(&self.1));
        let counting = tower::service_fn(move |request: Request<Body>| {
            let created = request.uri().path().ends_with("/deployments");
            if request.method() == Method::POST && created {
                creates.fetch_add(1, Ordering::Relaxed);
            }
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        Client::new(counting, "default")
    }

    fn namespace(&self) -> String {
        self.0.namespace()
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }
}

fn is_refused(status: &FooStatus) -> bool {
    find_condition(&status.conditions, "Ready")
        .is_some_and(|ready| ready.status == "False" && ready.reason == "DeploymentRefused")
}

/// Proves sample/refused-deployment.
#[tokio::test(start_paused = true)]
async fn refused_deployment_is_reported_and_retried_slowly() {
    let creates = Arc::new(AtomicUsize::new(0));
    let world = Counting(InProcess::new(Crd::Today).await, Arc::clone(&creates));
    let scene = Scene::new(world).await;
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;

    let refused = json!({"spec": {"deploymentName": "Not A Name"}});
    scene.patch::<Foo>("a", refused).await;
    let status = scene.status("a", "refused", is_refused).await;
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    assert_eq!(status.observed_generation, foo.metadata.generation);
    let ready = find_condition(&status.conditions, "Ready").unwrap();
    assert_eq!(ready.observed_generation, foo.metadata.generation);
    assert!(
        ready.message.contains(r#"Invalid value: "Not A Name""#),
        "{}",
        ready.message
    );
    assert!(!ready.message.contains("Status {"), "{}", ready.message);
    let warned = format!("Warning DeploymentRefused: {}", ready.message);
    let synced = "Normal Synced: Foo synced successfully";
    scene.told("a", &[synced, &warned]).await;
    let before = creates.load(Ordering::Relaxed);

    // A resync comes every half minute; few of them ask the same question again.
    tokio::time::sleep(Duration::from_mins(30)).await;
    let asked = creates.load(Ordering::Relaxed) - before;
    assert!(
        (2..=6).contains(&asked),
        "asked {asked} times in half an hour"
    );
    scene.told("a", &[synced, &warned]).await;
    let events = scene.list::<Event>().await;
    let refused = |event: &&Event| event.reason.as_deref() == Some("DeploymentRefused");
    let event = events.iter().find(refused).unwrap();
    assert!(event.series.is_none(), "written once: {event:?}");
    assert!(scene.deployment("web").await.is_some(), "the old one stays");

    let corrected = json!({"spec": {"deploymentName": "green"}});
    scene.patch::<Foo>("a", corrected).await;
    let ready = scene.available("a", 1).await;
    scene.is_ready_because(&ready, "Available");
    scene
        .eventually("the former Deployment to go", async || {
            let left = scene.list::<Deployment>().await;
            (left.len() == 1).then_some(())
        })
        .await;
    running.stop().await;
}

/// A world in which the first status that says `DeploymentRefused` cannot be written.
struct Unwritable(InProcess, Arc<AtomicBool>);

impl World for Unwritable {
    fn client(&self) -> Client {
        self.0.client()
    }

    fn controller_client(&self) -> Client {
        let (inner, failed) = (self.0.client(), Arc::clone(&self.1));
        let failing = tower::service_fn(move |request: Request<Body>| {
            let (inner, failed) = (inner.clone(), Arc::clone(&failed));
            async move {
                if !request.uri().path().ends_with("/foos/a/status") {
                    return inner.send(request).await;
                }
                let (head, body) = request.into_parts();
                let sent = body.collect_bytes().await.unwrap();
                let refused = String::from_utf8_lossy(&sent).contains("DeploymentRefused");
                if !refused || failed.swap(true, Ordering::Relaxed) {
                    return inner.send(Request::from_parts(head, sent.into())).await;
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                    "reason": "InternalError", "message": "etcdserver: request timed out",
                });
                let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                Ok(answer)
            }
        });
        Client::new(failing, "default")
    }

    fn namespace(&self) -> String {
        self.0.namespace()
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }
}

/// Proves sample/refused-deployment.
#[tokio::test(start_paused = true)]
async fn refusal_is_reported_after_a_failed_status_write() {
    let failed = Arc::new(AtomicBool::new(false));
    let world = Unwritable(InProcess::new(Crd::Today).await, Arc::clone(&failed));
    let scene = Scene::new(world).await;
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;

    let refused = json!({"spec": {"deploymentName": "Not A Name"}});
    scene.patch::<Foo>("a", refused).await;
    // Less than the 30 s after which the Deployment is created again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(failed.load(Ordering::Relaxed), "no status write failed");
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    let status = foo.status.unwrap();
    assert!(is_refused(&status), "{status:?}");
    running.stop().await;
}
