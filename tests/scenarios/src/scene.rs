//! A world with the Foo CRD, controllers to run on it, and words to speak about it.

use std::{fmt::Debug, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::Event},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pintle::{clock::Clock, events::EventBroadcaster, informer::InformerFactory, queue::WorkQueue};
use sample_controller::{
    controller::{Controller, NAME},
    foo::{Foo, FooStatus},
    install,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{Gate, World};

/// A kind that lives in a namespace and is known to the compiler.
pub trait Thing:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned
{
}

impl<K> Thing for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
{
}

/// Where a scenario plays.
#[derive(Debug)]
pub struct Scene<W> {
    /// The cluster.
    pub world: W,
    /// What the controllers' requests go through.
    pub gate: Gate,
    start: Start,
}

/// Runs a controller until the token is cancelled.
pub type Start = fn(Client, InformerFactory, Clock, CancellationToken) -> BoxFuture<'static, ()>;

/// Runs the sample controller.
fn sample(
    client: Client,
    informers: InformerFactory,
    clock: Clock,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    let run = async move {
        let events = EventBroadcaster::builder().clock(clock.clone()).build();
        let _sink = events.start_recording(client.clone());
        let queue = WorkQueue::new("Foos");
        let recorder = events.recorder(NAME);
        let controller = Controller::new(client, &informers, recorder, queue, clock).unwrap();
        informers.start(&shutdown);
        controller.run(2, &shutdown).await.unwrap();
        informers.shutdown().await;
        assert_eq!(events.shutdown(Duration::from_secs(5)).await.left, 0);
    };
    Box::pin(run)
}

/// A controller at work.
#[derive(Debug)]
pub struct Running {
    /// Its caches.
    pub informers: InformerFactory,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops it, and waits until it has.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

impl<W: World> Scene<W> {
    /// Plays with the sample controller; see [`with`](Self::with).
    pub async fn new(world: W) -> Self {
        Self::with(world, sample).await
    }

    /// Plays with the controller that `start` runs. Installs the Foo CRD if it is missing, and waits
    /// until Foos are served.
    pub async fn with(world: W, start: Start) -> Self {
        install::crd(&world.client()).await.unwrap();
        let scene = Self {
            world,
            gate: Gate::default(),
            start,
        };
        scene
            .eventually("Foos to be served", async || {
                scene.api::<Foo>().list(&ListParams::default()).await.ok()
            })
            .await;
        scene
    }

    /// Runs a controller until it is stopped.
    pub fn run(&self) -> Running {
        let client = self.gate.client(self.world.controller_client());
        let informers = InformerFactory::new(client.clone())
            .resync(self.world.pace().resync)
            .namespace(self.world.namespace());
        let (shutdown, clock) = (CancellationToken::new(), self.world.clock());
        let running = (self.start)(client, informers.clone(), clock, shutdown.clone());
        let task = tokio::spawn(running);
        Running {
            informers,
            shutdown,
            task,
        }
    }

    /// Asks again and again until there is an answer, and returns it.
    pub async fn eventually<T>(&self, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
        let pace = self.world.pace();
        let deadline = Instant::now() + pace.patience;
        loop {
            self.world.run_pods().await;
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(
                Instant::now() < deadline,
                "waited {:?} for {what}",
                pace.patience
            );
            sleep(pace.tick).await;
        }
    }

    /// Lets time pass: several resyncs.
    pub async fn rest(&self) {
        sleep(self.world.pace().rest).await;
    }

    /// Sees that controllers write nothing while nothing changes.
    pub async fn rests(&self) {
        self.rest().await;
        let before = self.gate.writes();
        self.rest().await;
        assert_eq!(self.gate.writes(), before, "nothing changed");
    }

    /// Objects of a kind, where everything happens.
    pub fn api<K: Thing>(&self) -> Api<K> {
        Api::namespaced(self.world.client(), &self.world.namespace())
    }

    /// A user makes a Foo.
    pub async fn apply(&self, name: &str, spec: Value) {
        let foo = json!({"metadata": {"name": name}, "spec": spec});
        let foo = serde_json::from_value(foo).unwrap();
        let foos = self.api::<Foo>();
        foos.create(&PostParams::default(), &foo).await.unwrap();
    }

    /// A Deployment that no Foo asked for.
    pub async fn make_deployment(&self, name: &str) {
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
        let deployments = self.api::<Deployment>();
        deployments
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    /// A user changes something.
    pub async fn patch<K: Thing>(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        let api = self.api::<K>();
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// A user deletes something, and it is gone or going.
    pub async fn delete<K: Thing>(&self, name: &str) {
        let api = self.api::<K>();
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Everything of a kind.
    pub async fn list<K: Thing>(&self) -> Vec<K> {
        let list = self.api().list(&ListParams::default()).await;
        list.unwrap().items
    }

    /// The Deployment of this name, if there is one.
    pub async fn deployment(&self, name: &str) -> Option<Deployment> {
        self.api().get_opt(name).await.unwrap()
    }

    /// Waits until the Deployment is there and wants so many replicas.
    pub async fn deployment_with(&self, name: &str, replicas: i32) -> Deployment {
        self.eventually(&format!("{replicas} replicas of {name}"), async || {
            let deployment = self.deployment(name).await?;
            let has = deployment.spec.as_ref()?.replicas?;
            (has == replicas).then_some(deployment)
        })
        .await
    }

    /// Waits until the Foo's status says what is wanted.
    pub async fn status(
        &self,
        name: &str,
        what: &str,
        says: impl Fn(&FooStatus) -> bool,
    ) -> FooStatus {
        let foos = self.api::<Foo>();
        self.eventually(&format!("Foo {name} to be {what}"), async || {
            foos.get(name).await.unwrap().status.filter(&says)
        })
        .await
    }

    /// Waits until so many replicas are available, and the Foo says so.
    pub async fn available(&self, name: &str, replicas: i32) -> FooStatus {
        let what = format!("available {replicas} times");
        self.status(name, &what, |status| {
            let mut conditions = status.conditions.iter();
            let ready = conditions.any(|known| known.type_ == "Ready" && known.status == "True");
            status.available_replicas == replicas && (ready || !self.world.keeps_conditions())
        })
        .await
    }

    /// The one condition is `Ready`, or not, with this reason; none where the definition drops it.
    pub fn is_ready_because(&self, status: &FooStatus, reason: &str) {
        let conditions = status.conditions.iter();
        let found: Vec<_> = conditions
            .map(|known| (known.type_.as_str(), known.reason.as_str()))
            .collect();
        if self.world.keeps_conditions() {
            assert_eq!(found, [("Ready", reason)]);
        } else {
            assert_eq!(found, []);
        }
    }

    /// Waits until the events about a Foo are these, as `kubectl describe` shows them.
    pub async fn told(&self, foo: &str, expected: &[&str]) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let what = format!("the events {expected:?} of Foo {foo}");
        self.eventually(&what, async || {
            let events = self.list::<Event>().await;
            let about = events.iter().filter(|event| {
                event.involved_object.kind.as_deref() == Some("Foo")
                    && event.involved_object.name.as_deref() == Some(foo)
            });
            let mut lines: Vec<_> = about
                .map(|event| {
                    let (kind, reason) = (text(&event.type_), text(&event.reason));
                    format!("{kind} {reason}: {}", text(&event.message))
                })
                .collect();
            lines.sort();
            (lines == expected).then_some(())
        })
        .await;
    }
}
