//! Recorder, broadcaster and the `core/v1` sink together, under virtual time.

mod properties;
pub(super) mod support;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::support::{FakeServer, Fault, assert_conserved, broadcaster, counted, pod, settle};
use super::{EventBroadcaster, EventType, NewEvent, Reference};
use crate::metrics::Metrics;

const CORE: &str = "core/v1";
const SECOND: Duration = Duration::from_secs(1);

struct Fixture {
    metrics: Metrics,
    broadcaster: EventBroadcaster,
    server: FakeServer,
}

/// A broadcaster that writes core/v1 events to a fake server.
fn fixture() -> Fixture {
    let (metrics, server) = (Metrics::new(), FakeServer::default());
    let broadcaster = broadcaster(&metrics);
    broadcaster.start_recording_to_sink(server.clone());
    Fixture {
        metrics,
        broadcaster,
        server,
    }
}

impl Fixture {
    fn record(&self, pod_name: &str, message: &str) {
        let recorder = self.broadcaster.recorder("scaler");
        recorder.event(&pod(pod_name), EventType::Normal, "Scaled", message);
    }

    fn counted(&self, counter: &str) -> u64 {
        counted(&self.metrics, CORE, counter)
    }

    async fn shutdown(&self) -> usize {
        let flushed = self.broadcaster.shutdown(SECOND).await;
        assert_conserved(&self.metrics, CORE);
        flushed.left
    }
}

/// Proves events/name-and-fields.
#[tokio::test(start_paused = true)]
async fn event_has_the_fields_of_core_v1() {
    let events = fixture();
    events.record("web-0", "three now");
    assert_eq!(events.shutdown().await, 0);
    assert_eq!(
        events.server.stored(),
        [json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": "web-0.18867251edfa0000", "namespace": "shop" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod",
                "namespace": "shop", "name": "web-0", "uid": "uid-of-web-0",
            },
            "type": "Normal",
            "reason": "Scaled",
            "message": "three now",
            "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "source": { "component": "scaler" },
            "reportingComponent": "scaler",
        })]
    );
}

/// Proves events/name-and-fields.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_uses_the_default_namespace() {
    let events = fixture();
    let mut node = Node::default();
    node.metadata.name = Some("node-1".into());
    events
        .broadcaster
        .recorder("kubelet")
        .event(&node, EventType::Warning, "Full", "disk");
    events.shutdown().await;
    let event = &events.server.stored()[0];
    assert_eq!(event["metadata"]["namespace"], "default");
    assert_eq!(event["involvedObject"].get("namespace"), None);
}

/// Proves events/name-and-fields.
#[tokio::test(start_paused = true)]
async fn events_of_one_instant_have_different_names() {
    let events = fixture();
    for message in ["a", "b", "c"] {
        events.record("web-0", message);
    }
    events.shutdown().await;
    assert_eq!(events.server.stored().len(), 3);
    assert_eq!(events.counted("written"), 3);
}

/// Proves events/name-and-fields.
#[tokio::test(start_paused = true)]
async fn object_without_kind_is_refused_and_counted() {
    let events = fixture();
    let unknown = Reference::from(ObjectReference::default());
    events
        .broadcaster
        .recorder("scaler")
        .event(&unknown, EventType::Normal, "Lost", "no kind");
    events.shutdown().await;
    assert_eq!(events.counted("recorded"), 0);
    assert!(
        events
            .metrics
            .encode()
            .contains("pintle_events_refused_total 1")
    );
}

/// Proves events/name-and-fields.
#[tokio::test(start_paused = true)]
async fn field_path_related_and_annotations_are_written() {
    let events = fixture();
    let container = Reference::of(&pod("web-0"), &()).field_path("spec.containers{web}");
    let event = NewEvent::new(&container, EventType::Normal, "Started", "up")
        .action("Start")
        .related(&pod("web-1"))
        .annotation("team", "shop");
    events.broadcaster.recorder("kubelet").publish(event);
    events.shutdown().await;
    let event = &events.server.stored()[0];
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{web}");
    assert_eq!(event["related"]["name"], "web-1");
    assert_eq!(event["action"], "Start");
    assert_eq!(event["metadata"]["annotations"], json!({ "team": "shop" }));
}

/// Proves events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn repeat_patches_only_count_time_and_message() {
    let events = fixture();
    events.record("web-0", "again");
    sleep(5 * SECOND).await;
    events.record("web-0", "again");
    events.shutdown().await;
    let calls = events.server.calls();
    assert_eq!(events.server.verbs(), ["create", "patch"]);
    assert_eq!(calls[1].name, calls[0].name);
    let patch = &calls[1].body;
    let expected =
        json!({ "count": 2, "lastTimestamp": "2026-01-01T00:00:05Z", "message": "again" });
    assert_eq!(*patch, expected);
}

/// Proves events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn expired_event_is_created_again_with_its_count() {
    let events = fixture();
    events.record("web-0", "again");
    settle().await;
    events.server.expire();
    events.record("web-0", "again");
    events.shutdown().await;
    assert_eq!(events.server.verbs(), ["create", "patch", "create"]);
    assert_eq!(events.server.stored()[0]["count"], 2);
    assert_eq!(
        events.server.stored()[0]["metadata"].get("resourceVersion"),
        None
    );
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn rejected_event_is_not_retried() {
    let refusals = [
        Fault::Refused(500, "InternalError"),
        Fault::Refused(403, "Forbidden"),
        Fault::Refused(409, "AlreadyExists"),
        Fault::NamespaceTerminating,
    ];
    let events = fixture();
    for (i, refusal) in refusals.into_iter().enumerate() {
        events.server.fail_next([refusal]);
        events.record("web-0", &format!("message {i}"));
    }
    sleep(200 * SECOND).await;
    assert_eq!(events.server.verbs(), ["create"; 4]);
    assert_eq!(events.counted("failed"), 4);
    events.record("web-0", "the next");
    events.shutdown().await;
    assert_eq!(events.counted("written"), 1);
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn unreachable_server_is_tried_every_ten_seconds() {
    let events = fixture();
    events.server.outage(Some(Fault::Unreachable));
    events.record("web-0", "lost");
    sleep(300 * SECOND).await;
    let times: Vec<_> = events.server.calls().iter().map(|call| call.at).collect();
    assert_eq!(times.len(), 12);
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        waits[0] < 10 * SECOND,
        "the first wait is any part of ten seconds"
    );
    let full = |wait: &Duration| (10 * SECOND..=10 * SECOND + SECOND / 100).contains(wait);
    assert!(waits[1..].iter().all(full), "{waits:?}");
    assert_eq!(
        (events.counted("retried"), events.counted("failed")),
        (11, 1)
    );
    events.shutdown().await;
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn busy_server_is_retried() {
    let events = fixture();
    events.server.fail_next([
        Fault::Refused(429, "TooManyRequests"),
        Fault::Refused(503, ""),
    ]);
    events.record("web-0", "in time");
    sleep(30 * SECOND).await;
    assert_eq!(
        (events.counted("retried"), events.counted("written")),
        (2, 1)
    );
    events.shutdown().await;
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn hanging_server_does_not_block_the_sink() {
    let events = fixture();
    events.server.fail_next([Fault::Hangs]);
    events.record("web-0", "patience");
    sleep(45 * SECOND).await;
    assert_eq!(
        (events.counted("retried"), events.counted("written")),
        (1, 1)
    );
    events.shutdown().await;
}

/// Proves events/sinks.
#[tokio::test(start_paused = true)]
async fn panic_in_a_sink_costs_one_event() {
    let events = fixture();
    events.server.fail_next([Fault::Panics]);
    events.record("web-0", "bad luck");
    events.record("web-0", "good luck");
    events.shutdown().await;
    assert_eq!(
        (events.counted("failed"), events.counted("written")),
        (1, 1)
    );
}

/// Proves events/never-blocks, events/retries, events/sinks.
#[tokio::test(start_paused = true)]
async fn full_queue_drops_events_and_never_blocks() {
    let events = fixture();
    events.server.outage(Some(Fault::Unreachable));
    let start = Instant::now();
    events.record("web-0", "first");
    settle().await;
    for i in 0..1100 {
        events.record(&format!("pod-{i}"), "more");
    }
    assert!(start.elapsed() < SECOND / 100);
    assert_eq!(events.counted("recorded"), 1101);
    assert_eq!(events.counted("dropped"), 100);
    events.server.outage(None);
    assert_eq!(events.shutdown().await, 0);
    assert_eq!(events.counted("written"), 1001);
}

/// Proves events/sinks.
#[tokio::test(start_paused = true)]
async fn sinks_are_independent_and_see_only_later_events() {
    let events = fixture();
    events.server.outage(Some(Fault::Hangs));
    events.record("web-0", "before");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    events
        .broadcaster
        .start_event_watcher(move |event| log.lock().push(event.message.clone()));
    let second = FakeServer::default();
    events.broadcaster.start_recording_to_sink(second.clone());
    for i in 0..1500 {
        events.record("web-0", "after");
        if i % 100 == 0 {
            settle().await;
        }
    }
    settle().await;
    assert_eq!(seen.lock().len(), 1500);
    assert!(seen.lock().iter().all(|message| message == "after"));
    assert_eq!(second.stored()[0]["message"], "after");
    assert_eq!(
        events.server.calls().len(),
        1,
        "the first sink is still stuck"
    );
    assert_eq!(events.broadcaster.shutdown(SECOND).await.left, 1001);
    assert_conserved(&events.metrics, CORE);
    assert_conserved(&events.metrics, "function");
}

/// Proves events/sinks, events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn each_sink_counts_repeats_separately() {
    let events = fixture();
    events.record("web-0", "again");
    let second = FakeServer::default();
    events.broadcaster.start_recording_to_sink(second.clone());
    events.record("web-0", "again");
    events.shutdown().await;
    assert_eq!(events.server.verbs(), ["create", "patch"]);
    assert_eq!(second.verbs(), ["create"]);
}

/// Proves events/sinks.
#[tokio::test(start_paused = true)]
async fn panicking_watcher_gets_the_next_event() {
    let metrics = Metrics::new();
    let broadcaster = broadcaster(&metrics);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    broadcaster.start_event_watcher(move |event| {
        assert_ne!(event.message, "bad");
        log.lock().push(event.message.clone());
    });
    let recorder = broadcaster.recorder("scaler");
    for message in ["good", "bad", "better"] {
        recorder.event(&pod("web-0"), EventType::Normal, "Said", message);
    }
    assert_eq!(broadcaster.shutdown(SECOND).await.left, 0);
    assert_eq!(*seen.lock(), ["good", "better"]);
    assert_eq!(counted(&metrics, "function", "failed"), 1);
    assert_conserved(&metrics, "function");
}

/// Proves events/sinks.
#[tokio::test(start_paused = true)]
async fn stopped_sink_writes_only_queued_events() {
    let metrics = Metrics::new();
    let broadcaster = broadcaster(&metrics);
    let server = FakeServer::default();
    let sink = broadcaster.start_recording_to_sink(server.clone());
    let recorder = broadcaster.recorder("scaler");
    recorder.event(&pod("web-0"), EventType::Normal, "Said", "before");
    sink.stop();
    recorder.event(&pod("web-0"), EventType::Normal, "Said", "after");
    let flushed = broadcaster.shutdown(SECOND).await;
    assert_eq!((flushed.left, server.calls().len()), (0, 1));
}

/// Proves events/retries, events/shutdown-flushes.
#[tokio::test(start_paused = true)]
async fn shutdown_tries_every_queued_event_once() {
    let events = fixture();
    events.server.outage(Some(Fault::Unreachable));
    for message in ["a", "b", "c"] {
        events.record("web-0", message);
    }
    settle().await;
    assert_eq!(events.server.calls().len(), 1, "a waits for its second try");
    let start = Instant::now();
    assert_eq!(events.shutdown().await, 0);
    assert!(start.elapsed() < SECOND, "nothing waited");
    assert_eq!(events.server.calls().len(), 4, "a once more, b and c once");
    assert_eq!(events.counted("failed"), 3);
}

/// Proves events/shutdown-flushes.
#[tokio::test(start_paused = true)]
async fn shutdown_meets_its_deadline_and_reports_the_rest() {
    let events = fixture();
    events.server.outage(Some(Fault::Hangs));
    for message in ["a", "b", "c"] {
        events.record("web-0", message);
    }
    let start = Instant::now();
    assert_eq!(events.shutdown().await, 3);
    assert!(start.elapsed() < SECOND + SECOND / 100);
    assert_eq!(events.counted("dropped"), 3);
    assert_eq!(events.shutdown().await, 3, "a second call reports the same");
}

/// Proves events/never-blocks.
#[tokio::test(start_paused = true)]
async fn recording_after_shutdown_is_only_counted() {
    let events = fixture();
    events.shutdown().await;
    events.record("web-0", "too late");
    events.broadcaster.start_logging();
    settle().await;
    assert!(events.server.calls().is_empty());
    assert!(
        events
            .metrics
            .encode()
            .contains("pintle_events_refused_total 1")
    );
}

/// Proves events/shutdown-flushes.
#[tokio::test(start_paused = true)]
async fn dropping_every_handle_writes_queued_events() {
    let Fixture {
        broadcaster,
        server,
        ..
    } = fixture();
    let recorder = broadcaster.recorder("scaler");
    drop(broadcaster);
    recorder.event(&pod("web-0"), EventType::Normal, "Said", "last words");
    drop(recorder);
    settle().await;
    assert_eq!(server.stored().len(), 1);
}

/// Proves events/spam-filter.
#[tokio::test(start_paused = true)]
async fn throttled_object_is_written_with_its_true_count() {
    let events = fixture();
    for _ in 0..100 {
        events.record("web-0", "crash");
    }
    settle().await;
    assert_eq!(
        (events.counted("written"), events.counted("filtered")),
        (25, 75)
    );
    sleep(300 * SECOND).await;
    events.record("web-0", "crash");
    events.shutdown().await;
    let counts: Vec<Value> = events
        .server
        .stored()
        .iter()
        .map(|e| e["count"].clone())
        .collect();
    assert_eq!(counts, [101]);
}

/// Proves events/never-blocks, events/sinks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_recording_during_shutdown_is_counted() {
    let events = fixture();
    let recorders: Vec<_> = (0..4)
        .map(|i| {
            let recorder = events.broadcaster.recorder(format!("scaler-{i}"));
            tokio::spawn(async move {
                for n in 0..500 {
                    recorder.event(&pod("web-0"), EventType::Normal, "Said", format!("{n}"));
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let flushed = events.broadcaster.shutdown(10 * SECOND).await;
    for recorder in recorders {
        recorder.await.expect("recording never fails");
    }
    assert_eq!(flushed.left, 0);
    assert_conserved(&events.metrics, CORE);
    let metrics = events.metrics.encode();
    let refused = metrics
        .lines()
        .find_map(|line| line.strip_prefix("pintle_events_refused_total "));
    let refused: u64 = refused.map_or(0, |count| count.parse().expect("a number"));
    assert_eq!(events.counted("recorded") + refused, 2000);
}
