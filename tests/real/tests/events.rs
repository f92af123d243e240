//! Events, owner references and finalizers on a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::api::events;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use pintle::events::{ApiSink, EventBroadcaster, EventRecorder, EventType, NewEvent};
use pintle::finalizer::{Finalizer, Guard};
use pintle::owner::set_controller;
use real_tests::{TestNamespace, eventually};
use serde_json::{from_value, json};

async fn config_map(namespace: &TestNamespace, name: &str) -> ConfigMap {
    let map: ConfigMap = from_value(json!({ "metadata": { "name": name } })).unwrap();
    let maps = namespace.api::<ConfigMap>();
    maps.create(&PostParams::default(), &map).await.unwrap()
}

fn repeat(recorder: &EventRecorder, object: &ConfigMap, times: usize) {
    for _ in 0..times {
        recorder.event(object, EventType::Warning, "Unused", "no reader");
    }
}

async fn flush(broadcaster: &EventBroadcaster) {
    let flushed = broadcaster.shutdown(Duration::from_secs(30)).await;
    assert_eq!(flushed.left, 0);
}

/// Proves events/name-and-fields, events/aggregation, events/repeats-patch.
#[tokio::test]
async fn core_events_are_counted_and_aggregated() {
    let namespace = TestNamespace::create().await;
    let map = config_map(&namespace, "settings").await;
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(ApiSink::new(real_tests::client().await));
    let recorder = broadcaster.recorder("tidy");
    repeat(&recorder, &map, 3);
    for i in 0..12 {
        recorder.event(&map, EventType::Normal, "Seen", format!("message {i}"));
    }
    flush(&broadcaster).await;

    let events = namespace.api::<Event>();
    let recorded = events.list(&ListParams::default()).await.unwrap().items;
    let of = |reason: &str| -> Vec<&Event> {
        let reason = Some(reason);
        recorded
            .iter()
            .filter(|event| event.reason.as_deref() == reason)
            .collect()
    };
    let unused = of("Unused");
    assert_eq!(unused.len(), 1);
    assert_eq!(unused[0].count, Some(3));
    assert_eq!(unused[0].involved_object.uid, map.uid());
    assert_eq!(of("Seen").len(), 10, "nine single events and one combined");
    let combined = recorded.iter().find(|event| {
        event.message.as_deref() == Some("(combined from similar events): message 11")
    });
    assert_eq!(combined.unwrap().count, Some(3));
}

/// Proves events/v1-fields, events/v1-series, events/v1-discovery.
#[tokio::test]
async fn v1_events_become_series() {
    let namespace = TestNamespace::create().await;
    let map = config_map(&namespace, "settings").await;
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording(real_tests::client().await);
    let recorder = broadcaster.recorder("tidy");
    let long = NewEvent::new(&map, EventType::Normal, "Long", "ä".repeat(1000)).related(&map);
    recorder.publish(long.action("Talking"));
    recorder.event(&map, EventType::Warning, "Unused", "no reader");
    let events = namespace.api::<events::v1::Event>();
    let find = async |reason: &str| {
        let list = events.list(&ListParams::default()).await.unwrap();
        list.items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some(reason))
    };
    eventually("the first event", async || find("Unused").await).await;
    repeat(&recorder, &map, 4);
    flush(&broadcaster).await;

    let series = find("Unused").await.unwrap().series.unwrap();
    assert_eq!(series.count, 5);
    let long = find("Long").await.unwrap();
    assert_eq!(long.note.unwrap().len(), 1024);
    assert_eq!(long.action.as_deref(), Some("Talking"));
}

/// Proves events/name-and-fields.
#[tokio::test]
async fn event_of_a_cluster_scoped_object_is_stored() {
    let test_namespace = TestNamespace::create().await;
    let client = real_tests::client().await;
    let map = config_map(&test_namespace, "settings").await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get(&map.namespace().unwrap()).await.unwrap();
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(ApiSink::new(client.clone()));
    broadcaster.start_recording_series_to_sink(ApiSink::new(client.clone()));
    let recorder = broadcaster.recorder("tidy");
    recorder.event(&namespace, EventType::Normal, "Looked", "at a namespace");
    flush(&broadcaster).await;
    let about = format!("involvedObject.uid={}", namespace.uid().unwrap());
    let events: Api<Event> = Api::namespaced(client, "default");
    let recorded = events
        .list(&ListParams::default().fields(&about))
        .await
        .unwrap();
    // Both sinks write the same name, and both APIs share one store.
    assert_eq!(recorded.items.len(), 1);
}

/// Proves owner/reference, finalizer/stored-first.
#[tokio::test]
async fn finalizer_delays_deletion_of_owner_and_children() {
    let namespace = TestNamespace::create().await;
    let maps = namespace.api::<ConfigMap>();
    let owner = config_map(&namespace, "owner").await;
    let finalizer = Finalizer::new("example.org/bucket").unwrap();
    assert!(matches!(
        finalizer.guard(&maps, &owner).await.unwrap(),
        Guard::Held(_)
    ));
    assert!(
        finalizer.guard(&maps, &owner).await.is_err(),
        "a stale object is rejected"
    );

    let mut child: ConfigMap = from_value(json!({ "metadata": { "name": "child" } })).unwrap();
    child.metadata.namespace = owner.namespace();
    assert!(set_controller(&owner, &mut child).unwrap());
    maps.create(&PostParams::default(), &child).await.unwrap();

    maps.delete("owner", &DeleteParams::default())
        .await
        .unwrap();
    let deleted = maps.get("owner").await.unwrap();
    let Guard::CleanUp(clean_up) = finalizer.guard(&maps, &deleted).await.unwrap() else {
        panic!("the object is being deleted");
    };
    clean_up.release().await.unwrap();
    assert!(maps.get_opt("owner").await.unwrap().is_none());
    eventually("the child to be deleted", async || {
        maps.get_opt("child").await.unwrap().is_none().then_some(())
    })
    .await;
}
