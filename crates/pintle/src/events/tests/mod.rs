//! Recorder, broadcaster and the core/v1 sink together, under virtual time.

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

struct Stage {
    metrics: Metrics,
    broadcaster: EventBroadcaster,
    server: FakeServer,
}

/// A broadcaster that writes core/v1 events to a fake server.
fn stage() -> Stage {
    let (metrics, server) = (Metrics::new(), FakeServer::default());
    let broadcaster = broadcaster(&metrics);
    broadcaster.start_recording_to_sink(server.clone());
    Stage {
        metrics,
        broadcaster,
        server,
    }
}

impl Stage {
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
async fn an_event_tells_who_saw_what_happen_to_whom_and_when() {
    let stage = stage();
    stage.record("web-0", "three now");
    assert_eq!(stage.shutdown().await, 0);
    assert_eq!(
        stage.server.stored(),
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
async fn an_event_about_a_cluster_wide_object_goes_to_the_default_namespace() {
    let stage = stage();
    let mut node = Node::default();
    node.metadata.name = Some("node-1".into());
    stage
        .broadcaster
        .recorder("kubelet")
        .event(&node, EventType::Warning, "Full", "disk");
    stage.shutdown().await;
    let event = &stage.server.stored()[0];
    assert_eq!(event["metadata"]["namespace"], "default");
    assert_eq!(event["involvedObject"].get("namespace"), None);
}

/// Proves events/name-and-fields.
#[tokio::test(start_paused = true)]
async fn events_of_one_instant_have_different_names() {
    let stage = stage();
    for message in ["a", "b", "c"] {
        stage.record("web-0", message);
    }
    stage.shutdown().await;
    assert_eq!(stage.server.stored().len(), 3);
    assert_eq!(stage.counted("written"), 3);
}

/// Proves events/valid-only.
#[tokio::test(start_paused = true)]
async fn an_object_without_kind_is_refused_and_counted() {
    let stage = stage();
    let nobody = Reference::from(ObjectReference::default());
    stage
        .broadcaster
        .recorder("scaler")
        .event(&nobody, EventType::Normal, "Lost", "who?");
    stage.shutdown().await;
    assert_eq!(stage.counted("recorded"), 0);
    assert!(
        stage
            .metrics
            .encode()
            .contains("pintle_events_refused_total 1")
    );
}

/// Proves events/valid-only.
#[tokio::test(start_paused = true)]
async fn a_part_of_an_object_a_related_one_and_annotations_are_told() {
    let stage = stage();
    let container = Reference::of(&pod("web-0"), &()).field_path("spec.containers{web}");
    let event = NewEvent::new(&container, EventType::Normal, "Started", "up")
        .action("Start")
        .related(&pod("web-1"))
        .annotation("who", "me");
    stage.broadcaster.recorder("kubelet").publish(event);
    stage.shutdown().await;
    let event = &stage.server.stored()[0];
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{web}");
    assert_eq!(event["related"]["name"], "web-1");
    assert_eq!(event["action"], "Start");
    assert_eq!(event["metadata"]["annotations"], json!({ "who": "me" }));
}

/// Proves events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn a_repeat_patches_count_time_and_message_and_nothing_else() {
    let stage = stage();
    stage.record("web-0", "again");
    sleep(5 * SECOND).await;
    stage.record("web-0", "again");
    stage.shutdown().await;
    let calls = stage.server.calls();
    assert_eq!(stage.server.verbs(), ["create", "patch"]);
    assert_eq!(calls[1].name, calls[0].name);
    let patch = &calls[1].body;
    let expected =
        json!({ "count": 2, "lastTimestamp": "2026-01-01T00:00:05Z", "message": "again" });
    assert_eq!(*patch, expected);
}

/// Proves events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_created_again_with_its_count() {
    let stage = stage();
    stage.record("web-0", "again");
    settle().await;
    stage.server.expire();
    stage.record("web-0", "again");
    stage.shutdown().await;
    assert_eq!(stage.server.verbs(), ["create", "patch", "create"]);
    assert_eq!(stage.server.stored()[0]["count"], 2);
    assert_eq!(
        stage.server.stored()[0]["metadata"].get("resourceVersion"),
        None
    );
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_final() {
    let refusals = [
        Fault::Refused(500, "InternalError"),
        Fault::Refused(403, "Forbidden"),
        Fault::Refused(409, "AlreadyExists"),
        Fault::NamespaceTerminating,
    ];
    let stage = stage();
    for (i, refusal) in refusals.into_iter().enumerate() {
        stage.server.fail_next([refusal]);
        stage.record("web-0", &format!("message {i}"));
    }
    sleep(200 * SECOND).await;
    assert_eq!(stage.server.verbs(), ["create"; 4]);
    assert_eq!(stage.counted("failed"), 4);
    stage.record("web-0", "the next");
    stage.shutdown().await;
    assert_eq!(stage.counted("written"), 1);
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn a_server_out_of_reach_is_tried_twelve_times_ten_seconds_apart() {
    let stage = stage();
    stage.server.outage(Some(Fault::Unreachable));
    stage.record("web-0", "lost");
    sleep(300 * SECOND).await;
    let times: Vec<_> = stage.server.calls().iter().map(|call| call.at).collect();
    assert_eq!(times.len(), 12);
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        waits[0] < 10 * SECOND,
        "the first wait is any part of ten seconds"
    );
    let full = |wait: &Duration| (10 * SECOND..=10 * SECOND + SECOND / 100).contains(wait);
    assert!(waits[1..].iter().all(full), "{waits:?}");
    assert_eq!((stage.counted("retried"), stage.counted("failed")), (11, 1));
    stage.shutdown().await;
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again() {
    let stage = stage();
    stage.server.fail_next([
        Fault::Refused(429, "TooManyRequests"),
        Fault::Refused(503, ""),
    ]);
    stage.record("web-0", "in time");
    sleep(30 * SECOND).await;
    assert_eq!((stage.counted("retried"), stage.counted("written")), (2, 1));
    stage.shutdown().await;
}

/// Proves events/retries.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_does_not_hold_the_sink_for_ever() {
    let stage = stage();
    stage.server.fail_next([Fault::Hangs]);
    stage.record("web-0", "patience");
    sleep(45 * SECOND).await;
    assert_eq!((stage.counted("retried"), stage.counted("written")), (1, 1));
    stage.shutdown().await;
}

/// Proves events/independent-sinks.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_sink_costs_one_event() {
    let stage = stage();
    stage.server.fail_next([Fault::Panics]);
    stage.record("web-0", "bad luck");
    stage.record("web-0", "good luck");
    stage.shutdown().await;
    assert_eq!((stage.counted("failed"), stage.counted("written")), (1, 1));
}

/// Proves events/never-blocks, events/retries, events/accounting.
#[tokio::test(start_paused = true)]
async fn while_a_sink_retries_its_queue_fills_and_drops_but_recording_never_waits() {
    let stage = stage();
    stage.server.outage(Some(Fault::Unreachable));
    let start = Instant::now();
    stage.record("web-0", "first");
    settle().await;
    for i in 0..1100 {
        stage.record(&format!("pod-{i}"), "more");
    }
    assert!(start.elapsed() < SECOND / 100);
    assert_eq!(stage.counted("recorded"), 1101);
    assert_eq!(stage.counted("dropped"), 100);
    stage.server.outage(None);
    assert_eq!(stage.shutdown().await, 0);
    assert_eq!(stage.counted("written"), 1001);
}

/// Proves events/independent-sinks.
#[tokio::test(start_paused = true)]
async fn sinks_do_not_disturb_each_other_and_see_what_comes_after_they_started() {
    let stage = stage();
    stage.server.outage(Some(Fault::Hangs));
    stage.record("web-0", "before");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    stage
        .broadcaster
        .start_event_watcher(move |event| log.lock().push(event.message.clone()));
    let second = FakeServer::default();
    stage.broadcaster.start_recording_to_sink(second.clone());
    for i in 0..1500 {
        stage.record("web-0", "after");
        if i % 100 == 0 {
            settle().await;
        }
    }
    settle().await;
    assert_eq!(seen.lock().len(), 1500);
    assert!(seen.lock().iter().all(|message| message == "after"));
    assert_eq!(second.stored()[0]["message"], "after");
    assert_eq!(
        stage.server.calls().len(),
        1,
        "the first sink is still stuck"
    );
    assert_eq!(stage.broadcaster.shutdown(SECOND).await.left, 1001);
    assert_conserved(&stage.metrics, CORE);
    assert_conserved(&stage.metrics, "function");
}

/// Proves events/independent-sinks, events/repeats-patch.
#[tokio::test(start_paused = true)]
async fn each_sink_counts_for_itself() {
    let stage = stage();
    stage.record("web-0", "again");
    let second = FakeServer::default();
    stage.broadcaster.start_recording_to_sink(second.clone());
    stage.record("web-0", "again");
    stage.shutdown().await;
    assert_eq!(stage.server.verbs(), ["create", "patch"]);
    assert_eq!(second.verbs(), ["create"]);
}

/// Proves events/sinks, events/independent-sinks.
#[tokio::test(start_paused = true)]
async fn a_panicking_watcher_goes_on_with_the_next_event() {
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

/// Proves events/independent-sinks.
#[tokio::test(start_paused = true)]
async fn a_stopped_sink_gets_nothing_more_but_writes_what_it_has() {
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
async fn shutdown_gives_every_queued_event_one_try() {
    let stage = stage();
    stage.server.outage(Some(Fault::Unreachable));
    for message in ["a", "b", "c"] {
        stage.record("web-0", message);
    }
    settle().await;
    assert_eq!(stage.server.calls().len(), 1, "a waits for its second try");
    let start = Instant::now();
    assert_eq!(stage.shutdown().await, 0);
    assert!(start.elapsed() < SECOND, "nothing waited");
    assert_eq!(stage.server.calls().len(), 4, "a once more, b and c once");
    assert_eq!(stage.counted("failed"), 3);
}

/// Proves events/shutdown-flushes.
#[tokio::test(start_paused = true)]
async fn shutdown_keeps_its_deadline_and_says_what_is_left() {
    let stage = stage();
    stage.server.outage(Some(Fault::Hangs));
    for message in ["a", "b", "c"] {
        stage.record("web-0", message);
    }
    let start = Instant::now();
    assert_eq!(stage.shutdown().await, 3);
    assert!(start.elapsed() < SECOND + SECOND / 100);
    assert_eq!(stage.counted("dropped"), 3);
    assert_eq!(stage.shutdown().await, 3, "asked again, it says the same");
}

/// Proves events/never-blocks.
#[tokio::test(start_paused = true)]
async fn after_shutdown_recording_does_nothing_but_count() {
    let stage = stage();
    stage.shutdown().await;
    stage.record("web-0", "too late");
    stage.broadcaster.start_logging();
    settle().await;
    assert!(stage.server.calls().is_empty());
    assert!(
        stage
            .metrics
            .encode()
            .contains("pintle_events_refused_total 1")
    );
}

/// Proves events/shutdown-flushes.
#[tokio::test(start_paused = true)]
async fn dropping_every_handle_writes_what_is_queued() {
    let Stage {
        broadcaster,
        server,
        ..
    } = stage();
    let recorder = broadcaster.recorder("scaler");
    drop(broadcaster);
    recorder.event(&pod("web-0"), EventType::Normal, "Said", "last words");
    drop(recorder);
    settle().await;
    assert_eq!(server.stored().len(), 1);
}

/// Proves events/spam-filter.
#[tokio::test(start_paused = true)]
async fn an_object_that_never_rests_is_held_back_and_then_told_with_its_true_count() {
    let stage = stage();
    for _ in 0..100 {
        stage.record("web-0", "crash");
    }
    settle().await;
    assert_eq!(
        (stage.counted("written"), stage.counted("filtered")),
        (25, 75)
    );
    sleep(300 * SECOND).await;
    stage.record("web-0", "crash");
    stage.shutdown().await;
    let counts: Vec<Value> = stage
        .server
        .stored()
        .iter()
        .map(|e| e["count"].clone())
        .collect();
    assert_eq!(counts, [101]);
}

/// Proves events/never-blocks, events/accounting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_from_many_threads_while_shutting_down_loses_no_count() {
    let stage = stage();
    let recorders: Vec<_> = (0..4)
        .map(|i| {
            let recorder = stage.broadcaster.recorder(format!("scaler-{i}"));
            tokio::spawn(async move {
                for n in 0..500 {
                    recorder.event(&pod("web-0"), EventType::Normal, "Said", format!("{n}"));
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let flushed = stage.broadcaster.shutdown(10 * SECOND).await;
    for recorder in recorders {
        recorder.await.expect("recording never fails");
    }
    assert_eq!(flushed.left, 0);
    assert_conserved(&stage.metrics, CORE);
    let metrics = stage.metrics.encode();
    let refused = metrics
        .lines()
        .find_map(|line| line.strip_prefix("pintle_events_refused_total "));
    let refused: u64 = refused.map_or(0, |count| count.parse().expect("a number"));
    assert_eq!(stage.counted("recorded") + refused, 2000);
}
