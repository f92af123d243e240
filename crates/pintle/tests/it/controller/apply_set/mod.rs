//! Sets of children: applied together, and pruned of those no longer wanted.

mod errors;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount,
};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    client::Body,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use pintle::{
    conditions::Readiness,
    controller::{
        APPLY_SET_LABEL, Action, ApplySetError, Context, Controller, ControllerError, ObjectError,
        Stopped,
    },
    informer::InformerFactory,
    kstatus::Status,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{World, controlled_by, create, delete, named, patch};
use crate::support::{config_map, forbidden};

/// The injected response to each request, as `METHOD name` to a status; `None` means no response at
/// all.
#[derive(Clone, Default)]
struct Faults {
    planned: Arc<Mutex<BTreeMap<String, Option<StatusCode>>>>,
    /// The writes that were sent.
    writes: Arc<Mutex<Vec<String>>>,
}

impl Faults {
    fn plan(&self, request: &str, outcome: Option<StatusCode>) {
        self.planned
            .lock()
            .unwrap()
            .insert(request.to_owned(), outcome);
    }

    fn clear(&self) {
        self.planned.lock().unwrap().clear();
    }

    fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }

    fn client(&self, server: &ApiServer) -> Client {
        let (service, faults) = (server.service(), self.clone());
        let faulty = tower::service_fn(move |request: Request<Body>| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let line = format!("{} {name}", request.method());
            if matches!(
                *request.method(),
                Method::PATCH | Method::DELETE | Method::POST
            ) {
                faults.writes.lock().unwrap().push(line.clone());
            }
            let planned = faults.planned.lock().unwrap().get(&line).copied();
            let answer = service.clone().oneshot(request);
            async move {
                match planned {
                    Some(None) => std::future::pending().await,
                    Some(Some(status)) => {
                        let mut response = forbidden("it");
                        *response.status_mut() = status;
                        Ok(response.map(http_body_util::BodyExt::boxed_unsync))
                    }
                    None => Ok::<_, tower::BoxError>(
                        answer.await?.map(http_body_util::BodyExt::boxed_unsync),
                    ),
                }
            }
        });
        Client::new(faulty, "default")
    }
}

/// The names of changed children and the pruned objects, or the error.
type Outcome = Result<(Vec<String>, Vec<String>), ApplySetError>;

type Results = Arc<Mutex<Vec<Outcome>>>;

/// A controller whose children are listed in annotations of a ServiceAccount.
struct Fixture {
    server: ApiServer,
    world: World,
    faults: Faults,
    results: Results,
}

impl Fixture {
    async fn new() -> Self {
        let server = ApiServer::builder().build();
        let world = World::on(server.client());
        world.account("a").await;
        Self {
            server,
            world,
            faults: Faults::default(),
            results: Results::default(),
        }
    }

    fn controller(&self) -> Controller<ServiceAccount> {
        let informers = InformerFactory::new(self.faults.client(&self.server));
        Controller::<ServiceAccount>::new("accounts", &informers)
            .owns::<ConfigMap>()
            .owns::<Secret>()
            .owns::<PartialObjectMeta<Service>>()
            .stop_within(Duration::ZERO)
    }

    fn start(
        &self,
    ) -> (
        CancellationToken,
        JoinHandle<Result<Stopped, ControllerError>>,
    ) {
        let controller = self.controller().state(Arc::clone(&self.results));
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        (
            stop,
            tokio::spawn(async move { controller.run(reconcile, &shutdown).await }),
        )
    }

    /// Requests children by name.
    async fn ask(&self, maps: &[&str], secrets: &[&str]) {
        let annotations = json!({"maps": maps.join(","), "secrets": secrets.join(",")});
        let metadata = json!({"metadata": {"annotations": annotations}});
        patch(&self.world.accounts(), "a", metadata).await;
        sleep(Duration::from_millis(50)).await;
    }

    fn take(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.results.lock().unwrap())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.server.client(), "default")
    }

    /// Returns the names of all `ConfigMap`s and Secrets, including those that are not children.
    async fn existing(&self) -> Vec<String> {
        let maps = self
            .world
            .maps()
            .list(&ListParams::default())
            .await
            .unwrap();
        let secrets = self.secrets().list(&ListParams::default()).await.unwrap();
        let mut names: Vec<String> = maps.items.iter().map(ResourceExt::name_any).collect();
        names.extend(secrets.items.iter().map(ResourceExt::name_any));
        names.retain(|name| name != "kube-root-ca.crt");
        names
    }
}

fn names(account: &ServiceAccount, of: &str) -> Vec<String> {
    let names = account.annotations().get(of).map(String::as_str);
    let names = names.unwrap_or_default().split(',');
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

async fn reconcile(
    account: Arc<ServiceAccount>,
    cx: Context<Results>,
) -> Result<Action, ApplySetError> {
    let maps = names(&account, "maps");
    let secrets = names(&account, "secrets");
    let applied = cx
        .apply_set()
        .children(maps.iter().map(|name| config_map(name, "1")))
        .children(secrets.iter().map(|name| Secret {
            metadata: named(name),
            ..Secret::default()
        }))
        .await;
    let summary = applied.map(|set| {
        let changed = set.members().iter().filter(|member| member.is_changed());
        let pruned = set.pruned().iter();
        (
            changed
                .map(|member| member.key().name().to_owned())
                .collect(),
            pruned
                .map(|object| format!("{} {}", object.kind, object.key))
                .collect(),
        )
    });
    let failed = summary.is_err();
    cx.lock().unwrap().push(summary);
    Ok(if failed {
        Action::requeue_after(Duration::from_secs(60))
    } else {
        Action::await_change()
    })
}

/// Proves controller/apply-set.
#[tokio::test(start_paused = true)]
async fn set_is_created_updated_and_pruned() {
    let fixture = Fixture::new().await;
    let account = fixture.world.accounts().get("a").await.unwrap();
    // `other` is controlled by the account but not part of the set; `stranger` is part of another
    // owner's set.
    let other = fixture
        .world
        .map("other", [controlled_by("v1", &account)])
        .await;
    let mut stranger = config_map("stranger", "1");
    stranger
        .labels_mut()
        .insert(APPLY_SET_LABEL.into(), "accounts".into());
    create(&fixture.world.maps(), &stranger).await;
    let (_stop, _task) = fixture.start();
    sleep(Duration::from_millis(50)).await;
    fixture.take();
    fixture.faults.take_writes();

    fixture.ask(&["m2", "m1"], &["s1"]).await;
    let results = fixture.take();
    let first = results[0].as_ref().unwrap();
    assert_eq!(
        first.0,
        ["m2", "m1", "s1"],
        "in the order in which they were added"
    );
    assert!(first.1.is_empty());
    let last = results.last().unwrap().as_ref().unwrap();
    assert!(last.0.is_empty() && last.1.is_empty(), "nothing left to do");
    assert_eq!(
        fixture.faults.take_writes(),
        ["PATCH m2", "PATCH m1", "PATCH s1"]
    );
    let map = fixture.world.maps().get("m1").await.unwrap();
    assert_eq!(map.labels()[APPLY_SET_LABEL], "accounts");
    assert_eq!(map.owner_references()[0].uid, account.uid().unwrap());

    // Changed by another writer, and reverted.
    patch(&fixture.world.maps(), "m1", json!({"data": {"value": "2"}})).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(fixture.faults.take_writes(), ["PATCH m1"]);
    fixture.take();

    // The only Secret is removed, so the set no longer has that kind.
    fixture.ask(&["m1", "m3"], &[]).await;
    let results = fixture.take();
    let first = results[0].as_ref().unwrap();
    assert_eq!(first.0, ["m3"]);
    assert_eq!(first.1, ["ConfigMap default/m2", "Secret default/s1"]);
    assert_eq!(
        fixture.faults.take_writes(),
        ["PATCH m3", "DELETE m2", "DELETE s1"]
    );
    assert_eq!(fixture.existing().await, ["m1", "m3", "other", "stranger"]);
    let kept = fixture.world.maps().get("other").await.unwrap();
    assert_eq!(kept.resource_version(), other.resource_version());

    // An orphaned member no longer belongs to the owner, so it is not deleted.
    let orphan = json!({"metadata": {"ownerReferences": null}});
    patch(&fixture.world.maps(), "m3", orphan).await;
    sleep(Duration::from_millis(50)).await;
    fixture.ask(&[], &[]).await;
    assert_eq!(fixture.existing().await, ["m3", "other", "stranger"]);
}

/// Proves controller/apply-set.
#[tokio::test(start_paused = true)]
async fn crash_between_apply_and_prune_converges() {
    let fixture = Fixture::new().await;
    let (stop, task) = fixture.start();
    fixture.ask(&["old", "kept"], &["gone"]).await;
    // The deletion never arrives, and the process dies waiting for it.
    fixture.faults.plan("DELETE old", None);
    fixture.ask(&["kept", "new"], &[]).await;
    assert_eq!(fixture.existing().await, ["kept", "new", "old", "gone"]);
    stop.cancel();
    task.await.unwrap().unwrap();
    fixture.faults.clear();
    let (_stop, _task) = fixture.start();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.existing().await, ["kept", "new"]);
}

/// Proves controller/apply-set.
#[tokio::test(start_paused = true)]
async fn changed_object_is_not_pruned_unseen() {
    let fixture = Fixture::new().await;
    let client =
        crate::support::slow_watches(&fixture.server, "configmaps", Duration::from_secs(5));
    let controller = Controller::<ServiceAccount>::new("accounts", &InformerFactory::new(client))
        .owns::<ConfigMap>()
        .owns::<Secret>()
        .state(Arc::clone(&fixture.results));
    let shutdown = CancellationToken::new();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    fixture.ask(&["m1"], &[]).await;
    sleep(Duration::from_secs(60)).await;
    fixture.take();
    // The object is orphaned, which the cache does not show yet.
    let orphan = json!({"metadata": {"ownerReferences": null}});
    patch(&fixture.world.maps(), "m1", orphan).await;
    fixture.ask(&[], &[]).await;
    let results = fixture.take();
    let error = results[0].as_ref().unwrap_err();
    let ObjectError::Delete(conflict) = &error.failed()[0].error else {
        panic!("{error}");
    };
    assert!(matches!(&**conflict, kube::Error::Api(status) if status.code == 409));
    sleep(Duration::from_secs(120)).await;
    assert_eq!(fixture.existing().await, ["m1"]);
}

/// Proves controller/apply-set.
#[tokio::test(start_paused = true)]
async fn named_sets_do_not_prune_each_other() {
    async fn reconcile(
        account: Arc<ServiceAccount>,
        cx: Context<Mutex<Vec<Status>>>,
    ) -> Result<Action, ApplySetError> {
        // The cache holds only metadata of Services, whose scope is known from its type.
        let services = ApiResource::erase::<Service>(&());
        let blue = names(&account, "blue").into_iter().map(|name| {
            let spec = json!({"spec": {"ports": [{"port": 80}]}});
            DynamicObject::new(&name, &services).data(spec)
        });
        let blue = blue.fold(cx.apply_set().named("blue"), |set, service| {
            set.child_of(service, &services)
        });
        let set = blue.await?;
        let now = cx.clock().now();
        let states = set.members().iter().map(|member| member.status(now).status);
        cx.lock().unwrap().extend(states);
        let green = names(&account, "green").into_iter();
        let green = green.map(|name| config_map(&name, "1"));
        cx.apply_set().named("green").children(green).await?;
        Ok(Action::await_change())
    }
    let fixture = Fixture::new().await;
    let services = Api::<Service>::namespaced(fixture.server.client(), "default");
    let ask = async |blue: &str, green: &str| {
        let annotations = json!({"metadata": {"annotations": {"blue": blue, "green": green}}});
        patch(&fixture.world.accounts(), "a", annotations).await;
        sleep(Duration::from_secs(1)).await;
        let found = services.list(&ListParams::default()).await.unwrap();
        let mut found: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        found.retain(|name| name != "kubernetes");
        found.extend(fixture.existing().await);
        found
    };
    let controller = fixture.controller().state(Mutex::default());
    let shutdown = CancellationToken::new();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    assert_eq!(ask("web,api", "m1").await, ["api", "web", "m1"]);
    assert_eq!(ask("web", "m1").await, ["web", "m1"]);
    let writes = fixture.faults.take_writes();
    assert_eq!(writes, ["PATCH web", "PATCH api", "PATCH m1", "DELETE api"]);
    assert_eq!(ask("", "m1,m2").await, ["m1", "m2"]);
}

/// Proves controller/apply-set.
#[tokio::test(start_paused = true)]
async fn status_of_children_is_known_or_unknown_but_never_wrong() {
    type Seen = Arc<Mutex<Vec<(Vec<Status>, Readiness)>>>;
    async fn reconcile(_: Arc<ServiceAccount>, cx: Context<Seen>) -> Result<Action, ApplySetError> {
        let claim = json!({
            "metadata": {"name": "claim"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        let set = cx
            .apply_set()
            .child(config_map("map", "1"))
            .child(claim)
            .await?;
        let now = cx.clock().now();
        let states = set.members().iter().map(|member| member.status(now).status);
        let seen = (states.collect(), set.readiness(now));
        cx.lock().unwrap().push(seen);
        Ok(Action::await_change())
    }
    let pending = || {
        Readiness::in_progress(
            "NotBound",
            "PersistentVolumeClaim claim: PVC is not Bound. phase: Pending",
        )
    };
    let unknown = "PersistentVolumeClaim claim: \
        only the metadata of PersistentVolumeClaim default/claim is watched";
    for (whole, later) in [
        (true, (Status::InProgress, pending())),
        (
            false,
            (
                Status::Unknown,
                Readiness::in_progress("MetadataOnly", unknown),
            ),
        ),
    ] {
        let fixture = Fixture::new().await;
        let informers = InformerFactory::new(fixture.server.client());
        let controller =
            Controller::<ServiceAccount>::new("accounts", &informers).owns::<ConfigMap>();
        let controller = if whole {
            controller.owns::<PersistentVolumeClaim>()
        } else {
            controller.owns::<PartialObjectMeta<PersistentVolumeClaim>>()
        };
        let seen = Seen::default();
        let controller = controller.state(Arc::clone(&seen));
        let shutdown = CancellationToken::new();
        tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
        sleep(Duration::from_secs(1)).await;
        fixture.world.relabel("a", 1).await;
        sleep(Duration::from_secs(1)).await;
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        // The status comes from the response to the apply.
        assert_eq!(
            seen[0],
            (vec![Status::Current, Status::InProgress], pending())
        );
        let last = seen.last().unwrap();
        assert_eq!(
            *last,
            (vec![Status::Current, later.0], later.1),
            "whole: {whole}"
        );
    }
}
