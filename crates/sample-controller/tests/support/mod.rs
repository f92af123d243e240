//! A cluster with the Foo CRD, controllers to run on it, and words to speak about it.

use std::{
    convert::Infallible,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use pintle::{clock::Clock, events::EventBroadcaster, informer::InformerFactory, queue::WorkQueue};
use pintle_cluster::Cluster;
use sample_controller::{
    controller::{Controller, NAME},
    crd,
    foo::Foo,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Which definition of Foo the cluster has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Crd {
    /// Ours.
    Today,
    /// Ours without the status subresource.
    Classic,
    /// The original's, which knows nothing of our further status fields.
    Original,
    /// The original's with the status subresource.
    OriginalWithStatus,
}

impl Crd {
    fn definition(self) -> CustomResourceDefinition {
        let mut definition = crd::definition(matches!(self, Self::Classic | Self::Original));
        if matches!(self, Self::Original | Self::OriginalWithStatus) {
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "deploymentName": {"type": "string"},
                    "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
                }},
                "status": {"type": "object", "properties": {
                    "availableReplicas": {"type": "integer"},
                }},
            }}});
            let version = &mut definition.spec.versions[0];
            version.schema = serde_json::from_value(schema).unwrap();
            version.additional_printer_columns = None;
        }
        definition
    }
}

pub(crate) struct World {
    cluster: Cluster,
    gate: Gate,
}

/// What the controllers' requests go through: counts writes, and fails some when told to.
#[derive(Clone, Default)]
struct Gate {
    failing: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    anonymous: Arc<AtomicUsize>,
    events: Arc<AtomicUsize>,
}

pub(crate) struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

impl World {
    pub(crate) async fn new(crd: Crd) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let cluster = Cluster::builder().starting_at(start).seed(1).start().await;
        let api = Api::<CustomResourceDefinition>::all(cluster.client());
        api.create(&PostParams::default(), &crd.definition())
            .await
            .unwrap();
        Self {
            cluster,
            gate: Gate::default(),
        }
    }

    /// Runs a controller until it is stopped.
    pub(crate) fn run(&self) -> Running {
        let client = self.gate.client(&self.cluster);
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let task = tokio::spawn(async move {
            let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
            let events = EventBroadcaster::builder().clock(clock.clone()).build();
            let sink = events.start_recording(client.clone());
            let informers = InformerFactory::new(client.clone()).resync(Duration::from_secs(30));
            let queue = WorkQueue::new("Foos");
            let recorder = events.recorder(NAME);
            let controller = Controller::new(client, &informers, recorder, queue, clock).unwrap();
            informers.start(&stop);
            controller.run(2, &stop).await.unwrap();
            informers.shutdown().await;
            assert_eq!(events.shutdown(Duration::from_secs(5)).await.left, 0);
            drop(sink);
        });
        Running { shutdown, task }
    }

    pub(crate) async fn run_for_a_while(&self) {
        let running = self.run();
        self.settle().await;
        running.stop().await;
    }

    /// Long enough for Pods to start and everybody to have heard of it.
    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(20)).await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.client(), "default")
    }

    pub(crate) async fn apply(&self, name: &str, spec: Value) {
        let foo = json!({"metadata": {"name": name}, "spec": spec});
        let foo = serde_json::from_value(foo).unwrap();
        self.api::<Foo>()
            .create(&PostParams::default(), &foo)
            .await
            .unwrap();
    }

    pub(crate) async fn foo(&self, name: &str) -> Foo {
        self.api().get(name).await.unwrap()
    }

    pub(crate) async fn patch_foo(&self, name: &str, patch: Value) {
        self.patch::<Foo>(name, patch).await;
    }

    pub(crate) async fn deployment(&self, name: &str) -> Option<Deployment> {
        self.api().get_opt(name).await.unwrap()
    }

    pub(crate) async fn patch_deployment(&self, name: &str, patch: Value) {
        self.patch::<Deployment>(name, patch).await;
    }

    async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(patch);
        self.api::<K>()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// A Deployment that no Foo asked for.
    pub(crate) async fn make_deployment(&self, name: &str) {
        let labels = json!({"app": "other"});
        let deployment = json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "other"}]},
                },
            },
        });
        let deployment = serde_json::from_value(deployment).unwrap();
        self.api::<Deployment>()
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        self.api::<K>()
            .delete(name, &DeleteParams::background())
            .await
            .unwrap();
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        self.api()
            .list(&kube::api::ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// The events about a Foo, as `kubectl describe` shows them.
    pub(crate) async fn events_of(&self, foo: &str) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut lines: Vec<_> = self
            .list::<Event>()
            .await
            .iter()
            .filter(|event| event.involved_object.kind.as_deref() == Some("Foo"))
            .filter(|event| event.involved_object.name.as_deref() == Some(foo))
            .map(|event| {
                format!(
                    "{} {}: {}",
                    text(&event.type_),
                    text(&event.reason),
                    text(&event.message)
                )
            })
            .collect();
        lines.sort();
        lines
    }

    /// How many writes did not say who writes.
    pub(crate) fn anonymous_writes(&self) -> usize {
        self.gate.anonymous.load(Ordering::SeqCst)
    }

    /// How often the controllers have written an event: for the first time, or as a repeat.
    pub(crate) fn event_writes(&self) -> usize {
        self.gate.events.load(Ordering::SeqCst)
    }

    /// How many writes the controllers have asked for, events aside.
    pub(crate) fn writes(&self) -> usize {
        self.gate.writes.load(Ordering::SeqCst)
    }

    /// From now on every tenth write fails with 500, and every third is told to try again (409).
    pub(crate) fn fail_writes(&self) {
        self.gate.failing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn failed(&self) -> usize {
        self.gate.failed.load(Ordering::SeqCst)
    }
}

impl Gate {
    fn client(&self, cluster: &Cluster) -> Client {
        let (gate, service) = (self.clone(), cluster.server().service());
        let gated = tower::service_fn(move |request: Request<Body>| {
            let refusal = gate.judge(&request);
            let answer = service.clone().oneshot(request);
            async move {
                match refusal {
                    Some(status) => Ok(refuse(status)),
                    None => answer.await.map(|answer| answer.map(BodyExt::boxed_unsync)),
                }
            }
        });
        Client::new(gated, "default")
    }

    fn judge(&self, request: &Request<Body>) -> Option<StatusCode> {
        if request.method() == Method::GET {
            return None;
        }
        if request.uri().path().contains("/events") {
            // A series of events is closed minutes after its last one: not the controller's doing.
            self.events.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        let by_us = format!("fieldManager={NAME}");
        let query = request.uri().query().unwrap_or_default();
        if request.method() != Method::DELETE && !query.contains(&by_us) {
            self.anonymous.fetch_add(1, Ordering::SeqCst);
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if !self.failing.load(Ordering::SeqCst) {
            return None;
        }
        let status = match number {
            number if number % 10 == 0 => StatusCode::INTERNAL_SERVER_ERROR,
            number if number % 3 == 0 => StatusCode::CONFLICT,
            _ => return None,
        };
        self.failed.fetch_add(1, Ordering::SeqCst);
        Some(status)
    }
}

fn refuse(status: StatusCode) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let reason = if status == StatusCode::CONFLICT {
        "Conflict"
    } else {
        "InternalError"
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "a fault of the test", "reason": reason, "code": status.as_u16(),
    });
    let mut response = Response::new(Full::from(body.to_string()).boxed_unsync());
    *response.status_mut() = status;
    response
}
