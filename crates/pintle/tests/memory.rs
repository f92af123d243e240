//! Measures memory over a thousand terms, in a separate test binary because its allocator counts
//! every allocation.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    client::Body,
};
use peak_alloc::PeakAlloc;
use pintle::{
    clock::{Clock, Rng},
    controller::{Action, ApplyError, Context, Controller},
    events::EventType,
    informer::{Namespaces, WatchInput},
    manager::{Component, Environment, Manager},
};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Counts a request as open until its response is dropped.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a client whose open requests are counted.
fn counted(server: &ApiServer, count: &Arc<AtomicUsize>) -> Client {
    let (service, count) = (server.service(), Arc::clone(count));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (open, answer) = (Open::new(&count), service.clone().oneshot(request));
        async move {
            let answer = answer.await?;
            Ok::<_, tower::BoxError>(answer.map(|body| {
                let frames = BodyStream::new(body).map(move |frame| {
                    let _counted = &open;
                    frame
                });
                StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
            }))
        }
    });
    Client::new(service, "default")
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

/// Maintains a child for each account and records an event.
async fn reconcile(account: Arc<ServiceAccount>, cx: Context) -> Result<Action, ApplyError> {
    let child = ConfigMap {
        metadata: named(account.metadata.name.as_deref().unwrap_or_default()),
        ..ConfigMap::default()
    };
    cx.apply_owned(child).await?;
    cx.event(EventType::Normal, "Reconciled", "as it should be");
    Ok(Action::requeue_after(Duration::from_secs(3600)))
}

async fn lease(server: &ApiServer, spec: Value) {
    let leases = Api::<Lease>::default_namespaced(server.client());
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    leases.patch("operator", &params, &patch).await.unwrap();
}

/// The resources that a process holds.
#[derive(Debug)]
struct Level {
    bytes: usize,
    tasks: usize,
    requests: usize,
}

/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn thousand_terms_do_not_grow_memory() {
    let (server, open) = (ApiServer::builder().build(), Arc::default());
    let accounts = Api::<ServiceAccount>::default_namespaced(server.client());
    for number in 0..3 {
        let account = ServiceAccount {
            metadata: named(&format!("account-{number}")),
            ..ServiceAccount::default()
        };
        let params = PostParams::default();
        accounts.create(&params, &account).await.unwrap();
    }
    let mut manager = Manager::builder("operator", counted(&server, &open))
        .clock(Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()))
        .rng(Rng::with_seed(1))
        .leader_election_with(|election| election.identity("first"))
        .build();
    let tenants = Namespaces::new(["default"]);
    let input = WatchInput::<ServiceAccount>::new().follow_namespaces(&tenants);
    let controller = Controller::of("accounts", input, manager.informers())
        .owns::<ConfigMap>()
        .wakes_every(Duration::from_secs(7))
        .workers(2);
    manager.add(controller.build(reconcile));
    manager.add(Component::task("task", |cx: Environment| async move {
        cx.shutdown().cancelled().await;
        Ok::<_, std::convert::Infallible>(())
    }));
    let stop = CancellationToken::new();
    let token = stop.clone();
    let running = tokio::spawn(async move { manager.run_until(&token).await });
    sleep(Duration::from_secs(1)).await;

    let mut levels = Vec::new();
    for term in 1..=1000 {
        let stolen = json!({"holderIdentity": "thief", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z"});
        lease(&server, stolen).await;
        sleep(Duration::from_secs(5)).await; // noticed by the next renewal
        lease(&server, json!({"holderIdentity": ""})).await;
        sleep(Duration::from_secs(5)).await;
        // Otherwise the server's event history, which lets watches resume, would count as growth.
        server.compact();
        if term % 100 == 0 {
            levels.push(Level {
                bytes: ALLOCATOR.current_usage(),
                tasks: Handle::current().metrics().num_alive_tasks(),
                requests: open.load(Ordering::Relaxed),
            });
        }
    }
    stop.cancel();
    assert_eq!(running.await.unwrap().unwrap().left, []);
    let leases = Api::<Lease>::default_namespaced(server.client());
    let transitions = leases.get("operator").await.unwrap().spec.unwrap();
    assert!(
        transitions.lease_transitions >= Some(1000),
        "{transitions:?}"
    );

    let (first, last) = (&levels[0], &levels[levels.len() - 1]);
    assert_eq!(first.tasks, last.tasks, "{levels:#?}");
    assert_eq!(first.requests, last.requests, "{levels:#?}");
    // Buffers vary by a few kilobytes; a leak of 20 bytes per term would show.
    assert!(last.bytes < first.bytes + 16 * 1024, "{levels:#?}");
}
