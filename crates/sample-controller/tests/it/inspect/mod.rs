//! The inspector on the sample: the reasons in five prepared situations, and the page in a browser.

#[cfg(all(unix, feature = "browser"))]
mod browser;

use std::time::Duration;

use http::{Method, Request, StatusCode};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Event, Pod, ResourceQuota},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, api::PostParams, client::Body, core::NamespaceResourceScope};
use pintle::{
    cache::ObjectKey,
    clock::Clock,
    events::EventBroadcaster,
    informer::InformerFactory,
    inspect::{Inspector, KeyLife, Verdict},
    queue::WorkQueue,
};
use pintle_cluster::Cluster;
use sample_controller::{
    controller::{Controller, NAME},
    crd,
    foo::Foo,
};
use sample_scenarios::failure;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// An embedded cluster with the sample controller and an inspector, under virtual time.
struct World {
    cluster: Cluster,
    inspector: Inspector,
    shutdown: CancellationToken,
    /// Keeps the informers running, as the narration does in the program.
    _informers: InformerFactory,
}

impl World {
    /// Runs the controller with the client that `client` returns.
    async fn run(client: impl FnOnce(Client) -> Client) -> Self {
        let cluster = Cluster::start().await;
        let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
        let (params, definition) = (PostParams::default(), crd::definition());
        definitions.create(&params, &definition).await.unwrap();
        let client = client(cluster.client());
        let informers = InformerFactory::new(client.clone());
        let shutdown = CancellationToken::new();
        let inspector = Inspector::new("sample-controller");
        let queue = WorkQueue::new("Foos");
        let recorder = EventBroadcaster::new().recorder(NAME);
        let controller = Controller::new(
            client,
            &informers,
            recorder,
            queue,
            Clock::system_or_paused(),
        );
        let controller = controller.unwrap().inspect(&inspector);
        let watched = (
            informers.informer::<ReplicaSet>(),
            informers.informer::<Pod>(),
            informers.informer::<Event>(),
        );
        informers.start(&shutdown);
        let stop = shutdown.clone();
        tokio::spawn(async move {
            let _watched = watched;
            controller.run(1, &stop).await
        });
        Self {
            cluster,
            inspector,
            shutdown,
            _informers: informers,
        }
    }

    async fn create<K>(&self, object: Value)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let api = Api::<K>::default_namespaced(self.cluster.client());
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Creates the Foo `a`, whose Deployment is `web`.
    async fn foo(&self) {
        let spec = json!({"deploymentName": "web", "replicas": 2});
        self.create::<Foo>(json!({"metadata": {"name": "a"}, "spec": spec}))
            .await;
    }

    /// Returns the recorded life of the Foo `a` after 90 seconds.
    async fn life(&self) -> KeyLife {
        sleep(Duration::from_secs(90)).await;
        let key = ObjectKey::namespaced("default", "a");
        let life = self.inspector.key(NAME, &key).unwrap();
        self.shutdown.cancel();
        life
    }

    /// Returns why the Foo `a` is not ready.
    async fn why(&self) -> String {
        let life = self.life().await;
        assert_eq!(life.why.verdict, Verdict::Failing, "{}", life.why.sentence);
        life.why.sentence
    }
}

/// Returns a client whose requests for `resource` with `method` fail with 403.
fn refusing(client: Client, method: Method, resource: &'static str) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let hit = *request.method() == method && request.uri().path().ends_with(resource);
        async move {
            if hit {
                let message = format!("{resource} is forbidden: not allowed here");
                return Ok(failure(StatusCode::FORBIDDEN, "Forbidden", &message));
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

#[tokio::test(start_paused = true)]
async fn ready_foo_is_fine() {
    let world = World::run(|client| client).await;
    world.foo().await;
    let life = world.life().await;
    assert_eq!(life.why.verdict, Verdict::Fine, "{}", life.why.sentence);
    let kinds: Vec<_> = life.tree.iter().map(|node| node.kind.as_str()).collect();
    assert_eq!(kinds, ["Foo", "Deployment", "ReplicaSet", "Pod", "Pod"]);
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn foreign_deployment_is_named() {
    let world = World::run(|client| client).await;
    world
        .create::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "other"}},
                "template": {
                    "metadata": {"labels": {"app": "other"}},
                    "spec": {"containers": [{"name": "other", "image": "other"}]},
                },
            },
        }))
        .await;
    world.foo().await;
    let why = world.why().await;
    assert!(
        why.starts_with("Foo default/a is not ready: its reconcile failed: "),
        "{why}"
    );
    let owner = "Deployment default/web exists and has no controller.";
    assert!(why.contains(owner), "{why}");
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn rejected_request_is_named() {
    let world = World::run(|client| refusing(client, Method::POST, "/deployments")).await;
    world.foo().await;
    let why = world.why().await;
    let expected = "Foo default/a is not ready: the API server refused to create Deployment \
                    default/web: 403 /deployments is forbidden: not allowed here. It is retried in ";
    assert!(why.starts_with(expected), "{why}");
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn exceeded_quota_is_named() {
    let world = World::run(|client| client).await;
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}});
    world.create::<ResourceQuota>(quota).await;
    sleep(Duration::from_secs(30)).await;
    world.foo().await;
    let why = world.why().await;
    assert!(
        why.starts_with("Foo default/a is not ready because ReplicaSet default/web-"),
        "{why}"
    );
    for part in ["cannot create its Pods: ", "exceeded quota: small"] {
        assert!(why.contains(part), "{why}");
    }
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn crashing_pods_are_named() {
    let world = World::run(|client| client).await;
    world.cluster.pods().crash_loop().unwrap();
    world.foo().await;
    let why = world.why().await;
    assert!(
        why.starts_with("Foo default/a is not ready because Pod default/web-"),
        "{why}"
    );
    for part in ["keeps crashing with exit code 1", "(CrashLoopBackOff)"] {
        assert!(why.contains(part), "{why}");
    }
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn informer_without_permissions_is_named() {
    let world = World::run(|client| refusing(client, Method::GET, "/deployments")).await;
    world.foo().await;
    let why = world.why().await;
    let expected = "Nothing is reconciled until the cache of Deployment is filled: deployments.apps at \
                    cluster scope is retrying in ";
    assert!(why.starts_with(expected), "{why}");
    assert!(
        why.ends_with("grant the operator list and watch on deployments.apps."),
        "{why}"
    );
}
