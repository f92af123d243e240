//! Helpers shared by the event tests.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::core::{Status, response::StatusDetails};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clock::{Clock, Rng},
    events::{EventBroadcaster, EventSink, EventType, Occurrence, SinkError},
    metrics::Metrics,
};

/// A normal event about a Pod in namespace `shop`.
pub(in crate::events) fn occurrence(pod: &str, reason: &str, message: &str) -> Occurrence {
    Occurrence {
        name: format!("{pod}.{reason}.{message}"),
        namespace: "shop".into(),
        at: jiff::Timestamp::UNIX_EPOCH,
        event_type: EventType::Normal,
        reason: reason.into(),
        message: message.into(),
        regarding: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some("shop".into()),
            name: Some(pod.into()),
            uid: Some(format!("uid-of-{pod}")),
            ..ObjectReference::default()
        },
        related: None,
        action: None,
        annotations: BTreeMap::new(),
        component: "tests".into(),
        host: None,
    }
}

/// A Pod in namespace `shop`.
pub(in crate::events) fn pod(name: &str) -> Pod {
    let metadata = json!({ "name": name, "namespace": "shop", "uid": format!("uid-of-{name}") });
    serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
}

/// A deterministic broadcaster: its clock and its RNG start from fixed values.
pub(in crate::events) fn broadcaster(metrics: &Metrics) -> EventBroadcaster {
    let start = "2026-01-01T00:00:00Z".parse().expect("a time");
    EventBroadcaster::builder()
        .clock(Clock::starting_at(start))
        .rng(Rng::with_seed(1))
        .metrics(metrics.clone())
        .build()
}

/// The value of one counter of one sink.
pub(in crate::events) fn counted(metrics: &Metrics, sink: &str, counter: &str) -> u64 {
    let line = format!("pintle_events_{counter}_total{{sink=\"{sink}\"}} ");
    let text = metrics.encode();
    let value = text.lines().find_map(|found| found.strip_prefix(&line));
    value.map_or(0, |value| value.parse().expect("a number"))
}

/// Asserts that every event offered to `sink` is accounted for exactly once.
pub(in crate::events) fn assert_conserved(metrics: &Metrics, sink: &str) {
    let of = |counter| counted(metrics, sink, counter);
    let ends = ["written", "aggregated", "filtered", "dropped", "failed"].map(of);
    assert_eq!(
        of("recorded"),
        ends.iter().sum::<u64>(),
        "recorded = {ends:?}"
    );
}

/// Lets every task run until it is idle.
pub(in crate::events) async fn settle() {
    tokio::time::sleep(Duration::from_nanos(1)).await;
}

/// A fault injected instead of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum Fault {
    Refused(u16, &'static str),
    NamespaceTerminating,
    Unreachable,
    Hangs,
    Panics,
}

/// One call received by the server.
#[derive(Clone, Debug)]
pub(in crate::events) struct Call {
    pub(in crate::events) verb: &'static str,
    pub(in crate::events) name: String,
    pub(in crate::events) body: Value,
    pub(in crate::events) at: Instant,
}

/// An in-process event store with injected faults.
#[derive(Clone, Debug, Default)]
pub(in crate::events) struct FakeServer {
    state: Arc<Mutex<FakeState>>,
}

#[derive(Debug, Default)]
struct FakeState {
    calls: Vec<Call>,
    next_faults: VecDeque<Fault>,
    outage: Option<Fault>,
    stored: BTreeMap<String, Value>,
}

impl FakeServer {
    /// Fails the next calls with these faults, in order.
    pub(in crate::events) fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().next_faults.extend(faults);
    }

    /// Fails every call with this fault from now on; `None` ends the outage.
    pub(in crate::events) fn outage(&self, fault: Option<Fault>) {
        self.state.lock().outage = fault;
    }

    /// Removes every event, as if its TTL had passed.
    pub(in crate::events) fn expire(&self) {
        self.state.lock().stored.clear();
    }

    pub(in crate::events) fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    pub(in crate::events) fn verbs(&self) -> Vec<&'static str> {
        self.state
            .lock()
            .calls
            .iter()
            .map(|call| call.verb)
            .collect()
    }

    pub(in crate::events) fn stored(&self) -> Vec<Value> {
        self.state.lock().stored.values().cloned().collect()
    }

    async fn call(&self, verb: &'static str, name: &str, body: &Value) -> Result<(), SinkError> {
        let fault = {
            let mut state = self.state.lock();
            let (name, body, at) = (name.to_owned(), body.clone(), Instant::now());
            state.calls.push(Call {
                verb,
                name,
                body,
                at,
            });
            state.next_faults.pop_front().or(state.outage)
        };
        match fault {
            None => Ok(()),
            Some(Fault::Refused(code, reason)) => Err(refused(code, reason)),
            Some(Fault::NamespaceTerminating) => {
                let details = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
                let details: StatusDetails = serde_json::from_value(details).expect("details");
                let status = Status::failure("going", "Forbidden").with_code(403);
                Err(SinkError::Refused(status.with_details(details).boxed()))
            }
            Some(Fault::Unreachable) => Err(SinkError::Unreachable("connection refused".into())),
            Some(Fault::Hangs) => pending().await,
            Some(Fault::Panics) => panic!("a sink with a bug"),
        }
    }
}

pub(in crate::events) fn refused(code: u16, reason: &str) -> SinkError {
    SinkError::Refused(Status::failure("no", reason).with_code(code).boxed())
}

impl<E: Serialize + DeserializeOwned + Send + Sync + 'static> EventSink<E> for FakeServer {
    async fn create(&self, event: &E) -> Result<E, SinkError> {
        let body = serde_json::to_value(event).expect("an event");
        let name = body["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.call("create", &name, &body).await?;
        if !body["metadata"]["resourceVersion"].is_null() {
            return Err(refused(400, "BadRequest"));
        }
        let stored = &mut self.state.lock().stored;
        if stored.contains_key(&name) {
            return Err(refused(409, "AlreadyExists"));
        }
        stored.insert(name, body.clone());
        Ok(answer(body))
    }

    async fn patch(&self, _namespace: &str, name: &str, patch: &Value) -> Result<E, SinkError> {
        self.call("patch", name, patch).await?;
        let stored = &mut self.state.lock().stored;
        let event = stored
            .get_mut(name)
            .ok_or_else(|| refused(404, "NotFound"))?;
        for (field, value) in patch.as_object().into_iter().flatten() {
            event[field] = value.clone();
        }
        Ok(answer(event.clone()))
    }
}

/// Returns the stored event with a `resourceVersion`, as a server does.
fn answer<E: DeserializeOwned>(mut stored: Value) -> E {
    stored["metadata"]["resourceVersion"] = "7".into();
    serde_json::from_value(stored).expect("an event")
}
