//! Events as they arrive in an API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use pintle::events::{ApiSink, EventBroadcaster, EventType};
use pintle_apiserver::ApiServer;

/// Proves events/sinks, events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn repeats_are_counted_in_the_server() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let metadata = ObjectMeta {
        name: Some("settings".into()),
        ..ObjectMeta::default()
    };
    let map = ConfigMap {
        metadata,
        ..ConfigMap::default()
    };
    let map = maps
        .create(&PostParams::default(), &map)
        .await
        .expect("created");

    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(ApiSink::new(client.clone()));
    let recorder = broadcaster.recorder("tidy");
    for _ in 0..3 {
        recorder.event(&map, EventType::Warning, "Unused", "nobody reads it");
    }
    recorder.event(&map, EventType::Normal, "Kept", "for a while");
    assert_eq!(broadcaster.shutdown(Duration::from_secs(5)).await.left, 0);

    let events: Api<Event> = Api::default_namespaced(client);
    let events = events
        .list(&ListParams::default())
        .await
        .expect("a list")
        .items;
    let mut told: Vec<_> = events
        .iter()
        .map(|event| {
            let about = &event.involved_object;
            assert_eq!(about.uid, map.metadata.uid);
            (
                event.reason.as_deref().unwrap_or_default(),
                event.count.unwrap_or_default(),
            )
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, [("Kept", 1), ("Unused", 3)]);
}
