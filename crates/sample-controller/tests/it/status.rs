//! Syncs under difficulties: a Foo deleted meanwhile, a Deployment the server rejects, a status
//! that cannot be written, a cache that lags.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event};
use kube::{Api, Client, api::DeleteParams, client::Body};
use parking_lot::Mutex;
use pintle::conditions::find_condition;
use sample_controller::foo::{Foo, FooStatus};
use sample_scenarios::{Crd, InProcess, Scene, failure};
use serde_json::json;
use tokio::time::sleep;
use tower::ServiceExt as _;

fn writes_status_of_a(request: &Request<Body>) -> bool {
    request.uri().path().ends_with("/foos/a/status")
}

/// Proves sample/gone-foo.
#[tokio::test(start_paused = true)]
async fn foo_deleted_during_a_sync_does_not_affect_others() {
    let world = InProcess::new(Crd::Own).await;
    let world = world.intercept(|client, request| async move {
        if writes_status_of_a(&request) {
            let foos = Api::<Foo>::namespaced(client.clone(), "default");
            let _ = foos.delete("a", &DeleteParams::background()).await;
        }
        client.send(request).await
    });
    let scene = Scene::new(world).await;
    let running = scene.run();
    scene
        .create_foo("a", json!({"deploymentName": "gone", "replicas": 1}))
        .await;
    scene
        .eventually("the Foo to be gone", async || {
            let foo = scene.api::<Foo>().get_opt("a").await.unwrap();
            foo.is_none().then_some(())
        })
        .await;
    scene
        .create_foo("b", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    scene.available("b", 1).await;
    scene.goes_idle().await;
    running.stop().await;
}

fn is_refused(status: &FooStatus) -> bool {
    find_condition(&status.conditions, "Ready")
        .is_some_and(|ready| ready.status == "False" && ready.reason == "DeploymentRefused")
}

/// Proves sample/refused-deployment.
#[tokio::test(start_paused = true)]
async fn rejected_deployment_is_reported_once_and_retried() {
    let creates = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&creates);
    let world = InProcess::new(Crd::Own).await;
    let world = world.intercept(move |client, request| {
        let is_deployment = request.uri().path().ends_with("/deployments");
        if request.method() == Method::POST && is_deployment {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        async move { client.send(request).await }
    });
    let scene = Scene::new(world).await;
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
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
    let warning = format!("Warning DeploymentRefused: {}", ready.message);
    let synced = "Normal Synced: Foo synced successfully";
    scene.has_events("a", &[synced, &warning]).await;
    sleep(Duration::from_mins(10)).await;
    let before = creates.load(Ordering::Relaxed);

    // By now the back-off is minutes long, so most retries come from the resync every 30 s.
    sleep(Duration::from_mins(30)).await;
    let attempts = creates.load(Ordering::Relaxed) - before;
    assert!((59..=65).contains(&attempts), "{attempts} in half an hour");
    scene.has_events("a", &[synced, &warning]).await;
    let events = scene.list::<Event>().await;
    let refused = |event: &&Event| event.reason.as_deref() == Some("DeploymentRefused");
    let event = events.iter().find(refused).unwrap();
    assert!(event.series.is_none(), "written more than once: {event:?}");
    assert!(
        scene.deployment("web").await.is_some(),
        "the old Deployment stays"
    );

    let corrected = json!({"spec": {"deploymentName": "green"}});
    scene.patch::<Foo>("a", corrected).await;
    let status = scene.available("a", 1).await;
    scene.assert_ready_reason(&status, "Available");
    scene
        .eventually("the old Deployment to be deleted", async || {
            let left = scene.list::<Deployment>().await;
            (left.len() == 1).then_some(())
        })
        .await;
    running.stop().await;
}

/// Proves sample/refused-deployment.
#[tokio::test(start_paused = true)]
async fn rejection_is_reported_after_a_failed_status_write() {
    let failed = Arc::new(AtomicBool::new(false));
    let fail_once = Arc::clone(&failed);
    let world = InProcess::new(Crd::Own).await;
    let world = world.intercept(move |client, request| {
        let failed = Arc::clone(&fail_once);
        async move {
            if !writes_status_of_a(&request) {
                return client.send(request).await;
            }
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let refused = String::from_utf8_lossy(&body).contains("DeploymentRefused");
            if !refused || failed.swap(true, Ordering::Relaxed) {
                return client.send(Request::from_parts(head, body.into())).await;
            }
            let message = "etcdserver: request timed out";
            Ok(failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                message,
            ))
        }
    });
    let scene = Scene::new(world).await;
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    scene.available("a", 1).await;

    let refused = json!({"spec": {"deploymentName": "Not A Name"}});
    scene.patch::<Foo>("a", refused).await;
    // Less than the resync period.
    sleep(Duration::from_secs(5)).await;
    assert!(failed.load(Ordering::Relaxed), "no status write failed");
    let foo = scene.api::<Foo>().get("a").await.unwrap();
    let status = foo.status.unwrap();
    assert!(is_refused(&status), "{status:?}");
    running.stop().await;
}

/// Proves sample/synced-event.
#[tokio::test(start_paused = true)]
async fn lagging_cache_does_not_repeat_a_sync() {
    let patches = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&patches);
    let world = InProcess::new(Crd::Own).await;
    let service = world.service();
    let lagging = tower::service_fn(move |request: Request<Body>| {
        let (service, recorded) = (service.clone(), Arc::clone(&recorded));
        async move {
            let (parts, body) = request.into_parts();
            let lags = parts.uri.path().ends_with("/foos");
            let bytes = body.collect().await?.to_bytes();
            let request = Request::from_parts(parts, Body::from(bytes.to_vec()));
            if writes_status_of_a(&request) {
                recorded.lock().push(bytes);
            }
            let response = service.oneshot(request).await?;
            // Everything about Foos arrives late.
            Ok::<_, tower::BoxError>(response.map(|body| {
                let frames = BodyStream::new(body).then(move |frame| async move {
                    if lags {
                        sleep(Duration::from_millis(200)).await;
                    }
                    frame
                });
                StreamBody::new(frames.boxed()).boxed_unsync()
            }))
        }
    });
    let world = world.with_controller_client(Client::new(lagging, "default"));
    let scene = Scene::new(world).await;
    let running = scene.run();
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    scene.available("a", 1).await;
    scene.goes_idle().await;
    running.stop().await;
    let patches = patches.lock();
    let distinct: BTreeSet<_> = patches.iter().collect();
    assert_eq!(patches.len(), distinct.len(), "{patches:?}");
}
