//! The in-process `kube::Client`.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{
        DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent,
        WatchParams,
    },
};
use pintle_apiserver::ApiServer;

/// Proves auth/in-process.
#[tokio::test(start_paused = true)]
async fn typed_client_works_in_process() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let list = maps.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let mut events = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("a".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    let error = maps.create(&PostParams::default(), &map).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.is_already_exists()));
    let patch = Patch::Merge(serde_json::json!({"data": {"k": "v"}}));
    maps.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let Some(Ok(WatchEvent::Added(seen))) = events.next().await else {
        panic!("expected an ADDED event")
    };
    assert_eq!(seen.uid(), created.uid());
    assert!(matches!(
        events.next().await,
        Some(Ok(WatchEvent::Modified(_)))
    ));
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(matches!(
        events.next().await,
        Some(Ok(WatchEvent::Deleted(_)))
    ));
}
