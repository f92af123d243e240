use super::*;
use crate::{
    cache::{IndexError, Reader},
    metrics::Metrics,
    source::WatchEvent,
    testing::contents,
};

/// Proves informer/handler-order, informer/has-synced, informer/late-handler-sees-existing.
/// Proves informer/registration-synced, fifo/cache-decides-kind.
/// Proves cache/version.
#[tokio::test(start_paused = true)]
async fn existing_objects_come_first_then_every_change() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let informer = SharedInformer::new(server.clone());
    let (events, registration) = EventLog::of(&informer);
    assert!(!informer.has_synced() && !registration.has_synced());
    assert_eq!(informer.lister().resource_version(), "");
    let running = run(informer.clone());
    assert!(registration.synced().await);
    assert!(informer.has_synced());
    assert_eq!(events.take(), ["+* n/a 2", "+* n/b 3"]);

    server.put("n/a", "2");
    server.put("n/c", "1");
    server.delete("n/b");
    settle().await;
    assert_eq!(events.take(), ["= n/a 2→4", "+ n/c 5", "- n/b 6"]);
    assert_eq!(contents(&informer.lister().list()), server.contents());
    assert_eq!(informer.lister().resource_version(), "6");
    assert!(informer.status().borrow().synced);
    running.stop().await;
    assert!(informer.is_stopped());
}

/// Proves fifo/entries, cache/version.
#[tokio::test(start_paused = true)]
async fn bookmark_advances_the_version_without_an_event() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let (events, registration) = EventLog::of(&running.informer);
    assert!(registration.synced().await);
    events.take();
    let version = server.bookmark();
    settle().await;
    assert_eq!(
        running.informer.lister().resource_version(),
        version.to_string()
    );
    assert!(events.take().is_empty());
}

/// Proves fifo/cache-decides-kind, fifo/entries.
#[tokio::test(start_paused = true)]
async fn cache_decides_kind_and_deletions_always_pass() {
    let server = Server::new();
    let running = synced(&server).await;
    let (events, _registration) = EventLog::of(&running.informer);
    let json = |version| {
        crate::testing::json_of("n/a", "u", version, "x")
            .to_string()
            .into()
    };
    server.say(WatchEvent::Modified(json(100)));
    server.say(WatchEvent::Added(json(101)));
    server.say(WatchEvent::Deleted(json(102)));
    server.say(WatchEvent::Deleted(json(103)));
    settle().await;
    assert_eq!(
        events.take(),
        ["+ n/a 100", "= n/a 100→101", "- n/a 102", "- n/a 103"]
    );
    assert!(running.informer.lister().is_empty());
}

/// Proves reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn undecodable_object_is_cached_and_affects_no_other() {
    let server = Server::new();
    let running = synced(&server).await;
    let (events, _registration) = EventLog::of(&running.informer);
    let odd = br#"{"metadata":{"name":"odd","resourceVersion":"50"},"data":7}"#;
    server.say(WatchEvent::Added(odd.as_slice().into()));
    server.say(WatchEvent::Added(br#"{"metadata":{}}"#.as_slice().into()));
    server.put("n/a", "1");
    settle().await;
    assert_eq!(events.take(), ["+ odd 50", "+ n/a 4"]);
    let odd = running
        .informer
        .lister()
        .get(&"odd".parse().unwrap())
        .unwrap();
    assert!(
        odd.get()
            .unwrap_err()
            .to_string()
            .starts_with("cannot decode object odd")
    );
    assert_eq!(running.informer.status().borrow().unreadable, 1);
}

/// Proves fifo/transform.
#[tokio::test(start_paused = true)]
async fn transform_runs_once_per_object_and_state() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let reader = Reader::new().transform(move |value| {
        seen.lock().push(
            value["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
        value["data"]["value"] = "changed".into();
        Ok(())
    });
    let informer = SharedInformer::builder(server.clone())
        .reader(reader)
        .build();
    let running = run(informer);
    running.informer.synced().await;
    server.put("n/a", "2");
    settle().await;
    assert_eq!(*calls.lock(), ["2", "3", "4"]);
    // A relist leaves unchanged objects alone.
    server.forget_history();
    recover().await;
    assert_eq!(*calls.lock(), ["2", "3", "4"]);
    let values = contents(&running.informer.lister().list());
    assert!(values.iter().all(|(_, _, _, value)| value == "changed"));
}

/// Proves cache/indexes, informer/stop.
#[tokio::test(start_paused = true)]
async fn indexes_can_be_added_until_the_informer_stops() {
    let server = Server::new();
    server.put("n/a", "x");
    let informer = SharedInformer::new(server.clone());
    informer.index_field("early", "/data/value").unwrap();
    let running = run(informer);
    let informer = running.informer.clone();
    informer.synced().await;
    informer
        .index_by("late", |thing| {
            thing.data.clone().unwrap().into_values().collect()
        })
        .unwrap();
    server.put("n/b", "x");
    settle().await;
    for index in ["early", "late"] {
        assert_eq!(informer.lister().by_index(index, "x").unwrap().len(), 2);
    }
    running.stop().await;
    let refused = informer.index_field("after", "/data").unwrap_err();
    assert_eq!(
        refused,
        IndexError::Stopped {
            name: "after".into()
        }
    );
    assert!(matches!(
        informer.index_by("after", |_| vec![]),
        Err(IndexError::Stopped { .. })
    ));
    assert_eq!(informer.lister().len(), 2, "the cache can still be read");
}

/// Proves informer/stop.
#[tokio::test(start_paused = true)]
async fn informer_runs_once() {
    let server = Server::new();
    let running = synced(&server).await;
    let informer = running.informer.clone();
    // A second run returns immediately.
    informer.run(&CancellationToken::new()).await;
    assert!(!informer.is_stopped());
    running.stop().await;
    assert!(informer.is_stopped());
    informer.run(&CancellationToken::new()).await;
    assert_eq!(server.lists(), 1);

    let (events, registration) = EventLog::of(&informer);
    assert!(registration.has_ended());
    assert!(!registration.synced().await);
    registration.shutdown().await;
    assert!(events.take().is_empty());
    assert!(informer.synced().await, "it had synced");
    assert!(!SharedInformer::<Thing>::new(server).has_synced());
}

/// Proves informer/has-synced.
#[tokio::test(start_paused = true)]
async fn stopping_before_the_sync_ends_the_wait() {
    let server = Server::new();
    for _ in 0..100 {
        server.refuse_list(crate::source::ApiError::new(403, "Forbidden", "no"));
    }
    let running = run(SharedInformer::new(server));
    let informer = running.informer.clone();
    let (_events, registration) = EventLog::of(&informer);
    let waiting = tokio::spawn(async move { informer.synced().await });
    recover().await;
    assert!(!waiting.is_finished());
    let status = running.informer.status().borrow().to_string();
    assert!(status.contains("403 Forbidden on things"), "{status}");
    running.stop().await;
    assert!(!waiting.await.unwrap());
    assert!(!registration.synced().await);
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn metrics_count_events_panics_and_unindexed() {
    let server = Server::new();
    server.put("n/a", "1");
    let metrics = Metrics::new();
    let informer = SharedInformer::builder(server.clone())
        .metrics(metrics.clone())
        .build();
    let running = run(informer);
    let informer = &running.informer;
    informer
        .index_by("odd", |_| panic!("panic for the test"))
        .unwrap();
    let registration = informer
        .handler()
        .name("loud")
        .on_event(|_| panic!("panic for the test"));
    let mut idle = informer.handler().name("idle").stream();
    registration.synced().await;
    let text = metrics.encode();
    let labels = r#"name="",resource="things""#;
    for line in [
        format!("informer_queued_items{{{labels}}} 0"),
        format!("informer_store_resource_version{{{labels}}} 2.0"),
        format!("informer_unindexed_objects_total{{{labels}}} 1"),
        format!("informer_processing_latency_seconds_count{{{labels}}} 1"),
        format!(r#"informer_handler_panics_total{{{labels},handler="loud"}} 1"#),
        format!(r#"informer_handler_waiting_events{{{labels},handler="idle"}} 1"#),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    futures::StreamExt::next(&mut idle).await.unwrap();
    let line = format!(r#"informer_handler_waiting_events{{{labels},handler="idle"}} 0"#);
    assert!(metrics.encode().contains(&line));
}
