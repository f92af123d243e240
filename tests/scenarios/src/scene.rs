//! Helpers for writing scenarios: actions of a user, and conditions to wait for.

use std::fmt::Debug;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::Event},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pintle::informer::InformerFactory;
use sample_controller::{
    foo::{Foo, FooStatus},
    install,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{Gate, Running, Start, World, sample_controller};

/// A statically typed, namespaced kind.
pub trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
{
}

/// A world with the Foo CRD and a controller to run on it.
pub struct Scene<W> {
    /// The cluster.
    pub world: W,
    /// Records, and can fail, the requests of controllers.
    pub gate: Gate,
    start: Start,
}

impl<W: World> Scene<W> {
    /// Creates a scene that runs `sample-controller`.
    pub async fn new(world: W) -> Self {
        Self::with(world, sample_controller).await
    }

    /// Creates a scene that runs another controller for Foos. Installs the CRD if it is missing and
    /// waits until it is served.
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

    /// Starts a controller.
    pub fn run(&self) -> Running {
        let client = self.gate.client(self.world.controller_client());
        let informers = InformerFactory::new(client.clone())
            .resync(self.world.pace().resync)
            .namespace(self.world.namespace());
        let (clock, shutdown) = (self.world.clock(), CancellationToken::new());
        let controller = (self.start)(client, informers.clone(), clock, shutdown.clone());
        Running::new(informers, shutdown, controller)
    }

    /// Polls until `poll` returns a value.
    ///
    /// # Panics
    ///
    /// Panics with "timed out waiting for `what`" after the timeout of the world.
    pub async fn eventually<T>(&self, what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
        let pace = self.world.pace();
        let deadline = Instant::now() + pace.timeout;
        loop {
            self.world.run_pods().await;
            if let Some(value) = poll().await {
                return value;
            }
            assert!(Instant::now() < deadline, "timed out waiting for {what}");
            sleep(pace.tick).await;
        }
    }

    /// Lets several resync periods pass.
    pub async fn wait(&self) {
        sleep(self.world.pace().idle).await;
    }

    /// Lets several resync periods pass, and then asserts that controllers write nothing during
    /// several more.
    pub async fn goes_idle(&self) {
        self.wait().await;
        let before = self.gate.writes();
        self.wait().await;
        assert_eq!(
            self.gate.writes(),
            before,
            "writes although nothing changed"
        );
    }

    /// Returns the API of a kind in the namespace of the world.
    pub fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.world.client(), &self.world.namespace())
    }

    /// Creates a Foo.
    pub async fn create_foo(&self, name: &str, spec: Value) {
        let foo = json!({"metadata": {"name": name}, "spec": spec});
        let foo = serde_json::from_value(foo).unwrap();
        let foos = self.api::<Foo>();
        foos.create(&PostParams::default(), &foo).await.unwrap();
    }

    /// Creates a Deployment that no Foo controls.
    pub async fn create_deployment(&self, name: &str) {
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

    /// Patches an object.
    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        let api = self.api::<K>();
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Deletes an object with background propagation.
    pub async fn delete<K: Namespaced>(&self, name: &str) {
        let api = self.api::<K>();
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Lists the objects of a kind.
    pub async fn list<K: Namespaced>(&self) -> Vec<K> {
        let list = self.api().list(&ListParams::default()).await;
        list.unwrap().items
    }

    /// Returns a Deployment if it exists.
    pub async fn deployment(&self, name: &str) -> Option<Deployment> {
        self.api().get_opt(name).await.unwrap()
    }

    /// Waits until a Deployment exists and requests `replicas`.
    pub async fn deployment_with(&self, name: &str, replicas: i32) -> Deployment {
        self.eventually(&format!("{replicas} replicas of {name}"), async || {
            let deployment = self.deployment(name).await?;
            let current = deployment.spec.as_ref()?.replicas?;
            (current == replicas).then_some(deployment)
        })
        .await
    }

    /// Waits until the status of a Foo matches `predicate`.
    pub async fn status(
        &self,
        name: &str,
        what: &str,
        predicate: impl Fn(&FooStatus) -> bool,
    ) -> FooStatus {
        let foos = self.api::<Foo>();
        self.eventually(&format!("Foo {name} to be {what}"), async || {
            foos.get(name).await.unwrap().status.filter(&predicate)
        })
        .await
    }

    /// Waits until the status of a Foo shows `replicas` available and, if the CRD stores
    /// conditions, `Ready`.
    pub async fn available(&self, name: &str, replicas: i32) -> FooStatus {
        let what = format!("available with {replicas} replicas");
        self.status(name, &what, |status| {
            let mut conditions = status.conditions.iter();
            let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
            status.available_replicas == replicas && (ready || !self.world.keeps_conditions())
        })
        .await
    }

    /// Asserts that `Ready` is the only condition and has this reason, or that there are no
    /// conditions if the CRD prunes them.
    pub fn assert_ready_reason(&self, status: &FooStatus, reason: &str) {
        let conditions = status.conditions.iter();
        let found: Vec<_> = conditions
            .map(|it| (it.type_.as_str(), it.reason.as_str()))
            .collect();
        if self.world.keeps_conditions() {
            assert_eq!(found, [("Ready", reason)]);
        } else {
            assert_eq!(found, []);
        }
    }

    /// Waits until the events of a Foo are exactly these: `type reason: message`, sorted.
    pub async fn has_events(&self, foo: &str, expected: &[&str]) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let what = format!("the events {expected:?} of Foo {foo}");
        self.eventually(&what, async || {
            let events = self.list::<Event>().await;
            let regarding = events.iter().filter(|event| {
                event.involved_object.kind.as_deref() == Some("Foo")
                    && event.involved_object.name.as_deref() == Some(foo)
            });
            let mut lines: Vec<_> = regarding
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
