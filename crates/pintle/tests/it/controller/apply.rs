//! Children: applied when they differ, and only to objects the controller owns.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use pintle::{
    controller::{Action, ApplyError, Context, Controller},
    informer::InformerFactory,
    owner::OwnerError,
};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt;

use super::{World, controlled_by, create, delete, named, patch, slow_watches};
use crate::support::config_map;

/// The requests of a controller, as `METHOD name`, without lists and watches.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// A client of `server` whose requests are recorded here.
    fn client(&self, server: &ApiServer) -> Client {
        let (service, requests) = (server.service(), self.0.clone());
        let recorded = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let mut parts = request.uri().path().rsplit('/');
            let last = parts.next().unwrap_or_default();
            if last != "configmaps" && last != "serviceaccounts" && last != "secrets" {
                let line = format!("{} {last}", request.method());
                requests.lock().unwrap().push(line);
            }
            service.clone().oneshot(request)
        });
        Client::new(recorded, "default")
    }
}

/// Runs a controller whose reconcile applies the ConfigMap that an annotation of the account
/// describes, and records the result.
struct Fixture {
    world: World,
    requests: Requests,
    results: Arc<Mutex<Vec<Result<bool, ApplyError>>>>,
}

impl Fixture {
    fn new() -> Self {
        let server = ApiServer::builder().build();
        let requests = Requests::default();
        let world = World::on(server.client());
        let fixture = Self {
            world,
            requests,
            results: Arc::default(),
        };
        fixture.start(&server);
        fixture
    }

    fn start(&self, server: &ApiServer) {
        let informers = InformerFactory::new(self.requests.client(server));
        let controller = Controller::<ServiceAccount>::new("accounts", &informers)
            .owns::<ConfigMap>()
            .field_manager("mapper")
            .state(Arc::clone(&self.results));
        let shutdown = self.world.shutdown.clone();
        tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    }

    /// Requests this child, and returns the results of the reconciles.
    async fn ask(&self, child: Value) -> Vec<Result<bool, ApplyError>> {
        let annotations = json!({"metadata": {"annotations": {"child": child.to_string()}}});
        patch(&self.world.accounts(), "a", annotations).await;
        self.settle().await
    }

    async fn settle(&self) -> Vec<Result<bool, ApplyError>> {
        sleep(Duration::from_millis(50)).await;
        std::mem::take(&mut self.results.lock().unwrap())
    }

    async fn child(&self) -> ConfigMap {
        self.world.maps().get("child").await.unwrap()
    }
}

type Results = Arc<Mutex<Vec<Result<bool, ApplyError>>>>;

async fn reconcile(
    account: Arc<ServiceAccount>,
    cx: Context<Results>,
) -> Result<Action, ApplyError> {
    let Some(child) = account.annotations().get("child") else {
        return Ok(Action::await_change());
    };
    let child: ConfigMap = serde_json::from_str(child).unwrap();
    let result = cx.apply_owned(child).await;
    cx.lock()
        .unwrap()
        .push(result.map(|child| child.is_changed()));
    Ok(Action::await_change())
}

fn changed(results: &[Result<bool, ApplyError>]) -> Vec<bool> {
    results
        .iter()
        .map(|result| *result.as_ref().unwrap())
        .collect()
}

fn child(data: &Value) -> Value {
    json!({"metadata": {"name": "child", "labels": {"app": "web"}}, "data": data})
}

/// Proves controller/apply-owned, controller/apply-owned-compares, controller/apply.
#[tokio::test(start_paused = true)]
async fn child_is_written_only_when_something_differs() {
    let fixture = Fixture::new();
    let account = fixture.world.account("a").await;
    // Created, and seen by the reconcile that the child's event triggers.
    let results = fixture.ask(child(&json!({"k": "1"}))).await;
    assert_eq!(changed(&results), [true, false]);
    assert_eq!(fixture.requests.take(), ["GET child", "PATCH child"]);
    let stored = fixture.child().await;
    let owner = &stored.owner_references()[0];
    assert_eq!(
        (owner.uid.as_str(), owner.controller),
        (account.uid().unwrap().as_str(), Some(true))
    );
    assert_eq!(stored.namespace().as_deref(), Some("default"));
    let managers = stored.metadata.managed_fields.unwrap();
    assert_eq!(managers[0].manager.as_deref(), Some("mapper"));

    // Neither another reconcile nor a change to another manager's field causes a request.
    fixture.world.relabel("a", 1).await;
    let others = json!({"metadata": {"labels": {"team": "shop"}}, "data": {"other": "x"}});
    patch(&fixture.world.maps(), "child", others).await;
    let results = fixture.settle().await;
    assert!(!results.is_empty() && changed(&results).iter().all(|changed| !changed));
    assert!(fixture.requests.take().is_empty());

    // A change to a field of ours is reverted; fields of others stay.
    patch(&fixture.world.maps(), "child", json!({"data": {"k": "9"}})).await;
    assert_eq!(changed(&fixture.settle().await), [true, false]);
    assert_eq!(fixture.requests.take(), ["PATCH child"]);
    let stored = fixture.child().await;
    assert_eq!(stored.data.as_ref().unwrap()["k"], "1");
    assert_eq!(stored.labels()["team"], "shop");

    // A field that is no longer set is removed.
    let results = fixture.ask(child(&json!({"l": "2"}))).await;
    assert_eq!(changed(&results), [true, false]);
    let data = fixture.child().await.data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["l", "other"]);
}

/// Proves controller/apply-owned-compares.
#[tokio::test(start_paused = true)]
async fn first_reconcile_after_a_start_applies_once() {
    let server = ApiServer::builder().build();
    let mut fixture = Fixture {
        world: World::on(server.client()),
        requests: Requests::default(),
        results: Arc::default(),
    };
    fixture.world.account("a").await;
    fixture.start(&server);
    fixture.ask(child(&json!({"k": "1"}))).await;
    fixture.world.shutdown.cancel();
    sleep(Duration::from_secs(1)).await;
    fixture.requests.take();

    fixture.world.shutdown = tokio_util::sync::CancellationToken::new();
    fixture.start(&server);
    assert_eq!(changed(&fixture.settle().await), [false]);
    assert_eq!(fixture.requests.take(), ["PATCH child"]);
    fixture.world.relabel("a", 1).await;
    assert_eq!(changed(&fixture.settle().await), [false]);
    assert!(fixture.requests.take().is_empty());
}

/// Proves controller/apply-owned.
#[tokio::test(start_paused = true)]
async fn foreign_object_is_not_adopted() {
    let fixture = Fixture::new();
    fixture.world.account("a").await;
    let other = fixture.world.account("b").await;
    fixture.world.map("child", None).await;
    fixture.world.settle().await;
    let results = fixture.ask(child(&json!({"k": "1"}))).await;
    let Err(error) = &results[0] else {
        panic!("{results:?}")
    };
    assert!(error.is_foreign());
    assert_eq!(
        error.to_string(),
        "ConfigMap default/child already exists and is not controlled by ServiceAccount a"
    );

    let owners = json!({"metadata": {"ownerReferences": [controlled_by("v1", &other)]}});
    patch(&fixture.world.maps(), "child", owners).await;
    fixture.settle().await;
    let results = fixture.ask(child(&json!({"k": "2"}))).await;
    let Err(ApplyError::Owner(OwnerError::AlreadyControlled { name, .. })) = &results[0] else {
        panic!("{results:?}")
    };
    assert_eq!(name, "b");
    assert_eq!(fixture.child().await.data, None);
    assert!(
        fixture
            .requests
            .take()
            .iter()
            .all(|line| line.starts_with("GET"))
    );
}

/// Proves controller/apply-owned.
#[tokio::test(start_paused = true)]
async fn foreign_object_missing_from_the_cache_is_not_adopted() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "configmaps", Duration::from_secs(9)));
    world.account("a").await;
    let controller = world.controller().owns::<ConfigMap>();
    let results = Results::default();
    let controller = controller.state(Arc::clone(&results));
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_secs(60)).await;
    world.map("child", None).await;
    let annotations =
        json!({"metadata": {"annotations": {"child": child(&json!({})).to_string()}}});
    patch(&world.accounts(), "a", annotations).await;
    sleep(Duration::from_secs(1)).await;
    let results = std::mem::take(&mut *results.lock().unwrap());
    assert!(
        matches!(&results[..], [Err(error)] if error.is_foreign()),
        "{results:?}"
    );
}

/// Proves controller/apply-owned.
#[tokio::test(start_paused = true)]
async fn child_that_is_being_deleted_is_left_alone() {
    let fixture = Fixture::new();
    fixture.world.account("a").await;
    fixture.ask(child(&json!({"k": "1"}))).await;
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    patch(&fixture.world.maps(), "child", held).await;
    delete(&fixture.world.maps(), "child").await;
    fixture.settle().await;
    fixture.requests.take();
    let results = fixture.ask(child(&json!({"k": "2"}))).await;
    assert_eq!(changed(&results), [false]);
    assert!(fixture.requests.take().is_empty());

    let released = json!({"metadata": {"finalizers": null}});
    patch(&fixture.world.maps(), "child", released).await;
    fixture.settle().await;
    assert_eq!(
        fixture.child().await.data.unwrap()["k"],
        "2",
        "created anew"
    );
}

/// Proves owner/scopes, controller/apply-owned.
#[tokio::test(start_paused = true)]
async fn child_out_of_scope_or_unwatched_is_rejected() {
    async fn reconcile(_: Arc<ServiceAccount>, cx: Context<Results>) -> Result<Action, ApplyError> {
        let elsewhere = ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("elsewhere".into()),
                ..named("child")
            },
            ..ConfigMap::default()
        };
        let cluster_scoped = Namespace {
            metadata: named("child"),
            ..Namespace::default()
        };
        let unwatched = Secret {
            metadata: named("child"),
            ..Secret::default()
        };
        let results = [
            cx.apply_owned(elsewhere).await.map(|_| true),
            cx.apply_owned(cluster_scoped).await.map(|_| true),
            cx.apply_owned(unwatched).await.map(|_| true),
            cx.apply_owned(ConfigMap::default()).await.map(|_| true),
        ];
        cx.lock().unwrap().extend(results);
        Ok(Action::await_change())
    }
    let world = World::new();
    world.account("a").await;
    let results = Results::default();
    let controller = world.controller().owns::<ConfigMap>();
    let controller = controller.state(Arc::clone(&results));
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    world.settle().await;
    let results = results.lock().unwrap();
    assert!(matches!(
        &results[..],
        [
            Err(ApplyError::Owner(OwnerError::OtherNamespace { .. })),
            Err(ApplyError::Owner(OwnerError::ClusterScoped { .. })),
            Err(ApplyError::NotWatched(_)),
            Err(ApplyError::Unnamed { .. }),
        ]
    ));
}

/// Proves controller/apply.
#[tokio::test(start_paused = true)]
async fn apply_conflicts_unless_forced() {
    async fn reconcile(_: Arc<ServiceAccount>, cx: Context<Seen>) -> Result<Action, kube::Error> {
        let map =
            json!({"metadata": {"name": "shared", "namespace": "default"}, "data": {"k": "ours"}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        // Panics here would be contained, so results are checked outside.
        let outcome = match cx.apply(&map).await {
            Err(kube::Error::Api(status)) if status.code == 409 => "conflict",
            Err(_) => "error",
            Ok(_) => "applied",
        };
        cx.lock().unwrap().push(outcome);
        cx.apply(&map).force().await?;
        cx.lock().unwrap().push("forced");
        Ok(Action::await_change())
    }
    type Seen = Arc<Mutex<Vec<&'static str>>>;
    let seen = Seen::default();
    let world = World::new();
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "shared"}, "data": {"k": "theirs"},
    });
    let params = PatchParams::apply("other");
    let maps: Api<ConfigMap> = world.maps();
    maps.patch("shared", &params, &Patch::Apply(theirs))
        .await
        .unwrap();
    world.account("a").await;
    let controller = world.controller().state(seen.clone());
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    world.settle().await;
    assert_eq!(*seen.lock().unwrap(), ["conflict", "forced"]);
    assert_eq!(maps.get("shared").await.unwrap().data.unwrap()["k"], "ours");
}

/// Proves controller/apply-owned.
#[tokio::test(start_paused = true)]
async fn owned_objects_are_listed_by_their_controller() {
    async fn reconcile(_: Arc<ServiceAccount>, cx: Context<Names>) -> Result<Action, ApplyError> {
        let mut names: Vec<_> = cx
            .owned::<ConfigMap>()?
            .iter()
            .map(|map| map.key().name().to_owned())
            .collect();
        names.sort();
        cx.lock().unwrap().push((cx.key().name().to_owned(), names));
        Ok(Action::await_change())
    }
    type Names = Arc<Mutex<Vec<(String, Vec<String>)>>>;
    let world = World::new();
    let (a, b) = (world.account("a").await, world.account("b").await);
    for (name, owner) in [("a-1", &a), ("a-2", &a), ("b-1", &b)] {
        world.map(name, [controlled_by("v1", owner)]).await;
    }
    let names = Names::default();
    let controller = world.controller().owns::<ConfigMap>();
    let controller = controller.state(Arc::clone(&names));
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    world.settle().await;
    let mut names = names.lock().unwrap().clone();
    names.sort();
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        names,
        [
            ("a".into(), list(&["a-1", "a-2"])),
            ("b".into(), list(&["b-1"]))
        ]
    );
}

/// Proves controller/apply-owned.
#[tokio::test(start_paused = true)]
async fn terminating_child_that_the_cache_lacks_is_left_alone() {
    type Deleting = Arc<Mutex<Vec<bool>>>;
    async fn reconcile(
        account: Arc<ServiceAccount>,
        cx: Context<Deleting>,
    ) -> Result<Action, ApplyError> {
        if account.labels().contains_key("round") {
            let child = cx.apply_owned(config_map("child", "new")).await?;
            let is_deleting = child.metadata.deletion_timestamp.is_some();
            cx.lock().unwrap().push(is_deleting);
        }
        Ok(Action::await_change())
    }
    let server = ApiServer::builder().build();
    let world = World::on(server.client());
    let account = world.account("a").await;
    // The cache sees the child and its deletion an hour late.
    let slow = slow_watches(&server, "configmaps", Duration::from_secs(3600));
    let deleting = Deleting::default();
    let controller = Controller::<ServiceAccount>::new("accounts", &InformerFactory::new(slow))
        .owns::<ConfigMap>()
        .sync_timeout(Duration::from_secs(36_000))
        .read_own_writes_within(Duration::from_millis(10))
        .state(Arc::clone(&deleting));
    let stop = world.shutdown.clone();
    tokio::spawn(async move { controller.run(reconcile, &stop).await });
    sleep(Duration::from_secs(7200)).await;

    let mut child = config_map("child", "old");
    child.metadata.owner_references = Some(vec![controlled_by("v1", &account)]);
    child.metadata.finalizers = Some(vec!["example.org/wait".to_owned()]);
    create(&world.maps(), &child).await;
    delete(&world.maps(), "child").await;
    let before = world.maps().get("child").await.unwrap();
    world.relabel("a", 1).await;
    sleep(Duration::from_secs(30)).await;
    let seen = std::mem::take(&mut *deleting.lock().unwrap());
    assert!(
        !seen.is_empty() && seen.iter().all(|deleting| *deleting),
        "{seen:?}"
    );
    let after = world.maps().get("child").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());

    let free = json!({"metadata": {"finalizers": null}});
    patch(&world.maps(), "child", free).await;
    sleep(Duration::from_secs(10)).await;
    let child = world.maps().get("child").await.unwrap();
    assert_eq!(child.data.unwrap()["value"], "new", "it is created again");
    assert_ne!(child.metadata.uid, before.metadata.uid);
}
