use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    events::{
        EventBroadcaster, EventRecorder, EventType, NewEvent, SinkError,
        tests::support::{
            FakeServer, Fault, assert_conserved, broadcaster, counted, pod, refused, settle,
        },
    },
    metrics::Metrics,
};

const SERIES: &str = "events.k8s.io/v1";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// A broadcaster that writes `events.k8s.io/v1` to a fake server.
struct Fixture {
    metrics: Metrics,
    broadcaster: EventBroadcaster,
    recorder: EventRecorder,
    server: FakeServer,
}

fn fixture() -> Fixture {
    let (metrics, server) = (Metrics::new(), FakeServer::default());
    let broadcaster = broadcaster(&metrics);
    broadcaster.start_recording_series_to_sink(server.clone());
    let recorder = broadcaster.recorder("scaler");
    Fixture {
        metrics,
        broadcaster,
        recorder,
        server,
    }
}

impl Fixture {
    fn record(&self, pod_name: &str, note: &str) {
        self.recorder
            .event(&pod(pod_name), EventType::Warning, "Crashed", note);
    }

    fn counted(&self, counter: &str) -> u64 {
        counted(&self.metrics, SERIES, counter)
    }

    /// The verb of each call and the series count it carries.
    fn calls(&self) -> Vec<(&'static str, Value)> {
        let calls = self.server.calls();
        calls
            .iter()
            .map(|call| (call.verb, call.body["series"]["count"].clone()))
            .collect()
    }

    async fn shutdown(&self) -> usize {
        let flushed = self.broadcaster.shutdown(SECOND).await;
        assert_conserved(&self.metrics, SERIES);
        flushed.left
    }
}

/// Proves events/v1-fields.
#[tokio::test(start_paused = true)]
async fn event_has_the_fields_of_events_v1() {
    let metrics = Metrics::new();
    let broadcaster = EventBroadcaster::builder()
        .clock(crate::clock::Clock::starting_at(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ))
        .host("node-1")
        .metrics(metrics.clone())
        .build();
    let server = FakeServer::default();
    broadcaster.start_recording_series_to_sink(server.clone());
    let event = NewEvent::new(&pod("web-0"), EventType::Normal, "Bound", "n".repeat(2000))
        .related(&pod("web-1"))
        .action("Binding");
    broadcaster.recorder("x".repeat(200)).publish(event);
    assert_eq!(broadcaster.shutdown(SECOND).await.left, 0);
    let mut event = server.stored().remove(0);
    let (note, instance) = (event["note"].take(), event["reportingInstance"].take());
    assert_eq!(note.as_str().map(str::len), Some(1024));
    assert_eq!(instance.as_str().map(str::len), Some(128));
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": "web-0.18867251edfa0000", "namespace": "shop" },
            "regarding": {
                "apiVersion": "v1", "kind": "Pod",
                "namespace": "shop", "name": "web-0", "uid": "uid-of-web-0",
            },
            "related": {
                "apiVersion": "v1", "kind": "Pod",
                "namespace": "shop", "name": "web-1", "uid": "uid-of-web-1",
            },
            "type": "Normal",
            "reason": "Bound",
            "action": "Binding",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "note": null,
            "reportingController": "x".repeat(200),
            "reportingInstance": null,
        })
    );
}

/// Proves events/v1-fields.
#[tokio::test(start_paused = true)]
async fn instance_names_the_machine_and_action_the_reason() {
    let events = fixture();
    events.record("web-0", "exit 1");
    events.shutdown().await;
    let event = &events.server.stored()[0];
    let instance = event["reportingInstance"].as_str().unwrap();
    assert!(
        instance.starts_with("scaler-") && instance.len() > 7,
        "{instance}"
    );
    assert_eq!(event["action"], "Crashed");
}

/// Proves events/v1-series, events/sinks.
#[tokio::test(start_paused = true)]
async fn repeats_with_different_notes_become_one_series() {
    let events = fixture();
    for note in ["exit 1", "exit 2", "exit 3", "exit 4"] {
        events.record("web-0", note);
        settle().await;
    }
    assert_eq!(
        events.calls(),
        [("create", Value::Null), ("patch", json!(2))]
    );
    assert_eq!(
        (events.counted("written"), events.counted("aggregated")),
        (2, 2)
    );
    assert_eq!(events.shutdown().await, 0);
    assert_eq!(
        events.calls()[2..],
        [("patch", json!(4))],
        "the final count is written at shutdown"
    );
}

/// Proves events/v1-series.
#[tokio::test(start_paused = true)]
async fn silent_series_is_finished_and_long_one_refreshed() {
    let events = fixture();
    for _ in 0..3 {
        events.record("web-0", "exit 1");
        settle().await;
    }
    sleep(13 * MINUTE).await;
    assert_eq!(events.calls()[2..], [("patch", json!(3))]);
    for _ in 0..30 {
        events.record("web-1", "exit 1");
        sleep(MINUTE).await;
    }
    let refreshed = &events.calls()[3..];
    let names = |(verb, count): &(&'static str, Value)| format!("{verb} {count}");
    let refreshed: Vec<_> = refreshed.iter().map(names).collect();
    assert_eq!(
        refreshed,
        ["create null", "patch 2", "patch 17"],
        "at the 30th minute"
    );
    events.shutdown().await;
}

/// Proves events/v1-series.
#[tokio::test(start_paused = true)]
async fn series_whose_event_is_gone_is_created_again() {
    let events = fixture();
    events.record("web-0", "exit 1");
    settle().await;
    events.server.expire();
    events.record("web-0", "exit 1");
    events.shutdown().await;
    assert_eq!(
        events.calls()[1..],
        [("patch", json!(2)), ("create", json!(2))]
    );
}

/// Proves events/v1-series.
#[tokio::test(start_paused = true)]
async fn event_created_concurrently_is_patched() {
    let events = fixture();
    events.record("web-0", "exit 1");
    settle().await;
    events.server.fail_next([Fault::Refused(404, "NotFound")]);
    events.record("web-0", "exit 1");
    sleep(13 * SECOND).await;
    assert_eq!(
        events.server.verbs(),
        ["create", "patch", "create", "patch"]
    );
    assert_eq!(
        (events.counted("retried"), events.counted("written")),
        (1, 2)
    );
    events.shutdown().await;
}

/// Proves events/v1-series.
#[tokio::test(start_paused = true)]
async fn unreachable_server_is_tried_twelve_times_with_jitter() {
    let events = fixture();
    events.server.outage(Some(Fault::Unreachable));
    events.record("web-0", "exit 1");
    sleep(3 * MINUTE).await;
    let times: Vec<_> = events.server.calls().iter().map(|call| call.at).collect();
    assert_eq!(times.len(), 12);
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let in_range = |wait: &Duration| (10 * SECOND..=13 * SECOND).contains(wait);
    assert!(waits.iter().all(in_range), "{waits:?}");
    assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
    assert_eq!(events.counted("failed"), 1);
    events.shutdown().await;
}

/// Proves events/never-blocks.
#[tokio::test(start_paused = true)]
async fn outage_loses_no_repeat() {
    let events = fixture();
    events.server.outage(Some(Fault::Unreachable));
    for _ in 0..50 {
        for _ in 0..100 {
            events.record("web-0", "exit 1");
            events.record("web-1", "exit 1");
        }
        settle().await;
    }
    events.server.outage(None);
    sleep(20 * SECOND).await;
    events.shutdown().await;
    assert_eq!(events.counted("dropped"), 0);
    let counts: Vec<_> = events
        .server
        .stored()
        .iter()
        .map(|event| event["series"]["count"].clone())
        .collect();
    assert_eq!(counts, [5000, 5000]);
}

/// Proves events/never-blocks, events/shutdown-flushes.
#[tokio::test(start_paused = true)]
async fn shutdown_meets_its_deadline_and_counts_the_rest() {
    let events = fixture();
    events.server.outage(Some(Fault::Hangs));
    for i in 0..5 {
        events.record(&format!("web-{i}"), "exit 1");
    }
    assert_eq!(events.shutdown().await, 5);
    assert_eq!(events.counted("dropped"), 5);
}

/// Proves events/v1-discovery.
#[tokio::test(start_paused = true)]
async fn discovery_chooses_the_api() {
    for (answers, api_version) in [
        (vec![Ok(())], "events.k8s.io/v1"),
        (vec![Err(refused(404, "NotFound"))], "v1"),
        (
            vec![Err(SinkError::Unreachable("later".into())), Ok(())],
            "events.k8s.io/v1",
        ),
    ] {
        let metrics = Metrics::new();
        let (broadcaster, server) = (broadcaster(&metrics), FakeServer::default());
        let mut answers = answers.into_iter();
        broadcaster.start_by_discovery(server.clone(), move || {
            std::future::ready(answers.next().expect("no further discovery"))
        });
        let recorder = broadcaster.recorder("scaler");
        recorder.event(&pod("web-0"), EventType::Normal, "Scaled", "up");
        sleep(MINUTE).await;
        assert_eq!(server.stored()[0]["apiVersion"], api_version);
        assert_eq!(broadcaster.shutdown(SECOND).await.left, 0);
        assert_conserved(&metrics, "api");
    }
}
