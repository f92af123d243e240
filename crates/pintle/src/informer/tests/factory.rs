use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::{
    Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};

use super::*;
use crate::informer::{InformerFactory, Namespaces, WatchInput};

/// A client of a server that rejects every request.
fn refusing() -> Client {
    let service = tower::service_fn(|_request: http::Request<kube::client::Body>| async {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "this server refuses",
        });
        let body = kube::client::Body::from(status.to_string().into_bytes());
        let response = http::Response::builder().status(403).body(body);
        Ok::<_, std::convert::Infallible>(response.unwrap())
    });
    Client::new(service, "default")
}

fn factory_of(server: &Server) -> (InformerFactory, SharedInformer<Thing>) {
    let informers = InformerFactory::new(refusing());
    let things = SharedInformer::<Thing>::new(server.clone());
    informers.adopt(&WatchInput::new(), &things);
    (informers, things)
}

/// Proves factory/inputs.
#[tokio::test(start_paused = true)]
async fn equal_requests_share_an_informer() {
    let informers = InformerFactory::new(refusing());
    let plain = informers.informer::<Pod>();
    plain.index_field("node", "/spec/nodeName").unwrap();
    assert!(
        informers
            .clone()
            .informer::<Pod>()
            .index_field("node", "/spec/nodeName")
            .is_err()
    );
    let pods = WatchInput::<Pod>::new;
    // Another type, scope, cluster or reading option means another informer.
    let resource = ApiResource::erase::<Pod>(&());
    informers
        .dynamic(&resource)
        .index_field("node", "/spec/nodeName")
        .unwrap();
    informers
        .metadata(&resource)
        .index_field("node", "/spec/nodeName")
        .unwrap();
    let others = [
        pods().namespace("n"),
        pods().namespace("n").labels("a=b"),
        pods().fields("spec.nodeName=n"),
        pods().namespaces(["n", "m"]),
        pods().follow_namespaces(&Namespaces::new(["n", "m"])),
        pods().follow_namespaces(&Namespaces::new(["n", "m"])),
        pods().transform("none", |_| Ok(())),
        pods().transform("other", |_| Ok(())),
        pods().eager(),
        pods().keep_managed_fields(),
        pods().cluster("east", refusing()),
        pods().cluster("west", refusing()),
    ];
    let held: Vec<_> = others
        .iter()
        .map(|other| {
            let informer = informers.informer_from(other);
            informer.index_field("node", "/spec/nodeName").unwrap();
            informer
        })
        .collect();
    for (other, held) in others.iter().zip(&held) {
        let again = informers.informer_from(other);
        assert!(
            again.index_field("node", "/spec/nodeName").is_err(),
            "{} is another informer",
            held.describe()
        );
    }
    // The same input, written differently.
    let reordered = informers.informer_from(&pods().namespaces(["m", "n", "m", ""]));
    assert!(reordered.index_field("node", "/spec/nodeName").is_err());
    let one = informers.informer_from(&pods().namespaces(["n"]));
    assert!(one.index_field("node", "/spec/nodeName").is_err());
    let all = informers.informer_from(&pods().namespace("n").all_namespaces());
    assert!(all.index_field("node", "/spec/nodeName").is_err());
    let typed = informers.informer::<PartialObjectMeta<Pod>>();
    assert_eq!(typed.describe(), "pods at cluster scope");
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn namespace_applies_only_to_namespaced_kinds() {
    let informers = InformerFactory::new(refusing()).namespace("shop");
    assert_eq!(
        informers.informer::<Pod>().describe(),
        "pods in namespace shop"
    );
    assert_eq!(
        informers.informer::<Namespace>().describe(),
        "namespaces at cluster scope"
    );
    let pods = ApiResource::erase::<Pod>(&());
    assert_eq!(
        informers.dynamic(&pods).describe(),
        "pods in namespace shop"
    );
}

/// Proves factory/lifecycle, factory/wait-for-sync.
#[tokio::test(start_paused = true)]
async fn start_runs_requested_and_later_informers_once() {
    let server = Server::new();
    server.put("n/a", "1");
    let (informers, things) = factory_of(&server);
    let stop = CancellationToken::new();
    informers.wait_for_sync().await.unwrap();
    assert!(
        !things.has_synced(),
        "nothing was started, so there is nothing to wait for"
    );
    informers.start(&stop);
    informers.start(&stop);
    informers.wait_for_sync().await.unwrap();
    assert!(informers.informer::<Thing>().has_synced());
    assert_eq!(server.lists(), 1);

    let other = Server::new();
    let late = SharedInformer::<DynamicObject>::new(other.clone());
    informers.adopt(&WatchInput::of(ApiResource::erase::<Secret>(&())), &late);
    informers.wait_for_sync().await.unwrap();
    assert!(late.has_synced());
    stop.cancel();
    informers.shutdown().await;
    assert!(things.is_stopped() && late.is_stopped());
}

/// Proves factory/wait-for-sync.
#[tokio::test(start_paused = true)]
async fn wait_for_sync_names_unsynced_informers_and_why() {
    let server = Server::new();
    let (informers, _things) = factory_of(&server);
    let _pods = informers.informer::<Pod>();
    let stop = CancellationToken::new();
    informers.start(&stop);
    let error = informers
        .wait_for_sync_within(SECOND * 30)
        .await
        .unwrap_err();
    assert_eq!(error.informers.len(), 1, "things have synced");
    let message = error.to_string();
    assert!(
        message.starts_with("not synced: pods at cluster scope (retrying in "),
        "{message}"
    );
    assert!(
        message.contains("403 Forbidden on pods at cluster scope"),
        "{message}"
    );
    assert!(message.contains("this server refuses"), "{message}");
    // Stopping ends the wait, and the error still has the reason.
    let waiting = informers.clone();
    let waiting = tokio::spawn(async move { waiting.wait_for_sync().await });
    settle().await;
    assert!(!waiting.is_finished());
    stop.cancel();
    let message = waiting.await.unwrap().unwrap_err().to_string();
    assert!(message.contains("403 Forbidden"), "{message}");
}

/// Proves factory/lifecycle.
#[tokio::test(start_paused = true)]
async fn nothing_starts_after_shutdown() {
    let server = Server::new();
    let (informers, things) = factory_of(&server);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    // Shutdown may be called concurrently and repeatedly.
    tokio::join!(informers.shutdown(), informers.shutdown());
    informers.shutdown().await;
    assert!(things.is_stopped());
    let other = SharedInformer::<DynamicObject>::new(server.clone());
    informers.adopt(&WatchInput::of(ApiResource::erase::<Secret>(&())), &other);
    informers.start(&CancellationToken::new());
    settle().await;
    assert_eq!(server.lists(), 1);
    informers.wait_for_sync().await.unwrap();
}

/// Proves factory/unused-informer-stops.
#[tokio::test(start_paused = true)]
async fn unused_informer_stops() {
    let server = Server::new();
    let (informers, things) = factory_of(&server);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    let (lister, status) = (things.lister(), things.status());
    let registration = things.on_event(|_| {});
    let running = || !status.borrow().to_string().contains("stopped");
    for (held, what) in [
        (Box::new(things) as Box<dyn std::any::Any>, "a handle"),
        (Box::new(registration), "a registration"),
        (Box::new(lister), "a lister"),
    ] {
        settle().await;
        assert!(running(), "{what} keeps it running");
        drop(held);
    }
    settle().await;
    assert!(!running(), "{}", *status.borrow());
    // The next request builds a new one.
    let again = informers.informer::<ConfigMap>();
    assert!(!again.has_synced() && !again.is_stopped());
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn resync_is_set_for_all_kinds_or_for_one() {
    let informers = InformerFactory::new(refusing())
        .resync(SECOND * 30)
        .resync_of::<Secret>(SECOND * 600)
        .transform(|_| Ok(()));
    assert_eq!(
        informers.informer::<Pod>().processor.check_period(),
        Some(SECOND * 30)
    );
    assert_eq!(
        informers.informer::<Secret>().processor.check_period(),
        Some(SECOND * 600)
    );
}

/// Proves factory/restart.
#[tokio::test(start_paused = true)]
async fn request_after_restart_returns_a_running_informer() {
    let informers = InformerFactory::new(refusing());
    let first = CancellationToken::new();
    informers.start(&first);
    let stopped = informers.informer::<Pod>();
    let _held = stopped.lister();
    settle().await;
    let again = || Arc::ptr_eq(&stopped.processor, &informers.informer::<Pod>().processor);
    first.cancel();
    assert!(!again(), "a stopped informer was returned");

    // At once, before the first informer has noticed its cancelled token.
    informers.start(&CancellationToken::new());
    let running = informers.informer::<Pod>();
    assert!(!again());
    settle().await;
    assert!(!running.is_stopped());
    assert!(Arc::ptr_eq(
        &running.processor,
        &informers.informer::<Pod>().processor
    ));
    assert!(stopped.is_stopped());
}
