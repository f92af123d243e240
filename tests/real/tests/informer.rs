//! What an informer goes through with a real server: many objects, restarts, forgotten history.

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

/// A kind of which a test makes objects.
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
        let about = json!({ "kind": "Pod", "namespace": namespace, "name": "none" });
        json!({ "metadata": { "name": name }, "involvedObject": about, "reason": "Test" })
    }
}

/// Objects of one kind in the namespace of one test, and an informer of them.
struct Followed<K: Sample> {
    api: Api<K>,
    namespace: String,
    informer: SharedInformer<K>,
    told: Arc<Mutex<Vec<String>>>,
    watching: Registration,
    #[allow(dead_code, reason = "dropping it stops the informer")]
    stop: DropGuard,
}

impl<K: Sample> Followed<K> {
    /// Objects of these names, and an informer that asks through `client` and has synced.
    async fn start(namespace: &TestNamespace, client: Client, names: &[&str]) -> Self {
        let namespace_name = namespace.name();
        // What the control plane puts into each namespace is not ours.
        let scope = Scope::namespace(&*namespace_name).fields("metadata.name!=kube-root-ca.crt");
        let informer = SharedInformer::<K>::new(KubeSource::<K>::new(client, scope));
        let told = Arc::new(Mutex::new(Vec::new()));
        let watching = informer.on_event(recorder(told.clone()));
        let stop = CancellationToken::new();
        let followed = Self {
            api: namespace.api(),
            namespace: namespace_name,
            informer: informer.clone(),
            told,
            watching,
            stop: stop.clone().drop_guard(),
        };
        for name in names {
            followed.create(name).await;
        }
        tokio::spawn(async move { informer.run(&stop).await });
        let synced = tokio::time::timeout(Duration::from_mins(1), followed.watching.synced()).await;
        assert_eq!(synced, Ok(true), "{}", *followed.informer.status().borrow());
        followed
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

    /// Waits until so much was told, and takes it.
    async fn told<const N: usize>(&self) -> [String; N] {
        let status = self.informer.status();
        eventually("what is to be told", async || {
            let told = self.told.lock().unwrap();
            (told.len() >= N).then_some(())
        })
        .await;
        let told = std::mem::take(&mut *self.told.lock().unwrap());
        told.try_into()
            .unwrap_or_else(|told| panic!("{told:?} was told; {}", *status.borrow()))
    }

    async fn retries(&self) {
        let status = self.informer.status();
        eventually("the connection missed", async || {
            matches!(status.borrow().phase, Phase::Retrying { .. }).then_some(())
        })
        .await;
    }

    /// The cache is what the server holds.
    async fn assert_same(&self) {
        let others = ListParams::default().fields("metadata.name!=kube-root-ca.crt");
        let items = self.api.list(&others).await.unwrap().items;
        let row = |object: K| {
            let version = object.resource_version().unwrap_or_default();
            (object.name_any(), version)
        };
        let held: BTreeMap<_, _> = items.into_iter().map(row).collect();
        assert_eq!(shown(&self.informer.lister()), held);
    }
}

/// Names and versions of what a cache holds.
fn shown<K: Kind>(lister: &Lister<K>) -> BTreeMap<String, String> {
    let objects = lister.list();
    let row = objects.iter().map(|object| {
        let version = object.resource_version().to_owned();
        (object.key().name().to_owned(), version)
    });
    row.collect()
}

/// Notes every change. What is told once more without a change is left out.
fn recorder<K: Kind>(told: Arc<Mutex<Vec<String>>>) -> impl FnMut(Event<K>) + Send + 'static {
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
        told.lock().unwrap().push(line);
    }
}

/// Proves informer/states-in-order, informer/eventually-consistent.
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

    let followed = Followed::<ConfigMap>::start(&namespace, namespace.client(), &[]).await;
    assert_eq!(followed.told.lock().unwrap().len(), 5000);
    followed.assert_same().await;
    assert!(followed.informer.status().borrow().failure.is_none());
}

/// Proves informer/eventually-consistent, reflector/retry-open-without-list.
#[tokio::test]
async fn an_api_server_that_restarts_is_followed_again() {
    let (namespace, control_plane) = TestNamespace::alone().await;
    let link = Link::to(api_server_address().await).await;
    let through = client_through(&link).await;
    let direct: Followed<ConfigMap> =
        Followed::start(&namespace, namespace.client(), &["a", "b", "c"]).await;
    let cut_off: Followed<ConfigMap> = Followed::start(&namespace, through, &[]).await;
    for followed in [&direct, &cut_off] {
        assert_eq!(followed.told::<3>().await, ["+a", "+b", "+c"]);
    }

    // One informer sees every change before the restart, the other none of them.
    link.cut();
    cut_off.retries().await;
    direct.delete("a").await;
    direct.create("a").await;
    direct.label("b", "2").await;
    direct.delete("c").await;
    assert_eq!(direct.told::<4>().await, ["-a", "+a", "=b", "-c"]);
    control_plane.restart_api_server().await;
    link.mend();
    direct.create("d").await;
    assert_eq!(direct.told::<1>().await, ["+d"]);

    // Whatever way the new server takes it from the old version, each object's end is right.
    let missed = cut_off.told::<5>().await;
    let of = |name: &str| {
        let lines = missed.iter().filter(|line| line.ends_with(name));
        lines.map(|line| line.replace('?', "-")).collect::<Vec<_>>()
    };
    assert_eq!(of("a"), ["-a", "+a"]);
    assert_eq!(
        (of("b"), of("c"), of("d")),
        (vec!["=b".into()], vec!["-c".into()], vec!["+d".into()])
    );
    for followed in [&direct, &cut_off] {
        followed.delete("b").await;
        assert_eq!(followed.told::<1>().await, ["-b"]);
        followed.assert_same().await;
        direct.create("b").await;
        for followed in [&direct, &cut_off] {
            let told = || followed.told.lock().unwrap().last().cloned();
            eventually("b again", async || told().filter(|line| line == "+b")).await;
            followed.told.lock().unwrap().clear();
        }
    }
}

/// Events are not kept in the server's watch cache, so that a watch from a version that etcd has
/// forgotten is refused.
///
/// Proves reflector/relist-not-older, reflector/other-errors-relist.
/// Proves fifo/recreated-under-same-name.
#[tokio::test]
async fn what_etcd_forgot_is_listed_anew_and_nothing_is_lost() {
    let (namespace, control_plane) = TestNamespace::alone().await;
    let link = Link::to(api_server_address().await).await;
    let through = client_through(&link).await;
    let followed: Followed<CoreEvent> =
        Followed::start(&namespace, through, &["a", "b", "c", "d"]).await;
    assert_eq!(followed.told::<4>().await, ["+a", "+b", "+c", "+d"]);
    link.cut();
    followed.retries().await;
    followed.delete("a").await;
    followed.delete("b").await;
    followed.create("b").await;
    followed.label("c", "2").await;
    followed.create("e").await;
    control_plane.compact().await;
    let mut status = followed.informer.status();
    status.borrow_and_update();
    let refused = tokio::spawn(async move {
        let gone = status.wait_for(|status| status.to_string().contains("410 "));
        let gone = tokio::time::timeout(Duration::from_mins(1), gone).await;
        gone.is_ok_and(|seen| seen.is_ok())
    });
    assert!(
        followed.told.lock().unwrap().is_empty(),
        "nobody can know yet"
    );
    link.mend();
    // First what is gone, then the rest in the order of the list. Nothing is told of d.
    assert_eq!(followed.told::<5>().await, ["?a", "?b", "+b", "=c", "+e"]);
    assert!(
        refused.await.unwrap(),
        "the server did not refuse the old version"
    );
    followed.assert_same().await;
    followed.delete("d").await;
    assert_eq!(followed.told::<1>().await, ["-d"]);
}
