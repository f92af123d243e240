//! The contract of the `Manager`, on the embedded API server under virtual time.

mod clusters;
mod components;
mod replicas;
mod rules;
mod terms;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http_body_util::BodyExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{Api, Client, api::ObjectMeta, client::Body};
use pintle::{
    cache::ObjectKey,
    clock::{Clock, Rng},
    controller::{Action, BuiltController, Context, Controller, ReconcileError},
    manager::{Builder, Manager, ManagerError, Stopped},
};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{SECOND, create, forbidden, patch};

/// A record of events, in order.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    fn push(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    /// Returns the events since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Like [`take`](Self::take), in alphabetical order.
    fn take_sorted(&self) -> Vec<String> {
        let mut lines = self.take();
        lines.sort_unstable();
        lines
    }
}

/// A manager that runs on its own task.
struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<Stopped, ManagerError>>,
}

impl Running {
    fn start(manager: Manager) -> Self {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        Self {
            shutdown,
            task: tokio::spawn(async move { manager.run_until(&stop).await }),
        }
    }

    /// Waits for a manager that is expected to stop.
    async fn ended(self) -> Result<Stopped, ManagerError> {
        let ended = timeout(Duration::from_mins(10), self.task).await;
        ended.expect("the manager ends").unwrap()
    }

    async fn stop(self) -> Stopped {
        self.shutdown.cancel();
        self.ended().await.unwrap()
    }
}

fn manager(client: Client) -> Builder {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Manager::builder("operator", client)
        .clock(Clock::starting_at(start))
        .rng(Rng::with_seed(1))
}

/// A controller of ServiceAccounts that records each key it reconciles.
fn recorder(manager: &Manager, name: &'static str, record: &Record) -> BuiltController {
    let record = record.clone();
    Controller::<ServiceAccount>::new(name, manager.informers())
        .owns::<ConfigMap>()
        .build_by_key(move |key: ObjectKey, _: Context| {
            record.push(format!("{name} {}", key.name()));
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        })
}

async fn account(client: &Client, name: &str) {
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    create(&Api::default_namespaced(client.clone()), &account).await;
}

async fn settle() {
    sleep(SECOND).await;
}

/// Returns a client that records its list requests.
fn counting_lists(server: &ApiServer, record: &Record) -> Client {
    let (inner, record) = (server.client(), record.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, record) = (inner.clone(), record.clone());
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let is_list = request.method() == http::Method::GET
            && path.ends_with('s')
            && (!query.contains("watch=true") || query.contains("sendInitialEvents=true"));
        if is_list {
            record.push(path);
        }
        async move { inner.send(request).await }
    });
    Client::new(service, "default")
}

/// Returns a client that may not read `resource` until it is `granted`.
fn refusing(server: &ApiServer, resource: &'static str, granted: &Arc<AtomicBool>) -> Client {
    let (inner, granted) = (server.service(), Arc::clone(granted));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let refused = request.uri().path().ends_with(resource) && !granted.load(Ordering::Relaxed);
        let answer = inner.clone().oneshot(request);
        async move {
            if refused {
                return Ok(forbidden(resource));
            }
            let answer = answer.await?;
            Ok::<_, tower::BoxError>(answer.map(|body| {
                let frames = http_body_util::BodyStream::new(body);
                http_body_util::StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
            }))
        }
    });
    Client::new(service, "default")
}

/// Returns a client that works while `online` is true. Otherwise its requests fail and open watches
/// break.
fn breakable(server: &ApiServer, online: &watch::Sender<bool>) -> Client {
    let (service, state) = (server.service(), online.subscribe());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (answer, mut state) = (service.clone().oneshot(request), state.clone());
        async move {
            if !*state.borrow() {
                return Err(tower::BoxError::from("connection refused"));
            }
            let answer = answer.await?;
            Ok(answer.map(|body| {
                let broken = Box::pin(async move { drop(state.wait_for(|online| !online).await) });
                let frames = http_body_util::BodyStream::new(body).take_until(broken);
                http_body_util::StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
            }))
        }
    });
    Client::new(service, "default")
}

/// Makes `thief` the holder of the manager's Lease.
async fn steal(client: &Client, thief: &str) {
    let now = "2026-01-01T00:00:00.000000Z";
    let spec = json!({"holderIdentity": thief, "renewTime": now, "leaseDurationSeconds": 15});
    lease(client, "operator", spec).await;
}

/// Releases a Lease on behalf of its holder.
async fn expire(client: &Client, name: &str) {
    lease(client, name, json!({"holderIdentity": ""})).await;
}

async fn lease(client: &Client, name: &str, spec: Value) {
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    patch(&leases, name, json!({"spec": spec})).await;
}
