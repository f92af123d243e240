//! The shared state of one scenario: the server, the record of events, and the armed faults.
//!
//! Everything runs on one thread under a paused clock. The record is behind a lock only because the
//! client's futures must be `Send`; no code of the user runs while it is held.

mod feeds;
mod record;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use pintle_apiserver::{ApiServer, ApiService, PodDeletion, User, WebhookRegistration};
use pintle_clock::{Clock, Rng};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) use self::record::Record;
use self::record::{Armed, Hook, Inject};
use crate::{
    canonical::Snapshot,
    gateway::request::{ResourceName, Target, Verb},
    plan::{Fault, Pace, Plan},
    run::Setup,
    story::{Step, collection_path},
    trace::{Abort, Numbers, Trace},
};

/// The virtual date on which every scenario starts.
pub(crate) const START: &str = "2026-01-01T00:00:00Z";

/// The origin of the request that is being polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The controller, with the index of the request in the trace.
    Controller(usize),
    /// Users, the garbage collector, kubelets.
    Cluster,
    /// The controller, over the network.
    Program,
}

/// A message from the gateway to the supervisor of processes.
#[derive(Debug)]
pub(crate) enum Signal {
    /// The process crashed; start another one.
    Crash(u32),
    /// The process exited on its own.
    Exited(u32, Option<String>),
    /// Start a process.
    Start,
    /// Stop all processes, and start no others.
    Stop,
    /// Start a process again after a stop.
    Resume,
    /// Start another process next to this one, which is stopped a little later.
    Overlap(u32),
    /// Start another process while this one is cut off, and stop it a while after it is back.
    Pause(u32),
    /// Stop this process.
    Retire(u32),
}

/// The shared state of one scenario.
pub(crate) struct Hub {
    pub(crate) server: ApiServer,
    admin: ApiService,
    pub(crate) record: Arc<Mutex<Record>>,
    pub(crate) steps: Vec<Step>,
    /// Wakes the actors of the cluster after a commit.
    pub(crate) committed: Arc<Notify>,
    /// Wakes the check of the conditions that must always hold.
    pub(crate) checked: Arc<Notify>,
    /// Wakes disconnected feeds.
    back: Notify,
    pub(crate) signals: mpsc::UnboundedSender<Signal>,
    /// Counts how often all watches were cut.
    pub(crate) cuts: watch::Sender<u64>,
    pub(crate) abort: CancellationToken,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) seed: u64,
    /// The seed of the controller's randomness.
    pub(crate) process_seed: u64,
    rapid: bool,
    /// Webhooks of faults, registered until the end.
    pub(crate) webhooks: Mutex<Vec<WebhookRegistration>>,
    /// Injects faults into a program.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "for programs"))]
    pub(crate) inject: Arc<OnceLock<Inject>>,
    of_program: bool,
}

impl Hub {
    pub(crate) fn new(
        plan: &Plan,
        steps: Vec<Step>,
        limit: usize,
        setup: &Setup,
        prepared: &ApiServer,
        signals: mpsc::UnboundedSender<Signal>,
    ) -> Arc<Self> {
        let now = Instant::now();
        let given = setup.given_kinds();
        let times = |fault| match fault {
            Fault::Errors(_, times) | Fault::Rival(times) => times,
            _ => 1,
        };
        let record = Record {
            start: now,
            trace: Trace {
                fired: vec![false; plan.faults.len()],
                ..Trace::default()
            },
            current: if setup.is_program {
                Origin::Program
            } else {
                Origin::Cluster
            },
            process: 1,
            pace: plan.pace,
            numbers: Numbers::new(plan.pace),
            steps: plan.steps.clone(),
            armed: plan
                .faults
                .iter()
                .map(|(fault, point)| Armed {
                    fault: *fault,
                    point: point.clone(),
                    seen: 0,
                    left: times(*fault),
                })
                .collect(),
            dirty: given.keys().cloned().collect(),
            versions: given,
            last_commit: now,
            busy_until: now,
            pending: 0,
            holds: BTreeMap::new(),
            away: BTreeMap::new(),
            expired: BTreeSet::new(),
            down_until: None,
            window: VecDeque::new(),
            limit,
            step: 0,
            next_step: 0,
            before_step: 0,
            ended: false,
            random: setup.random.get().cloned().unwrap_or_default(),
            generated: BTreeMap::new(),
            desired: BTreeMap::new(),
            actions: BTreeMap::new(),
            rivals: 0,
            past: None,
            externals: BTreeMap::new(),
            snapshot: Snapshot::default(),
            upgraded: None,
        };
        let record = Arc::new(Mutex::new(record));
        let committed = Arc::new(Notify::new());
        let checked = Arc::new(Notify::new());
        let hook = Hook {
            record: Arc::clone(&record),
            notified: [Arc::clone(&committed), Arc::clone(&checked)],
            inject: Arc::default(),
        };
        let inject = Arc::clone(&hook.inject);
        let clock = if setup.is_program {
            Clock::system()
        } else {
            Clock::starting_at(START.parse().unwrap_or_default())
        };
        let server = ApiServer::builder()
            .clock(clock.clone())
            .seed(1 + plan.seed)
            .history_bytes(8 << 20)
            .pod_deletion(if setup.cast.workloads {
                PodDeletion::Leave
            } else {
                PodDeletion::AtOnce
            })
            .points(hook)
            .copy_of(prepared)
            .build();
        let admin = server.service_as(User::admin());
        Arc::new(Self {
            server,
            admin,
            record,
            steps,
            committed,
            checked,
            back: Notify::new(),
            signals,
            cuts: watch::Sender::new(0),
            abort: CancellationToken::new(),
            clock,
            rng: Rng::with_seed(1 + plan.seed),
            seed: plan.seed,
            process_seed: plan.seed + setup.other_seed,
            rapid: plan.pace == Pace::Rapid,
            webhooks: Mutex::default(),
            inject,
            of_program: setup.is_program,
        })
    }

    /// Returns whether steps follow each other without a pause.
    pub(crate) fn is_rapid(&self) -> bool {
        self.rapid
    }

    /// Returns the latency of the next hop.
    pub(crate) fn latency(&self) -> Duration {
        if self.seed == 0 {
            return Duration::from_millis(1);
        }
        let long = self.rng.below(16) == 0;
        Duration::from_millis(1 + self.rng.below(if long { 400 } else { 6 }))
    }

    /// Sends a request from a user or an actor and returns the response.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(Full::new(bytes));
        let Ok(request) = request else {
            return (StatusCode::BAD_REQUEST, Value::Null);
        };
        let target = Target::read(request.method(), request.uri(), b"{}");
        self.learn_version(&target);
        let (status, bytes) = self
            .send(Origin::Cluster, self.admin.clone(), request)
            .await;
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(crate) fn learn_version(&self, target: &Target) {
        if target.verb == Verb::Other {
            return;
        }
        let mut record = self.record.lock();
        if !record.versions.contains_key(&target.resource) {
            let (resource, version) = (target.resource.clone(), target.version.clone());
            record.versions.insert(resource, version);
        }
    }

    async fn send(
        &self,
        origin: Origin,
        service: ApiService,
        request: Request<Full<Bytes>>,
    ) -> (StatusCode, Bytes) {
        let response = self.attributed(origin, service.oneshot(request)).await;
        let Ok(response) = response;
        let status = response.status();
        let body = response.into_body().collect().await;
        let Ok(body) = body;
        (status, body.to_bytes())
    }

    /// Polls a future so that its commits are recorded as made by `origin`.
    pub(crate) fn attributed<F: Future>(&self, origin: Origin, future: F) -> Attributed<F> {
        Attributed {
            future: Box::pin(future),
            record: Arc::clone(&self.record),
            origin,
        }
    }

    /// Ends the scenario.
    pub(crate) fn give_up(&self, why: Abort) {
        let mut record = self.record.lock();
        if record.trace.aborted.is_none() {
            record.trace.aborted = Some(why);
        }
        drop(record);
        self.abort.cancel();
    }

    /// Returns how long the cluster has been idle, or `None` if something is pending.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        let record = self.record.lock();
        let now = Instant::now();
        let idle = record.pending == 0 && record.busy_until <= now;
        idle.then(|| now - record.last_commit.max(record.busy_until))
    }

    /// Looks up the version of a resource on the server.
    async fn version_of(&self, resource: &ResourceName) -> String {
        let mut version = "v1".to_owned();
        if !resource.group.is_empty() {
            let path = format!("/apis/{}", resource.group);
            let call = self.call(Method::GET, &path, "application/json", None);
            let preferred = call.await.1["preferredVersion"]["version"].take();
            if let Some(preferred) = preferred.as_str() {
                preferred.clone_into(&mut version);
            }
        }
        let mut record = self.record.lock();
        record.versions.insert(resource.clone(), version.clone());
        version
    }

    /// Returns the current objects of all kinds that were written.
    pub(crate) async fn snapshot(&self) -> Snapshot {
        let (dirty, versions) = {
            let mut record = self.record.lock();
            let dirty = std::mem::take(&mut record.dirty);
            let versions = record.versions.clone();
            (dirty, versions)
        };
        for resource in dirty {
            let hidden = matches!(
                resource.group.as_str(),
                "apiextensions.k8s.io" | "apiregistration.k8s.io"
            );
            if hidden {
                continue;
            }
            let found;
            let version = match versions.get(&resource) {
                Some(version) => version,
                None if self.of_program => {
                    found = self.version_of(&resource).await;
                    &found
                }
                None => continue,
            };
            let path = collection_path(&resource, version, None);
            let (status, mut list) = self
                .call(Method::GET, &path, "application/json", None)
                .await;
            if !status.is_success() {
                continue;
            }
            let api_version = list["apiVersion"].clone();
            let kind = list["kind"].as_str().unwrap_or_default();
            let kind: Value = kind.strip_suffix("List").unwrap_or(kind).into();
            let mut items = match list["items"].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            };
            for item in &mut items {
                item["apiVersion"] = api_version.clone();
                item["kind"] = kind.clone();
            }
            self.record
                .lock()
                .snapshot
                .lists
                .insert(resource, Arc::new(items));
        }
        let record = self.record.lock();
        let mut snapshot = record.snapshot.clone();
        for (name, entries) in &record.externals {
            let resource = ResourceName {
                group: "external".to_owned(),
                plural: name.clone(),
            };
            let entry = |(id, value): (&String, &Value)| json!({"kind": format!("External {name}"), "metadata": {"name": id}, "value": value});
            let entries = entries.iter().map(entry).collect();
            snapshot.lists.insert(resource, Arc::new(entries));
        }
        snapshot
    }
}

/// A future whose commits are attributed to `origin`.
pub(crate) struct Attributed<F> {
    future: Pin<Box<F>>,
    record: Arc<Mutex<Record>>,
    origin: Origin,
}

impl<F: Future> Future for Attributed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let before = std::mem::replace(&mut self.record.lock().current, self.origin);
        let polled = self.future.as_mut().poll(cx);
        self.record.lock().current = before;
        polled
    }
}
