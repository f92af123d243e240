//! kube-client on kube-apiserver: create, watch, update, delete.

use std::fmt::Debug;

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Resource, ResourceExt as _};
use real_tests::{TestNamespace, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{from_value, json};

#[tokio::test]
async fn config_map_lifecycle_is_watched() {
    let namespace = TestNamespace::create().await;
    let first: ConfigMap =
        from_value(json!({ "metadata": { "name": "settings" }, "data": { "color": "red" } }))
            .unwrap();
    let seen = lifecycle(&namespace.api(), first, |map: &mut ConfigMap| {
        map.data
            .get_or_insert_default()
            .insert("color".into(), "blue".into());
    })
    .await;

    let colors: Vec<&str> = seen
        .iter()
        .map(|map| map.data.as_ref().unwrap()["color"].as_str())
        .collect();
    assert_eq!(colors, ["red", "blue", "blue"]);
}

#[tokio::test]
async fn custom_resource_lifecycle_is_watched() {
    let namespace = TestNamespace::create().await;
    let resource = define_widgets(&namespace).await;
    let widgets = namespace.dynamic_api(&resource);
    let mut first = DynamicObject::new("one", &resource);
    first.data = json!({ "spec": { "size": 1 } });
    let seen = lifecycle(&widgets, first, |widget| {
        widget.data["spec"]["size"] = json!(2);
    })
    .await;

    let sizes: Vec<_> = seen
        .iter()
        .map(|widget| widget.data["spec"]["size"].clone())
        .collect();
    assert_eq!(sizes, [json!(1), json!(2), json!(2)]);
    let generations: Vec<_> = seen
        .iter()
        .map(|widget| widget.metadata.generation)
        .collect();
    assert_eq!(&generations[..2], [Some(1), Some(2)]);
}

/// Creates, updates and deletes an object. Returns the three objects a watch delivered. The watch
/// selects the object by name, because the control plane adds its own objects to namespaces.
async fn lifecycle<K>(api: &Api<K>, first: K, change: impl FnOnce(&mut K)) -> Vec<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let start = api.list(&ListParams::default()).await.unwrap();
    let start = start.metadata.resource_version.unwrap();
    let this_one = WatchParams::default().fields(&format!("metadata.name={}", first.name_any()));
    let events = api.watch(&this_one, &start).await.unwrap();
    let mut events = std::pin::pin!(events);

    let mut object = api.create(&PostParams::default(), &first).await.unwrap();
    let added = expect(&mut events, "added").await;
    change(&mut object);
    let object = api
        .replace(&object.name_any(), &PostParams::default(), &object)
        .await
        .unwrap();
    let modified = expect(&mut events, "modified").await;
    api.delete(&object.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    let deleted = expect(&mut events, "deleted").await;

    assert_eq!(modified.resource_version(), object.resource_version());
    assert_ne!(deleted.resource_version(), object.resource_version());
    assert_eq!(
        api.get_opt(&object.name_any())
            .await
            .unwrap()
            .map(|o| o.name_any()),
        None
    );
    vec![added, modified, deleted]
}

/// Returns the object of the next watch event, which must have the given type.
async fn expect<K: Debug>(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
    kind: &str,
) -> K {
    let event = events.try_next().await.unwrap();
    match (event, kind) {
        (Some(WatchEvent::Added(object)), "added")
        | (Some(WatchEvent::Modified(object)), "modified")
        | (Some(WatchEvent::Deleted(object)), "deleted") => object,
        (other, _) => panic!("expected an object {kind}, got {other:?}"),
    }
}

/// Creates a CRD in a unique group, owned by the namespace of the test.
async fn define_widgets(namespace: &TestNamespace) -> ApiResource {
    let group = format!("{}.example.com", namespace.name());
    let crd: CustomResourceDefinition = from_value(json!({
        "metadata": {
            "name": format!("widgets.{group}"),
            "ownerReferences": [namespace.owner_reference()],
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": {
                        "type": "object",
                        "properties": { "size": { "type": "integer", "minimum": 0 } },
                    } },
                } },
            }],
        },
    }))
    .unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(namespace.client());
    definitions
        .create(&PostParams::default(), &crd)
        .await
        .unwrap();

    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(&group, "v1", "Widget"),
        "widgets",
    );
    let widgets = namespace.dynamic_api(&resource);
    eventually("widgets to be served", async || {
        widgets.list(&ListParams::default()).await.ok()
    })
    .await;
    resource
}
