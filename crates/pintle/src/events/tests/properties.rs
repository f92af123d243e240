//! Whatever happens, every event is accounted for exactly once.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::support::{FakeServer, Fault, assert_conserved, broadcaster, counted, pod};
use crate::{
    events::{EventBroadcaster, EventType},
    metrics::Metrics,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Record {
        pod: u8,
        reason: u8,
        message: u8,
        times: u16,
    },
    Wait(Duration),
    FailNext(Fault),
    Outage(Option<Fault>),
    Expire,
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Refused(500, "InternalError")),
        Just(Fault::Refused(429, "TooManyRequests")),
        Just(Fault::Refused(404, "NotFound")),
        Just(Fault::Refused(409, "AlreadyExists")),
        Just(Fault::Unreachable),
        Just(Fault::Hangs),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let record = (
        0..3u8,
        0..2u8,
        0..12u8,
        prop_oneof![9 => 1..30u16, 1 => Just(1200)],
    )
        .prop_map(|(pod, reason, message, times)| Step::Record {
            pod,
            reason,
            message,
            times,
        });
    let step = prop_oneof![
        6 => record,
        3 => (0..500u64).prop_map(|seconds| Step::Wait(Duration::from_secs(seconds))),
        2 => faults().prop_map(Step::FailNext),
        1 => proptest::option::of(faults()).prop_map(Step::Outage),
        1 => Just(Step::Expire),
    ];
    prop::collection::vec(step, 1..30)
}

async fn perform(broadcaster: &EventBroadcaster, servers: &[FakeServer], steps: &[Step]) {
    let recorder = broadcaster.recorder("scaler");
    for step in steps {
        match *step {
            Step::Record {
                pod: name,
                reason,
                message,
                times,
            } => {
                let (pod, reason) = (pod(&format!("pod-{name}")), format!("Reason{reason}"));
                for _ in 0..times {
                    recorder.event(
                        &pod,
                        EventType::Normal,
                        &reason,
                        format!("message {message}"),
                    );
                }
            }
            Step::Wait(time) => sleep(time).await,
            Step::FailNext(fault) => servers.iter().for_each(|server| server.fail_next([fault])),
            Step::Outage(fault) => servers.iter().for_each(|server| server.outage(fault)),
            Step::Expire => servers.iter().for_each(FakeServer::expire),
        }
    }
}

fn in_virtual_time(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    // Proves events/sinks.
    #[test]
    fn every_event_is_accounted_for_exactly_once(steps in steps(), deadline in 0..100u64) {
        in_virtual_time(async {
            let metrics = Metrics::new();
            let (broadcaster, core, series) =
                (broadcaster(&metrics), FakeServer::default(), FakeServer::default());
            broadcaster.start_recording_to_sink(core.clone());
            broadcaster.start_recording_series_to_sink(series.clone());
            perform(&broadcaster, &[core, series], &steps).await;
            let deadline = Duration::from_secs(deadline);
            let flushed = timeout(deadline + Duration::from_secs(1), broadcaster.shutdown(deadline));
            let left = flushed.await.expect("within the deadline").left as u64;
            let mut dropped = 0;
            for sink in ["core/v1", "events.k8s.io/v1"] {
                assert_conserved(&metrics, sink);
                dropped += counted(&metrics, sink, "dropped");
            }
            assert!(left <= dropped);
        });
    }

    // Proves events/v1-series, events/never-blocks.
    #[test]
    fn series_count_every_event_not_dropped(steps in steps()) {
        in_virtual_time(async {
            let metrics = Metrics::new();
            let (broadcaster, server) = (broadcaster(&metrics), FakeServer::default());
            broadcaster.start_recording_series_to_sink(server.clone());
            let fault_free = |step: &&Step| matches!(step, Step::Record { .. } | Step::Wait(_));
            let steps: Vec<Step> = steps.iter().filter(fault_free).copied().collect();
            perform(&broadcaster, std::slice::from_ref(&server), &steps).await;
            let left = broadcaster.shutdown(Duration::from_secs(1)).await.left;
            let count = |event: &Value| event["series"]["count"].as_u64().unwrap_or(1);
            let written: u64 = server.stored().iter().map(count).sum();
            let of = |counter| counted(&metrics, "events.k8s.io/v1", counter);
            assert_eq!((left, written), (0, of("recorded") - of("dropped")));
        });
    }
}
