//! kube-runtime as a client of our server, over TLS: watcher in all modes, reflector, Controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use kube_runtime::controller::{Action, Controller};
use kube_runtime::reflector::store;
use kube_runtime::watcher::Event;
use kube_runtime::{reflector, watcher};
use pintle_apiserver::ApiServer;
use real_tests::{bare_client, client_of, eventually};
use serde_json::json;

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: kube::core::ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        },
        data: Some(BTreeMap::from([("k".into(), value.into())])),
        ..Default::default()
    }
}

/// Abbreviates a watcher event.
fn short<K: kube::Resource>(event: &Event<K>) -> String {
    match event {
        Event::Init => "init".into(),
        Event::InitApply(object) => format!("was {}", object.meta().name.clone().unwrap()),
        Event::InitDone => "done".into(),
        Event::Apply(object) => format!("apply {}", object.meta().name.clone().unwrap()),
        Event::Delete(object) => format!("delete {}", object.meta().name.clone().unwrap()),
    }
}

/// Creates one object, updates one and deletes one.
async fn change(api: &Api<ConfigMap>) {
    let params = PostParams::default();
    api.create(&params, &config_map("c", "1")).await.unwrap();
    let patch = Patch::Merge(json!({ "data": { "k": "2" } }));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
}

async fn namespace(client: &Client, name: &str) -> Api<ConfigMap> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let api = Api::namespaced(client.clone(), name);
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &config_map(name, "0"))
            .await
            .unwrap();
    }
    api
}

/// Returns the events of a watcher: the initial list, then those of [`change`].
async fn collect<K>(
    events: impl futures::Stream<Item = watcher::Result<Event<K>>>,
    api: &Api<ConfigMap>,
) -> Vec<String>
where
    K: kube::Resource,
{
    let mut events = std::pin::pin!(events);
    let mut seen = Vec::new();
    while seen.len() < 7 {
        let event = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await;
        let event = event.unwrap_or_else(|_| panic!("no event after {seen:?}"));
        seen.push(short(&event.unwrap().unwrap()));
        if seen.last().is_some_and(|last| last == "done") {
            change(api).await;
        }
    }
    seen
}

async fn watchers(client: Client, id: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let configs = [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
        watcher::Config::default().page_size(1),
        watcher::Config::default().any_semantic(),
        watcher::Config::default().disable_bookmarks(),
    ];
    for (index, config) in configs.into_iter().enumerate() {
        let api = namespace(&client, &format!("{id}-{index}")).await;
        all.push(collect(watcher(api.clone(), config.clone()), &api).await);
        let api = namespace(&client, &format!("{id}-{index}-meta")).await;
        let name = api.namespace().unwrap();
        let metadata = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), name);
        all.push(collect(watcher(metadata, config), &api).await);
    }
    all
}

/// Proves wire/tables, lists/pages, watch/bookmarks.
#[tokio::test]
async fn watchers_see_the_same_events_as_on_kubernetes() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let id = format!("watchers-{}", std::process::id());
    let ours = client_of(&bound.kubeconfig()).await;
    let (ours, real) = tokio::join!(watchers(ours, &id), watchers(bare_client().await, &id));
    assert_eq!(ours, real);
    let expected = [
        "init", "was a", "was b", "done", "apply c", "apply a", "delete b",
    ];
    assert!(ours.iter().all(|seen| *seen == expected), "{ours:?}");
    bound.shutdown().await;
}

/// Proves watch/complete-and-ordered.
#[tokio::test]
async fn kube_runtime_reflector_mirrors_our_server() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let client = client_of(&bound.kubeconfig()).await;
    let api = namespace(&client, "reflected").await;
    let (reader, writer) = store::<ConfigMap>();
    let events = watcher(api.clone(), watcher::Config::default().streaming_lists());
    let reflecting = tokio::spawn(reflector(writer, events).for_each(async |_| {}));
    reader.wait_until_ready().await.unwrap();
    change(&api).await;
    eventually("the mirrored state", async || {
        let mut state: Vec<(String, String)> = reader
            .state()
            .iter()
            .map(|object| (object.name_any(), object.data.clone().unwrap()["k"].clone()))
            .collect();
        state.sort();
        let expected = [("a", "2"), ("c", "1")].map(|(name, k)| (name.to_owned(), k.to_owned()));
        (state == expected).then_some(())
    })
    .await;
    reflecting.abort();
    bound.shutdown().await;
}

#[derive(Debug)]
struct Never;

impl std::fmt::Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("never")
    }
}

impl std::error::Error for Never {}

/// Runs a controller that maintains an owned copy of each ConfigMap labeled `copy=yes`.
///
/// Proves apply/merging, apply/ownership.
#[tokio::test]
async fn kube_runtime_controller_works_on_our_server() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let client = client_of(&bound.kubeconfig()).await;
    let api = namespace(&client, "controlled").await;
    let reconcile = |object: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>| async move {
        let name = format!("{}-copy", object.name_any());
        let owner = kube::Resource::controller_owner_ref(&*object, &()).unwrap();
        let copy = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "ownerReferences": [owner] }, "data": object.data });
        let params = PatchParams::apply("copier").force();
        api.patch(&name, &params, &Patch::Apply(copy))
            .await
            .unwrap();
        Ok::<_, Never>(Action::await_change())
    };
    let label = watcher::Config::default().labels("copy=yes");
    let controller = Controller::new(api.clone(), label)
        .owns(api.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, error: &Never, _| panic!("{error}"),
            Arc::new(api.clone()),
        )
        .for_each(async |_| {});
    let running = tokio::spawn(controller);
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "copy": "yes" } } }));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let first = eventually("a copy", async || api.get_opt("a-copy").await.unwrap()).await;
    api.delete("a-copy", &DeleteParams::default())
        .await
        .unwrap();
    eventually("another copy", async || {
        let copy = api.get_opt("a-copy").await.unwrap()?;
        (copy.uid() != first.uid()).then_some(())
    })
    .await;
    let patch = Patch::Merge(json!({ "data": { "k": "9" } }));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    eventually("the change in the copy", async || {
        let copy = api.get("a-copy").await.unwrap();
        (copy.data?["k"] == "9").then_some(())
    })
    .await;
    assert!(api.get_opt("b-copy").await.unwrap().is_none());
    running.abort();
    bound.shutdown().await;
}
