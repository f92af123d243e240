//! Writes occurrences as events and series to an events.k8s.io/v1 sink.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use tokio::time::{Instant, interval_at};

mod series;

use self::series::{FINISH, Job, Observed, REFRESH, SeriesBook};
use super::{
    core_v1::report,
    delivery::{Inbox, Jitter},
    occurrence::Occurrence,
    sink::{EventSink, SinkError},
};

/// The task of one events.k8s.io/v1 sink.
///
/// It never stops taking in: while a write waits for its answer or its next try, occurrences go on
/// into the book, where repeats cost nothing. One write is in flight at a time, so the writes of one
/// event are in order.
#[derive(Debug)]
pub(super) struct SeriesWriter<S> {
    sink: Arc<S>,
    inbox: Inbox,
    book: SeriesBook,
    /// The machine that is named when the broadcaster was not told one.
    machine: String,
}

type Flight = BoxFuture<'static, (Job, Option<Result<Event, SinkError>>)>;

impl<S: EventSink<Event>> SeriesWriter<S> {
    pub(super) fn new(sink: S, inbox: Inbox, machine: String) -> Self {
        Self {
            sink: Arc::new(sink),
            inbox,
            book: SeriesBook::new(),
            machine,
        }
    }

    pub(super) async fn run(mut self) {
        let start = Instant::now();
        let mut finish = interval_at(start + FINISH, FINISH);
        let mut refresh = interval_at(start + REFRESH, REFRESH);
        let mut flight: Option<Flight> = None;
        let mut open = true;
        let cut = self.inbox.patience.ending.cut.clone();
        let mut in_flight = 0;
        loop {
            if flight.is_none() {
                flight = self.book.next().map(|job| {
                    in_flight = job.settles;
                    self.take_off(job)
                });
            }
            if flight.is_none() && !open {
                break;
            }
            tokio::select! {
                // The end first, then time, which must not starve; then what makes room, then what
                // takes it.
                biased;
                () = cut.cancelled() => break,
                _ = finish.tick() => self.book.finish(Instant::now()),
                _ = refresh.tick() => self.book.refresh(),
                Some((job, answer)) = landing(&mut flight) => {
                    flight = None;
                    let Some(answer) = answer else { break };
                    in_flight = 0;
                    self.settle(&job, answer);
                }
                next = self.inbox.queue.recv(), if open => {
                    open = next.is_some();
                    if let Some(occurrence) = next {
                        self.observe(&occurrence);
                    } else {
                        self.book.flush();
                    }
                }
            }
        }
        self.inbox.leave(in_flight + self.book.unsettled());
    }

    fn observe(&mut self, occurrence: &Occurrence) {
        let (counters, machine) = (&self.inbox.patience.counters, &self.machine);
        let event = || occurrence.to_events_v1(machine);
        match self.book.observe(occurrence, Instant::now(), event) {
            Observed::Due => {}
            Observed::Counted => drop(counters.aggregated.inc()),
            Observed::TurnedAway => drop(counters.dropped.inc()),
        }
    }

    fn take_off(&self, job: Job) -> Flight {
        let (sink, patience) = (Arc::clone(&self.sink), self.inbox.patience.clone());
        Box::pin(async move {
            let answer = patience
                .persist(Jitter::EveryWait, || attempt(&*sink, &job))
                .await;
            (job, answer)
        })
    }

    fn settle(&mut self, job: &Job, answer: Result<Event, SinkError>) {
        let counters = &self.inbox.patience.counters;
        let settles = job.settles as u64;
        self.book.done(job, answer.is_ok());
        match answer {
            Ok(_) => {
                counters.written.inc_by(settles.min(1));
                counters.aggregated.inc_by(settles.saturating_sub(1));
            }
            Err(error) => {
                counters.failed.inc_by(settles);
                let Event {
                    regarding, reason, ..
                } = &job.event;
                let about = regarding.as_ref().and_then(|object| object.name.as_deref());
                report(&error, about, reason.as_deref());
            }
        }
    }
}

/// The end of the flight; pending while there is none.
async fn landing(flight: &mut Option<Flight>) -> Option<(Job, Option<Result<Event, SinkError>>)> {
    Some(flight.as_mut()?.await)
}

/// Tells how a series goes on; creates an event that does not exist, or not any more.
async fn attempt(sink: &impl EventSink<Event>, job: &Job) -> Result<Event, SinkError> {
    let metadata = &job.event.metadata;
    let (Some(patch), Some(namespace), Some(name)) =
        (job.patch(), &metadata.namespace, &metadata.name)
    else {
        return sink.create(&job.event).await;
    };
    match sink.patch(namespace, name, &patch).await {
        Err(gone) if gone.is_not_found() => {}
        done => return done,
    }
    match sink.create(&job.event).await {
        // It appeared in between: the next try will find it.
        Err(there) if there.is_already_exists() => Err(SinkError::Unreachable(there.into())),
        done => done,
    }
}

#[cfg(test)]
mod tests {
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

    struct Stage {
        metrics: Metrics,
        broadcaster: EventBroadcaster,
        recorder: EventRecorder,
        server: FakeServer,
    }

    fn stage() -> Stage {
        let (metrics, server) = (Metrics::new(), FakeServer::default());
        let broadcaster = broadcaster(&metrics);
        broadcaster.start_recording_series_to_sink(server.clone());
        let recorder = broadcaster.recorder("scaler");
        Stage {
            metrics,
            broadcaster,
            recorder,
            server,
        }
    }

    impl Stage {
        fn record(&self, pod_name: &str, note: &str) {
            self.recorder
                .event(&pod(pod_name), EventType::Warning, "Crashed", note);
        }

        fn counted(&self, counter: &str) -> u64 {
            counted(&self.metrics, SERIES, counter)
        }

        /// Verb and, where it tells one, the series count of each call.
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
    async fn an_event_has_the_form_of_the_newer_api() {
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
    async fn the_instance_is_the_controller_on_its_machine_and_the_action_defaults_to_the_reason() {
        let stage = stage();
        stage.record("web-0", "exit 1");
        stage.shutdown().await;
        let event = &stage.server.stored()[0];
        let instance = event["reportingInstance"].as_str().unwrap();
        assert!(
            instance.starts_with("scaler-") && instance.len() > 7,
            "{instance}"
        );
        assert_eq!(event["action"], "Crashed");
    }

    /// Proves events/v1-series, events/accounting.
    #[tokio::test(start_paused = true)]
    async fn repeats_become_a_series_whatever_their_note() {
        let stage = stage();
        for note in ["exit 1", "exit 2", "exit 3", "exit 4"] {
            stage.record("web-0", note);
            settle().await;
        }
        assert_eq!(
            stage.calls(),
            [("create", Value::Null), ("patch", json!(2))]
        );
        assert_eq!(
            (stage.counted("written"), stage.counted("aggregated")),
            (2, 2)
        );
        assert_eq!(stage.shutdown().await, 0);
        assert_eq!(
            stage.calls()[2..],
            [("patch", json!(4))],
            "told in full at the end"
        );
    }

    /// Proves events/v1-series.
    #[tokio::test(start_paused = true)]
    async fn a_silent_series_is_told_in_full_once_and_a_long_one_is_refreshed() {
        let stage = stage();
        for _ in 0..3 {
            stage.record("web-0", "exit 1");
            settle().await;
        }
        sleep(13 * MINUTE).await;
        assert_eq!(stage.calls()[2..], [("patch", json!(3))]);
        for _ in 0..30 {
            stage.record("web-1", "exit 1");
            sleep(MINUTE).await;
        }
        let refreshed = &stage.calls()[3..];
        let names = |(verb, count): &(&'static str, Value)| format!("{verb} {count}");
        let refreshed: Vec<_> = refreshed.iter().map(names).collect();
        assert_eq!(
            refreshed,
            ["create null", "patch 2", "patch 17"],
            "at the 30th minute"
        );
        stage.shutdown().await;
    }

    /// Proves events/v1-series-recovery.
    #[tokio::test(start_paused = true)]
    async fn a_series_whose_event_is_gone_is_created() {
        let stage = stage();
        stage.record("web-0", "exit 1");
        settle().await;
        stage.server.expire();
        stage.record("web-0", "exit 1");
        stage.shutdown().await;
        assert_eq!(
            stage.calls()[1..],
            [("patch", json!(2)), ("create", json!(2))]
        );
    }

    /// Proves events/v1-series-recovery.
    #[tokio::test(start_paused = true)]
    async fn an_event_that_appears_in_between_is_patched_on_the_next_try() {
        let stage = stage();
        stage.record("web-0", "exit 1");
        settle().await;
        stage.server.fail_next([Fault::Refused(404, "NotFound")]);
        stage.record("web-0", "exit 1");
        sleep(13 * SECOND).await;
        assert_eq!(stage.server.verbs(), ["create", "patch", "create", "patch"]);
        assert_eq!((stage.counted("retried"), stage.counted("written")), (1, 2));
        stage.shutdown().await;
    }

    /// Proves events/v1-series-recovery.
    #[tokio::test(start_paused = true)]
    async fn a_server_out_of_reach_is_tried_twelve_times_with_jitter() {
        let stage = stage();
        stage.server.outage(Some(Fault::Unreachable));
        stage.record("web-0", "exit 1");
        sleep(3 * MINUTE).await;
        let times: Vec<_> = stage.server.calls().iter().map(|call| call.at).collect();
        assert_eq!(times.len(), 12);
        let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let fair = |wait: &Duration| (10 * SECOND..=13 * SECOND).contains(wait);
        assert!(waits.iter().all(fair), "{waits:?}");
        assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
        assert_eq!(stage.counted("failed"), 1);
        stage.shutdown().await;
    }

    /// Proves events/v1-bounded.
    #[tokio::test(start_paused = true)]
    async fn an_outage_costs_no_repeat() {
        let stage = stage();
        stage.server.outage(Some(Fault::Unreachable));
        for _ in 0..50 {
            for _ in 0..100 {
                stage.record("web-0", "exit 1");
                stage.record("web-1", "exit 1");
            }
            settle().await;
        }
        stage.server.outage(None);
        sleep(20 * SECOND).await;
        stage.shutdown().await;
        assert_eq!(stage.counted("dropped"), 0);
        let counts: Vec<_> = stage
            .server
            .stored()
            .iter()
            .map(|event| event["series"]["count"].clone())
            .collect();
        assert_eq!(counts, [5000, 5000]);
    }

    /// Proves events/v1-bounded, events/shutdown-flushes.
    #[tokio::test(start_paused = true)]
    async fn shutdown_keeps_its_deadline_and_counts_what_it_held() {
        let stage = stage();
        stage.server.outage(Some(Fault::Hangs));
        for i in 0..5 {
            stage.record(&format!("web-{i}"), "exit 1");
        }
        assert_eq!(stage.shutdown().await, 5);
        assert_eq!(stage.counted("dropped"), 5);
    }

    /// Proves events/v1-discovery.
    #[tokio::test(start_paused = true)]
    async fn the_api_is_chosen_by_what_the_server_has() {
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
                std::future::ready(answers.next().expect("asked too often"))
            });
            let recorder = broadcaster.recorder("scaler");
            recorder.event(&pod("web-0"), EventType::Normal, "Scaled", "up");
            sleep(MINUTE).await;
            assert_eq!(server.stored()[0]["apiVersion"], api_version);
            assert_eq!(broadcaster.shutdown(SECOND).await.left, 0);
            assert_conserved(&metrics, "api");
        }
    }
}
