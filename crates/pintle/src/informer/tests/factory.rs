use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::{
    Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};

use super::*;
use crate::{informer::InformerFactory, source::Scope};

/// A client of a server that refuses everything.
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
    informers.adopt(&(), &things);
    (informers, things)
}

/// Proves factory/shared-informer, factory/dynamic-kinds.
#[tokio::test(start_paused = true)]
async fn whoever_asks_for_the_same_gets_the_same() {
    let informers = InformerFactory::new(refusing());
    let pods = informers.informer::<Pod>();
    pods.index_field("node", "/spec/nodeName").unwrap();
    assert!(
        informers
            .clone()
            .informer::<Pod>()
            .index_field("node", "/spec/nodeName")
            .is_err()
    );
    // Another kind, form, scope or way of reading is another informer.
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
        informers.request::<Pod>(&()).scope(Scope::namespace("n")),
        informers.request::<Pod>(&()).transform("none", |_| Ok(())),
        informers.request::<Pod>(&()).eager(),
        informers.request::<Pod>(&()).keep_managed_fields(),
    ];
    for other in others {
        other.get().index_field("node", "/spec/nodeName").unwrap();
    }
    let held = informers
        .request::<Pod>(&())
        .transform("x", |_| Ok(()))
        .get();
    held.index_field("node", "/spec/nodeName").unwrap();
    let again = informers
        .request::<Pod>(&())
        .transform("x", |_| Ok(()))
        .get();
    assert!(again.index_field("node", "/spec/nodeName").is_err());
    let typed = informers.informer::<PartialObjectMeta<Pod>>();
    assert_eq!(typed.describe(), "pods at cluster scope");
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn a_namespace_concerns_only_kinds_that_have_one() {
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

/// Proves factory/start, factory/wait-for-sync.
#[tokio::test(start_paused = true)]
async fn starting_starts_what_was_asked_for_once_and_what_comes_later_by_itself() {
    let server = Server::new();
    server.put("n/a", "1");
    let (informers, things) = factory_of(&server);
    let stop = CancellationToken::new();
    informers.wait_for_sync().await.unwrap();
    assert!(
        !things.has_synced(),
        "nothing was started, so there was nothing to wait for"
    );
    informers.start(&stop);
    informers.start(&stop);
    informers.wait_for_sync().await.unwrap();
    assert!(informers.informer::<Thing>().has_synced());
    assert_eq!(server.lists(), 1);

    let other = Server::new();
    let late = SharedInformer::<DynamicObject>::new(other.clone());
    informers.adopt(&ApiResource::erase::<Secret>(&()), &late);
    informers.wait_for_sync().await.unwrap();
    assert!(late.has_synced());
    stop.cancel();
    informers.shutdown().await;
    assert!(things.is_stopped() && late.is_stopped());
}

/// Proves factory/wait-for-sync.
#[tokio::test(start_paused = true)]
async fn waiting_says_who_has_not_synced_and_why() {
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
    let said = error.to_string();
    assert!(
        said.starts_with("not synced: pods at cluster scope (retrying in "),
        "{said}"
    );
    assert!(
        said.contains("403 Forbidden on pods at cluster scope"),
        "{said}"
    );
    assert!(said.contains("this server refuses"), "{said}");
    // Stopping ends the wait, and the reason is still known.
    let waiting = informers.clone();
    let waiting = tokio::spawn(async move { waiting.wait_for_sync().await });
    settle().await;
    assert!(!waiting.is_finished());
    stop.cancel();
    let said = waiting.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("403 Forbidden"), "{said}");
}

/// Proves factory/shutdown.
#[tokio::test(start_paused = true)]
async fn after_the_shutdown_nothing_starts() {
    let server = Server::new();
    let (informers, things) = factory_of(&server);
    informers.start(&CancellationToken::new());
    informers.wait_for_sync().await.unwrap();
    // Several may ask, and ask again.
    tokio::join!(informers.shutdown(), informers.shutdown());
    informers.shutdown().await;
    assert!(things.is_stopped());
    let other = SharedInformer::<DynamicObject>::new(server.clone());
    informers.adopt(&ApiResource::erase::<Secret>(&()), &other);
    informers.start(&CancellationToken::new());
    settle().await;
    assert_eq!(server.lists(), 1);
    informers.wait_for_sync().await.unwrap();
}

/// Proves factory/unused-informer-stops.
#[tokio::test(start_paused = true)]
async fn an_informer_stops_when_nobody_uses_it_any_more() {
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
    // Asking again makes a new one.
    let again = informers.informer::<ConfigMap>();
    assert!(!again.has_synced() && !again.is_stopped());
}

/// Proves factory/options.
#[tokio::test(start_paused = true)]
async fn resync_and_transform_are_set_for_all_or_by_kind() {
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
async fn whoever_asks_after_a_second_start_gets_an_informer_that_runs() {
    let informers = InformerFactory::new(refusing());
    let first = CancellationToken::new();
    informers.start(&first);
    let stopped = informers.informer::<Pod>();
    let _held = stopped.lister();
    settle().await;
    let again = || Arc::ptr_eq(&stopped.processor, &informers.informer::<Pod>().processor);
    first.cancel();
    assert!(!again(), "a stopped informer is not handed out");

    // At once: the first has not noticed yet that it is to stop.
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
