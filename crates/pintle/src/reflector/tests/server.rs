//! A reflector of Pintle's own API server, in process and under virtual time.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use pintle_apiserver::ApiServer;

use super::*;
use crate::{
    object::Kind,
    reflector::Phase,
    source::{KubeSource, Scope},
};

/// A sink that stores the bytes of each object, by key.
#[derive(Default)]
struct Values {
    objects: Mutex<BTreeMap<String, Bytes>>,
    replaced: AtomicUsize,
}

impl<K: Kind> Sink<K> for Values {
    fn replace(&self, items: Vec<Object<K>>, _resource_version: &str) {
        self.objects.lock().clear();
        for item in items {
            self.update(item);
        }
        self.replaced.fetch_add(1, Ordering::SeqCst);
    }

    fn add(&self, object: Object<K>) {
        self.update(object);
    }

    fn update(&self, object: Object<K>) {
        let bytes = Bytes::copy_from_slice(object.bytes());
        self.objects.lock().insert(object.key().to_string(), bytes);
    }

    fn delete(&self, object: Object<K>) {
        self.objects.lock().remove(object.key().as_str());
    }

    fn bookmark(&self, _resource_version: &str) {}

    fn resync(&self) {}

    async fn ready(&self) {}
}

impl Values {
    fn names(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    fn shows(&self, name: &str, text: &str) -> bool {
        let objects = self.objects.lock();
        objects
            .get(name)
            .is_some_and(|object| String::from_utf8_lossy(object).contains(text))
    }
}

fn follow<K: Kind>(
    source: KubeSource<K>,
    streaming: bool,
) -> (Arc<Values>, watch::Receiver<Status>) {
    let values = Arc::new(Values::default());
    let reflector = Reflector::<K, _, _>::new(source, Reader::new(), values.clone())
        .rng(Rng::with_seed(7))
        .watch_list(streaming);
    let status = reflector.status();
    tokio::spawn(async move { reflector.run(&CancellationToken::new()).await });
    (values, status)
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"v": "one"}})).unwrap()
}

/// Proves reflector/list-then-watch, reflector/list-version, reflector/watchlist-atomic.
/// Proves reflector/converges.
#[tokio::test(start_paused = true)]
async fn changes_are_followed_without_a_relist() {
    for streaming in [true, false] {
        let server = ApiServer::builder().build();
        let api = Api::<ConfigMap>::namespaced(server.client(), "default");
        for n in 0..700 {
            let name = format!("c{n:03}");
            api.create(&PostParams::default(), &config_map(&name))
                .await
                .unwrap();
        }
        let source = KubeSource::<ConfigMap>::new(server.client(), Scope::namespace("default"));
        let (values, mut status) = follow(source, streaming);
        status
            .wait_for(|status| matches!(status.phase, Phase::Watching { .. }))
            .await
            .unwrap();
        assert_eq!(values.names().len(), 700);
        assert_eq!(values.replaced.load(Ordering::SeqCst), 1);

        let patch = Patch::Merge(json!({"data": {"v": "two"}}));
        api.patch("c000", &PatchParams::default(), &patch)
            .await
            .unwrap();
        api.delete("c001", &DeleteParams::default()).await.unwrap();
        api.create(&PostParams::default(), &config_map("new"))
            .await
            .unwrap();
        sleep(SECOND).await;
        assert!(values.shows("default/c000", "two"));
        assert!(values.shows("default/new", "one"));
        assert_eq!(values.names().len(), 700);
        assert_eq!(
            values.replaced.load(Ordering::SeqCst),
            1,
            "streaming: {streaming}"
        );
    }
}

/// Proves reflector/list-version, reflector/converges.
#[tokio::test(start_paused = true)]
async fn watch_after_a_compaction_leads_to_a_list() {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::namespaced(server.client(), "default");
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    // The history is compacted between the list and the watch.
    let (inner, list_done) = (server.clone(), Arc::new(AtomicUsize::new(0)));
    let source = KubeSource::<ConfigMap>::new(server.client(), Scope::all()).tweak_list_options(
        move |options| {
            if options.allow_watch_bookmarks && list_done.fetch_add(1, Ordering::SeqCst) == 0 {
                inner.compact();
                options.resource_version = Some("1".into());
            }
        },
    );
    let (values, mut status) = follow(source, false);
    api.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    status
        .wait_for(|status| {
            matches!(&status.phase, Phase::Retrying { cause, .. }
            if cause.to_string().starts_with("410 Expired on configmaps at cluster scope (watch)"))
        })
        .await
        .unwrap();
    sleep(3 * SECOND).await;
    assert_eq!(values.names(), ["default/a", "default/b"]);
    assert_eq!(values.replaced.load(Ordering::SeqCst), 2);
}

/// Proves source/requests, reflector/converges.
#[tokio::test(start_paused = true)]
async fn metadata_only_objects_are_followed() {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::namespaced(server.client(), "default");
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    for streaming in [true, false] {
        let source = KubeSource::<PartialObjectMeta<ConfigMap>>::new(server.client(), Scope::all());
        let (values, mut status) = follow(source, streaming);
        status
            .wait_for(|status| matches!(status.phase, Phase::Watching { .. }))
            .await
            .unwrap();
        assert_eq!(values.names(), ["default/a"]);
        assert!(!values.shows("default/a", "one"), "data was sent as well");
        let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
        api.patch("a", &PatchParams::default(), &patch)
            .await
            .unwrap();
        sleep(SECOND).await;
        assert!(values.shows("default/a", "seen"), "streaming: {streaming}");
        assert_eq!(
            status.borrow().unreadable,
            0,
            "{:?}",
            status.borrow().last_unreadable
        );
    }
}

/// Proves source/requests, reflector/converges.
#[tokio::test(start_paused = true)]
async fn dynamic_objects_are_followed_by_label() {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::namespaced(server.client(), "default");
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"pick": value}}}));
    api.patch("b", &PatchParams::default(), &label("yes"))
        .await
        .unwrap();
    for streaming in [true, false] {
        let kind = ApiResource::erase::<ConfigMap>(&());
        let scope = Scope::namespace("default").labels("pick=yes");
        let source = KubeSource::<DynamicObject>::dynamic(server.client(), &kind, scope);
        let (values, mut status) = follow(source, streaming);
        status
            .wait_for(|status| matches!(status.phase, Phase::Watching { .. }))
            .await
            .unwrap();
        assert_eq!(values.names(), ["default/b"]);
        api.patch("a", &PatchParams::default(), &label("yes"))
            .await
            .unwrap();
        sleep(SECOND).await;
        assert_eq!(
            values.names(),
            ["default/a", "default/b"],
            "streaming: {streaming}"
        );
        // An object that no longer matches is deleted.
        api.patch("a", &PatchParams::default(), &label("no"))
            .await
            .unwrap();
        sleep(SECOND).await;
        assert_eq!(values.names(), ["default/b"], "streaming: {streaming}");
    }
}
