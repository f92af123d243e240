//! The reflector on a real API server: streaming, paging, metadata, missing permissions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::{Api, Client};
use pintle::cache::{Kind, Object, Reader};
use pintle::reflector::{Phase, Reflector, Sink, Status};
use pintle::source::{KubeSource, Scope, VersionMatch};
use real_tests::{TestNamespace, client_as, eventually};
use serde_json::{from_value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A sink that stores each object's bytes as a string, by name.
#[derive(Default)]
struct Texts {
    objects: Mutex<BTreeMap<String, String>>,
    lists: Mutex<usize>,
}

impl<K: Kind> Sink<K> for Texts {
    fn replace(&self, items: Vec<Object<K>>, _resource_version: &str) {
        self.objects.lock().unwrap().clear();
        for item in items {
            self.update(item);
        }
        *self.lists.lock().unwrap() += 1;
    }

    fn add(&self, object: Object<K>) {
        self.update(object);
    }

    fn update(&self, object: Object<K>) {
        let text = String::from_utf8_lossy(object.bytes()).into_owned();
        let name = object.key().name().to_owned();
        self.objects.lock().unwrap().insert(name, text);
    }

    fn delete(&self, object: Object<K>) {
        self.objects.lock().unwrap().remove(object.key().name());
    }

    fn bookmark(&self, _resource_version: &str) {}

    fn resync(&self) {}

    async fn ready(&self) {}
}

struct Running {
    texts: Arc<Texts>,
    status: watch::Receiver<Status>,
    #[allow(dead_code, reason = "dropping it stops the reflector")]
    stop: DropGuard,
}

impl Running {
    fn start<K: Kind>(
        source: KubeSource<K>,
        set: impl FnOnce(Reflector<K, KubeSource<K>, Texts>) -> Reflector<K, KubeSource<K>, Texts>,
    ) -> Self {
        let texts = Arc::new(Texts::default());
        let reflector = set(Reflector::new(source, Reader::new(), texts.clone()));
        let (status, stop) = (reflector.status(), CancellationToken::new());
        let token = stop.clone();
        tokio::spawn(async move { reflector.run(&token).await });
        let stop = stop.drop_guard();
        Self {
            texts,
            status,
            stop,
        }
    }

    async fn until(&mut self, what: &str, predicate: impl Fn(&Status) -> bool) {
        let waited =
            tokio::time::timeout(Duration::from_mins(1), self.status.wait_for(predicate)).await;
        let waited = waited.map(|status| status.map(|_| ()));
        assert!(
            waited.is_ok(),
            "timed out waiting for {what}: {}",
            *self.status.borrow()
        );
    }

    fn text(&self, name: &str) -> Option<String> {
        self.texts.objects.lock().unwrap().get(name).cloned()
    }

    fn count(&self) -> usize {
        self.texts.objects.lock().unwrap().len()
    }
}

fn is_watching(status: &Status) -> bool {
    matches!(status.phase, Phase::Watching { .. })
}

fn config_map(name: &str) -> ConfigMap {
    from_value(json!({ "metadata": { "name": name }, "data": { "v": "one" } })).unwrap()
}

/// Selects the objects of the test, without the root CA that the control plane adds.
fn scope(namespace: &TestNamespace) -> Scope {
    Scope::namespace(namespace.name()).fields("metadata.name!=kube-root-ca.crt")
}

fn source(client: Client, namespace: &TestNamespace) -> KubeSource<ConfigMap> {
    KubeSource::new(client, scope(namespace))
}

/// Proves reflector/list-then-watch, reflector/pages, reflector/watchlist-request.
/// Proves reflector/watchlist-atomic, reflector/watchlist-optional, reflector/converges.
#[tokio::test]
async fn streamed_and_paged_lists_continue_with_a_watch() {
    let namespace = TestNamespace::create().await;
    let maps = namespace.api::<ConfigMap>();
    for n in 0..250 {
        maps.create(&PostParams::default(), &config_map(&format!("c{n}")))
            .await
            .unwrap();
    }
    let client = namespace.client();
    let plain_lists = Arc::new(AtomicUsize::new(0));
    let counter = plain_lists.clone();
    let counted = source(client.clone(), &namespace).tweak_list_options(move |options| {
        let is_watch = options.allow_watch_bookmarks;
        if !is_watch && options.resource_version_match != Some(VersionMatch::Exact) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let streamed = Running::start(counted, |reflector| reflector.verify_watch_lists(true));
    let paged = Running::start(source(client, &namespace), |reflector| {
        reflector.watch_list(false).page_size(100)
    });
    for mut running in [streamed, paged] {
        running.until("the first list", is_watching).await;
        assert_eq!(running.count(), 250);
        assert!(running.status.borrow().failure.is_none());

        let name = format!("new{}", running.count());
        maps.create(&PostParams::default(), &config_map(&name))
            .await
            .unwrap();
        let patch = Patch::Merge(json!({ "data": { "v": "two" } }));
        maps.patch("c1", &PatchParams::default(), &patch)
            .await
            .unwrap();
        eventually("the patch", async || {
            running.text("c1").filter(|text| text.contains("two"))
        })
        .await;
        assert!(running.text(&name).is_some());
        maps.delete(&name, &DeleteParams::default()).await.unwrap();
        eventually("the deletion", async || {
            running.text(&name).is_none().then_some(())
        })
        .await;
        let patch = Patch::Merge(json!({ "data": { "v": "one" } }));
        maps.patch("c1", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let status = running.status.borrow().clone();
        assert_eq!(status.unreadable, 0, "{:?}", status.last_unreadable);
        assert_eq!(*running.texts.lists.lock().unwrap(), 1, "listed once");
    }
    assert_eq!(
        plain_lists.load(Ordering::SeqCst),
        0,
        "the server did not stream"
    );
}

/// Proves source/requests, reflector/converges.
#[tokio::test]
async fn metadata_and_dynamic_kinds_are_supported() {
    let namespace = TestNamespace::create().await;
    let maps = namespace.api::<ConfigMap>();
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let kind = ApiResource::erase::<ConfigMap>(&());
    for streaming in [true, false] {
        let metadata =
            KubeSource::<PartialObjectMeta<ConfigMap>>::new(namespace.client(), scope(&namespace));
        let mut metadata = Running::start(metadata, |reflector| reflector.watch_list(streaming));
        let dynamic =
            KubeSource::<DynamicObject>::dynamic(namespace.client(), &kind, scope(&namespace));
        let mut dynamic = Running::start(dynamic, |reflector| reflector.watch_list(streaming));
        metadata.until("metadata", is_watching).await;
        dynamic.until("dynamic objects", is_watching).await;
        assert!(
            !metadata.text("a").unwrap().contains("one"),
            "the data was transferred, too"
        );
        assert!(dynamic.text("a").unwrap().contains("one"));

        let label = format!("seen-{streaming}");
        let patch = Patch::Merge(json!({ "metadata": { "labels": { &label: "yes" } } }));
        maps.patch("a", &PatchParams::default(), &patch)
            .await
            .unwrap();
        for running in [&metadata, &dynamic] {
            eventually("the label", async || {
                running.text("a").filter(|text| text.contains(&label))
            })
            .await;
            let status = running.status.borrow().clone();
            assert_eq!(status.unreadable, 0, "{:?}", status.last_unreadable);
        }
    }
}

/// Proves reflector/status.
#[tokio::test]
async fn missing_permissions_are_reported_until_granted() {
    let namespace = TestNamespace::create().await;
    namespace
        .api::<ConfigMap>()
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let user = format!("reader-of-{}", namespace.name());
    let mut running = Running::start(source(client_as(&user).await, &namespace), |reflector| {
        reflector
    });
    running
        .until("a failed request", |status| {
            matches!(status.phase, Phase::Retrying { .. })
        })
        .await;
    let message = running.status.borrow().to_string();
    let expected = format!(
        "because 403 Forbidden on configmaps in namespace {}",
        namespace.name()
    );
    assert!(message.contains(&expected), "{message}");

    let rules =
        json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] }]);
    let role: Role = from_value(json!({ "metadata": { "name": "r" }, "rules": rules })).unwrap();
    namespace
        .api::<Role>()
        .create(&PostParams::default(), &role)
        .await
        .unwrap();
    let binding: RoleBinding = from_value(json!({
        "metadata": { "name": "r" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    }))
    .unwrap();
    namespace
        .api::<RoleBinding>()
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    running.until("the first list", is_watching).await;
    assert!(running.text("a").is_some());
}

/// Proves reflector/watch-errors, reflector/converges.
#[tokio::test]
async fn deleted_and_recreated_kind_is_watched_again() {
    let namespace = TestNamespace::create().await;
    let group = format!("{}.pintle.test", namespace.name());
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition: CustomResourceDefinition = from_value(json!({
        "metadata": {
            "name": format!("gadgets.{group}"),
            "ownerReferences": [namespace.owner_reference()],
        },
        "spec": {
            "group": group,
            "names": { "kind": "Gadget", "plural": "gadgets" },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    }))
    .unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(namespace.client());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Gadget"));
    let gadgets = namespace.dynamic_api(&kind);
    let scope = Scope::namespace(namespace.name());
    let source = KubeSource::<DynamicObject>::dynamic(namespace.client(), &kind, scope);
    let mut running = Running::start(source, |reflector| reflector);
    running
        .until("404 for the kind", |status| {
            status.to_string().contains("because 404 ")
        })
        .await;

    for round in ["first", "second"] {
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        running.until("the kind", is_watching).await;
        let gadget = DynamicObject::new(round, &kind).within(&namespace.name());
        eventually("a gadget", async || {
            gadgets.create(&PostParams::default(), &gadget).await.ok()
        })
        .await;
        eventually("the gadget in the sink", async || running.text(round)).await;

        let name = definition.metadata.name.as_deref().unwrap();
        definitions
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        running
            .until("the kind to be gone", |status| {
                status.to_string().contains("because 404 ")
            })
            .await;
        eventually("the CRD to be gone", async || {
            definitions
                .get_opt(name)
                .await
                .unwrap()
                .is_none()
                .then_some(())
        })
        .await;
    }
}
