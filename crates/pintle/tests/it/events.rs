//! Events as the API server stores them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{Api, api::ListParams};
use pintle::events::{ApiSink, EventBroadcaster, EventType};
use pintle_apiserver::ApiServer;

use crate::support::{config_map, create};

/// Proves events/sinks, events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn repeats_are_counted_on_the_server() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = create(&maps, &config_map("settings", "1")).await;

    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(ApiSink::new(client.clone()));
    let recorder = broadcaster.recorder("tidy");
    for _ in 0..3 {
        recorder.event(&map, EventType::Warning, "Unused", "no Pod mounts it");
    }
    recorder.event(&map, EventType::Normal, "Kept", "for a while");
    assert_eq!(broadcaster.shutdown(Duration::from_secs(5)).await.left, 0);

    let events: Api<Event> = Api::default_namespaced(client);
    let events = events
        .list(&ListParams::default())
        .await
        .expect("a list")
        .items;
    let mut counts: Vec<_> = events
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
    counts.sort_unstable();
    assert_eq!(counts, [("Kept", 1), ("Unused", 3)]);
}
