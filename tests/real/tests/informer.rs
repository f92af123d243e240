//! The informer on a real API server: many objects, restarts, compaction.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use pintle::cache::{Kind, Lister};
use pintle::informer::{Event, Registration, SharedInformer};
use pintle::reflector::Phase;
use pintle::source::{KubeSource, Scope};
use real_tests::{Link, TestNamespace, api_server_address, client_through, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A kind with a minimal example object.
trait Sample:
    Kind<DynamicType = ()>
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    fn json(namespace: &str, name: &str) -> Value;
}

impl Sample for ConfigMap {
    fn json(_: &str, name: &str) -> Value {
        json!({ "metadata": { "name": name } })
    }
}

impl Sample for CoreEvent {
    fn json(namespace: &str, name: &str) -> Value {
        let involved = json!({ "kind": "Pod", "namespace": namespace, "name": "none" });
        json!({ "metadata": { "name": name }, "involvedObject": involved, "reason": "Test" })
    }
}

/// An informer of one kind in the namespace of a test, and the events it delivered.
struct Running<K: Sample> {
    api: Api<K>,
    namespace: String,
    informer: SharedInformer<K>,
    events: Arc<Mutex<Vec<String>>>,
    handler: Registration,
    #[allow(dead_code, reason = "dropping it stops the informer")]
    stop: DropGuard,
}

impl<K: Sample> Running<K> {
    /// Creates objects of these names, then starts an informer on `client` and waits for its sync.
    async fn start(namespace: &TestNamespace, client: Client, names: &[&str]) -> Self {
        let namespace_name = namespace.name();
        // The control plane adds the root CA to each namespace.
        let scope = Scope::namespace(&*namespace_name).fields("metadata.name!=kube-root-ca.crt");
        let informer = SharedInformer::<K>::new(KubeSource::<K>::new(client, scope));
        let events = Arc::new(Mutex::new(Vec::new()));
        let handler = informer.on_event(recorder(events.clone()));
        let stop = CancellationToken::new();
        let running = Self {
            api: namespace.api(),
            namespace: namespace_name,
            informer: informer.clone(),
            events,
            handler,
            stop: stop.clone().drop_guard(),
        };
        for name in names {
            running.create(name).await;
        }
        tokio::spawn(async move { informer.run(&stop).await });
        let synced = tokio::time::timeout(Duration::from_mins(1), running.handler.synced()).await;
        assert_eq!(synced, Ok(true), "{}", *running.informer.status().borrow());
        running
    }

    async fn create(&self, name: &str) {
        let object: K = from_value(K::json(&self.namespace, name)).unwrap();
        self.api
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    async fn delete(&self, name: &str) {
        self.api
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    async fn label(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "v": value } } }));
        self.api
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits for `N` events and removes them.
    async fn take_events<const N: usize>(&self) -> [String; N] {
        let status = self.informer.status();
        eventually("events", async || {
            let events = self.events.lock().unwrap();
            (events.len() >= N).then_some(())
        })
        .await;
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        events
            .try_into()
            .unwrap_or_else(|events| panic!("unexpected {events:?}; {}", *status.borrow()))
    }

    /// Waits until the informer has noticed that its connection is lost.
    async fn until_retrying(&self) {
        let status = self.informer.status();
        eventually("the informer to retry", async || {
            matches!(status.borrow().phase, Phase::Retrying { .. }).then_some(())
        })
        .await;
    }

    /// Asserts that cache and server hold the same objects.
    async fn assert_in_sync(&self) {
        let others = ListParams::default().fields("metadata.name!=kube-root-ca.crt");
        let items = self.api.list(&others).await.unwrap().items;
        let row = |object: K| {
            let version = object.resource_version().unwrap_or_default();
            (object.name_any(), version)
        };
        let stored: BTreeMap<_, _> = items.into_iter().map(row).collect();
        assert_eq!(versions(&self.informer.lister()), stored);
    }
}

/// Returns the cached resourceVersions by name.
fn versions<K: Kind>(lister: &Lister<K>) -> BTreeMap<String, String> {
    let objects = lister.list();
    let row = objects.iter().map(|object| {
        let version = object.resource_version().to_owned();
        (object.key().name().to_owned(), version)
    });
    row.collect()
}

/// Records events, except updates without a change.
fn recorder<K: Kind>(events: Arc<Mutex<Vec<String>>>) -> impl FnMut(Event<K>) + Send + 'static {
    move |event| {
        let line = match &event {
            Event::Added { object, .. } => format!("+{}", object.key().name()),
            Event::Updated { old, new } if old.resource_version() == new.resource_version() => {
                return;
            }
            Event::Updated { new, .. } => format!("={}", new.key().name()),
            Event::Deleted(deleted) if deleted.exact => format!("-{}", deleted.key.name()),
            Event::Deleted(deleted) => format!("?{}", deleted.key.name()),
        };
        events.lock().unwrap().push(line);
    }
}

/// Proves informer/handler-order, informer/eventually-consistent.
#[tokio::test]
async fn thousands_of_objects_sync() {
    let namespace = TestNamespace::create().await;
    let names: Vec<String> = (0..5000).map(|n| format!("c{n}")).collect();
    let api = namespace.api::<ConfigMap>();
    let created = stream::iter(&names).map(async |name| {
        let map: ConfigMap = from_value(ConfigMap::json("", name)).unwrap();
        api.create(&PostParams::default(), &map).await.unwrap();
    });
    created.buffer_unordered(32).collect::<()>().await;

    let running = Running::<ConfigMap>::start(&namespace, namespace.client(), &[]).await;
    assert_eq!(running.events.lock().unwrap().len(), 5000);
    running.assert_in_sync().await;
    assert!(running.informer.status().borrow().failure.is_none());
}

/// Proves informer/eventually-consistent, reflector/watch-errors.
#[tokio::test]
async fn informer_continues_after_an_api_server_restart() {
    let (namespace, control_plane) = TestNamespace::alone().await;
    let link = Link::to(api_server_address().await).await;
    let through = client_through(&link).await;
    let direct: Running<ConfigMap> =
        Running::start(&namespace, namespace.client(), &["a", "b", "c"]).await;
    let cut_off: Running<ConfigMap> = Running::start(&namespace, through, &[]).await;
    for running in [&direct, &cut_off] {
        assert_eq!(running.take_events::<3>().await, ["+a", "+b", "+c"]);
    }

    // One informer sees every change before the restart, the other none of them.
    link.cut();
    cut_off.until_retrying().await;
    direct.delete("a").await;
    direct.create("a").await;
    direct.label("b", "2").await;
    direct.delete("c").await;
    assert_eq!(direct.take_events::<4>().await, ["-a", "+a", "=b", "-c"]);
    control_plane.restart_api_server().await;
    link.restore();
    direct.create("d").await;
    assert_eq!(direct.take_events::<1>().await, ["+d"]);

    // Whether the new server resumes the watch or not, the events of each object are right.
    let missed = cut_off.take_events::<5>().await;
    let of = |name: &str| {
        let lines = missed.iter().filter(|line| line.ends_with(name));
        lines.map(|line| line.replace('?', "-")).collect::<Vec<_>>()
    };
    assert_eq!(of("a"), ["-a", "+a"]);
    assert_eq!(
        (of("b"), of("c"), of("d")),
        (vec!["=b".into()], vec!["-c".into()], vec!["+d".into()])
    );
    for running in [&direct, &cut_off] {
        running.delete("b").await;
        assert_eq!(running.take_events::<1>().await, ["-b"]);
        running.assert_in_sync().await;
        direct.create("b").await;
        for running in [&direct, &cut_off] {
            let last = || running.events.lock().unwrap().last().cloned();
            eventually("b again", async || last().filter(|line| line == "+b")).await;
            running.events.lock().unwrap().clear();
        }
    }
}

/// The API server has no watch cache for events, so it rejects a watch from a compacted revision.
///
/// Proves reflector/list-version, reflector/watch-errors, fifo/cache-decides-kind.
#[tokio::test]
async fn compacted_watch_is_relisted_without_loss() {
    let (namespace, control_plane) = TestNamespace::alone().await;
    let link = Link::to(api_server_address().await).await;
    let through = client_through(&link).await;
    let running: Running<CoreEvent> =
        Running::start(&namespace, through, &["a", "b", "c", "d"]).await;
    assert_eq!(running.take_events::<4>().await, ["+a", "+b", "+c", "+d"]);
    link.cut();
    running.until_retrying().await;
    running.delete("a").await;
    running.delete("b").await;
    running.create("b").await;
    running.label("c", "2").await;
    running.create("e").await;
    control_plane.compact().await;
    let mut status = running.informer.status();
    status.borrow_and_update();
    let expired = tokio::spawn(async move {
        let gone = status.wait_for(|status| status.to_string().contains("410 "));
        let gone = tokio::time::timeout(Duration::from_mins(1), gone).await;
        gone.is_ok_and(|seen| seen.is_ok())
    });
    assert!(
        running.events.lock().unwrap().is_empty(),
        "the link is down"
    );
    link.restore();
    // Deletions first, then the list in order. The unchanged d has no event.
    assert_eq!(
        running.take_events::<5>().await,
        ["?a", "?b", "+b", "=c", "+e"]
    );
    assert!(
        expired.await.unwrap(),
        "the server did not reject the compacted revision"
    );
    running.assert_in_sync().await;
    running.delete("d").await;
    assert_eq!(running.take_events::<1>().await, ["-d"]);
}
