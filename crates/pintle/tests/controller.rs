//! What a user of the `Controller` builder relies on, on the embedded API server under virtual
//! time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, Secret, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pintle::{
    cache::ObjectKey,
    controller::{
        Action, Context, Controller, ControllerError, Predicate, ReconcileError, Stopped,
    },
    informer::InformerFactory,
    metrics::Metrics,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

type Accounts = Api<ServiceAccount>;
type Maps = Api<ConfigMap>;

/// One controller of ServiceAccounts under test, and the keys it reconciled.
struct World {
    client: Client,
    informers: InformerFactory,
    shutdown: CancellationToken,
    seen: Seen,
}

/// The keys in the order in which they were reconciled, and when.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, Duration)>>>);

impl Seen {
    fn push(&self, key: &ObjectKey, start: Instant) {
        self.0
            .lock()
            .unwrap()
            .push((key.name().to_owned(), start.elapsed()));
    }

    /// What was reconciled since the last time somebody asked.
    fn take(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap()
            .drain(..)
            .map(|(name, _)| name)
            .collect()
    }

    fn take_times(&self) -> Vec<u64> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        self.0
            .lock()
            .unwrap()
            .drain(..)
            .map(|(_, time)| millis(time))
            .collect()
    }
}

impl World {
    fn new() -> Self {
        Self::on(ApiServer::builder().build().client())
    }

    fn on(client: Client) -> Self {
        Self {
            informers: InformerFactory::new(client.clone()),
            client,
            shutdown: CancellationToken::new(),
            seen: Seen::default(),
        }
    }

    fn controller(&self) -> Controller<ServiceAccount> {
        Controller::new("accounts", &self.informers)
    }

    /// Runs `controller`, noting each key before `reconcile` gets it.
    fn run<R>(
        &self,
        controller: Controller<ServiceAccount>,
        reconcile: impl Fn(ObjectKey, Context) -> R + Send + Sync + 'static,
    ) -> JoinHandle<Result<Stopped, ControllerError>>
    where
        R: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let (seen, shutdown, start) = (self.seen.clone(), self.shutdown.clone(), Instant::now());
        tokio::spawn(async move {
            let note = move |key: ObjectKey, cx| {
                seen.push(&key, start);
                reconcile(key, cx)
            };
            controller.run(note, &shutdown).await
        })
    }

    fn accounts(&self) -> Accounts {
        Api::namespaced(self.client.clone(), "default")
    }

    fn maps(&self) -> Maps {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn account(&self, name: &str) -> ServiceAccount {
        let account = ServiceAccount {
            metadata: named(name),
            ..ServiceAccount::default()
        };
        self.accounts()
            .create(&PostParams::default(), &account)
            .await
            .unwrap()
    }

    async fn map(&self, name: &str, owner: Option<OwnerReference>) -> ConfigMap {
        let metadata = ObjectMeta {
            owner_references: owner.map(|owner| vec![owner]),
            ..named(name)
        };
        let map = ConfigMap {
            metadata,
            ..ConfigMap::default()
        };
        self.maps()
            .create(&PostParams::default(), &map)
            .await
            .unwrap()
    }

    async fn settle(&self) {
        sleep(Duration::from_secs(1)).await;
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn controlled_by(api_version: &str, account: &ServiceAccount) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: account.name_any(),
        uid: account.uid().unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

async fn done(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}

/// Proves X-2.
#[tokio::test(start_paused = true)]
async fn a_change_of_an_owned_object_wakes_its_owner_by_group_and_kind() {
    let world = World::new();
    let (a, b) = (world.account("a").await, world.account("b").await);
    let _running = world.run(world.controller().owns::<ConfigMap>(), done);
    world.settle().await;
    world.seen.take();

    world.map("ours", Some(controlled_by("v1", &a))).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);

    world
        .map(
            "of-another-group",
            Some(controlled_by("other.example/v1", &b)),
        )
        .await;
    world.map("of-nobody", None).await;
    world.settle().await;
    assert!(world.seen.take().is_empty());

    // It changes hands: whoever lost it hears of it too.
    let moved = json!({"metadata": {"ownerReferences": [controlled_by("v1", &b)]}});
    let patch = Patch::Merge(&moved);
    world
        .maps()
        .patch("ours", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.seen.take(), ["a", "b"]);

    world
        .maps()
        .delete("ours", &DeleteParams::default())
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.seen.take(), ["b"]);
}

/// Proves X-2, X-3.
#[tokio::test(start_paused = true)]
async fn a_mapping_is_asked_about_both_sides_and_wakes_each_key_once() {
    let world = World::new();
    for name in ["old", "new", "other"] {
        world.account(name).await;
    }
    let map = ConfigMap {
        metadata: named("pointer"),
        data: Some(BTreeMap::from([("to".to_owned(), "old".to_owned())])),
        ..ConfigMap::default()
    };
    world
        .maps()
        .create(&PostParams::default(), &map)
        .await
        .unwrap();
    let controller = world.controller().watches::<ConfigMap>(|map| {
        let data = map.get().unwrap().data.clone().unwrap_or_default();
        vec![ObjectKey::namespaced("default", &data["to"]); 2]
    });
    let _running = world.run(controller, done);
    world.settle().await;
    world.seen.take();

    let patch = Patch::Merge(json!({"data": {"to": "new"}}));
    world
        .maps()
        .patch("pointer", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world.settle().await;
    let mut woken = world.seen.take();
    woken.sort();
    assert_eq!(woken, ["new", "old"]);
}

/// Proves X-8.
#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_cache_and_handler_is_filled() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_reads(&server, "configmaps", Duration::from_secs(20)));
    world.account("a").await;
    for name in ["one", "two", "three"] {
        world.map(name, None).await;
    }
    let full = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&full);
    let controller = world.controller().watches::<ConfigMap>(|_| Vec::new());
    let _running = world.run(controller, move |_, cx| {
        count.store(cx.lister::<ConfigMap>().len(), Ordering::SeqCst);
        async { Ok(Action::await_change()) }
    });
    sleep(Duration::from_secs(120)).await;
    // Three of ours; whatever else the namespace holds comes on top.
    assert!(full.load(Ordering::SeqCst) >= 3);
    assert!(world.seen.take_times()[0] >= 20_000);
}

/// Proves X-10.
#[tokio::test(start_paused = true)]
async fn a_cache_that_never_fills_ends_the_wait_and_is_named() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_reads(
        &server,
        "configmaps",
        Duration::from_secs(100_000),
    ));
    world.account("a").await;
    let controller = world
        .controller()
        .owns::<ConfigMap>()
        .sync_timeout(Duration::from_secs(30));
    let error = world.run(controller, done).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("ConfigMap"), "{error}");
    assert!(world.seen.take().is_empty());
}

/// Proves X-11, X-12, X-13.
#[tokio::test(start_paused = true)]
async fn what_a_reconcile_returns_decides_when_its_key_runs_again() {
    // A result, and the waits in milliseconds before the runs that follow it (tried three times).
    let cases: [(&str, &[u64]); 6] = [
        ("done", &[]),
        ("later", &[10_000, 10_000]),
        ("error", &[5, 10]),
        ("terminal", &[]),
        ("panic", &[5, 10]),
        ("hang", &[2_005, 2_010]),
    ];
    for (case, waits) in cases {
        let world = World::new();
        world.account("a").await;
        let metrics = Metrics::new();
        let controller = world
            .controller()
            .timeout(Duration::from_secs(2))
            .metrics(&metrics);
        let runs = Arc::new(AtomicUsize::new(0));
        let _running = world.run(controller, move |key, _| {
            let done = key.name() != "a" || runs.fetch_add(1, Ordering::SeqCst) == 2;
            async move {
                match if done { "done" } else { case } {
                    "done" => Ok(Action::await_change()),
                    "later" => Ok(Action::requeue_after(Duration::from_secs(10))),
                    "error" => Err(ReconcileError::retry("no luck")),
                    "terminal" => Err(ReconcileError::terminal("never")),
                    "panic" => panic!("oh no"),
                    _ => std::future::pending().await,
                }
            }
        });
        sleep(Duration::from_secs(3600)).await;
        let seen = std::mem::take(&mut *world.seen.0.lock().unwrap());
        let times: Vec<_> = seen
            .iter()
            .filter(|(name, _)| name == "a")
            .map(|(_, at)| *at)
            .collect();
        let gaps: Vec<_> = times
            .windows(2)
            .map(|two| u64::try_from(two[1].abs_diff(two[0]).as_millis()).unwrap())
            .collect();
        assert_eq!(gaps, waits, "{case}");

        let text = metrics.encode();
        let counted = |line: &str| text.contains(line);
        match case {
            "terminal" => assert!(counted(
                r#"controller_runtime_terminal_reconcile_errors_total{controller="accounts"} 1"#
            )),
            "panic" => assert!(counted(
                r#"controller_runtime_reconcile_panics_total{controller="accounts"} 2"#
            )),
            "hang" => assert!(counted(
                r#"controller_runtime_reconcile_timeouts_total{controller="accounts"} 2"#
            )),
            _ => {}
        }
    }
}

/// Proves X-4, PX-1.
#[tokio::test(start_paused = true)]
async fn predicates_leave_out_updates_but_never_a_deletion() {
    let world = World::new();
    world.account("a").await;
    let nothing = Predicate::new(|_, _| false);
    let _running = world.run(world.controller().filter(nothing), done);
    world.settle().await;
    assert!(world.seen.take().is_empty());

    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    world
        .accounts()
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world.settle().await;
    assert!(world.seen.take().is_empty());

    world
        .accounts()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
}

/// Proves X-4.
#[tokio::test(start_paused = true)]
async fn a_label_predicate_admits_label_changes_only() {
    let world = World::new();
    world.account("a").await;
    let _running = world.run(world.controller().filter(Predicate::labels_changed()), done);
    world.settle().await;
    world.seen.take();
    for (patch, wakes) in [
        (json!({"metadata": {"annotations": {"x": "y"}}}), 0),
        (json!({"metadata": {"labels": {"x": "y"}}}), 1),
    ] {
        world
            .accounts()
            .patch("a", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        world.settle().await;
        assert_eq!(world.seen.take().len(), wakes);
    }
}

/// Proves X-4.
#[tokio::test(start_paused = true)]
async fn predicates_combine_and_select_by_label() {
    let world = World::new();
    for name in ["plain", "ours"] {
        world.account(name).await;
    }
    let ours = || Predicate::labels_match("team=ours".parse().unwrap());
    // Ours, or whatever changes an annotation; but nothing that is not new or really changed.
    let interesting = ours()
        .or((!ours()).and(Predicate::annotations_changed()))
        .and(Predicate::resource_version_changed());
    let _running = world.run(world.controller().filter(interesting), done);
    world.settle().await;
    world.seen.take();
    for (name, patch, wakes) in [
        ("plain", json!({"metadata": {"labels": {"x": "y"}}}), 0),
        ("plain", json!({"metadata": {"annotations": {"x": "y"}}}), 1),
        ("ours", json!({"metadata": {"labels": {"team": "ours"}}}), 1),
        ("ours", json!({"metadata": {"labels": {"x": "y"}}}), 1),
    ] {
        let patch = Patch::Merge(patch);
        let params = PatchParams::default();
        world.accounts().patch(name, &params, &patch).await.unwrap();
        world.settle().await;
        assert_eq!(world.seen.take().len(), wakes, "{name}");
    }
}

/// Proves Q-56.
#[tokio::test(start_paused = true)]
async fn a_real_change_overtakes_the_initial_list() {
    let world = World::new();
    for number in 0..50 {
        world.account(&format!("bulk-{number:02}")).await;
    }
    let _running = world.run(world.controller(), |_, _| async {
        sleep(Duration::from_secs(1)).await;
        Ok(Action::await_change())
    });
    sleep(Duration::from_millis(1500)).await;
    world.account("fresh").await;
    sleep(Duration::from_secs(5)).await;
    let seen = world.seen.take();
    let place = seen.iter().position(|name| name == "fresh");
    assert!(place.is_some_and(|place| place <= 3), "{seen:?}");
}

/// Proves X-15.
#[tokio::test(start_paused = true)]
async fn stopping_finishes_what_runs_and_takes_nothing_new() {
    let world = World::new();
    for name in ["a", "b"] {
        world.account(name).await;
    }
    let finished = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&finished);
    let running = world.run(world.controller(), move |_, _| {
        let count = Arc::clone(&count);
        async move {
            sleep(Duration::from_secs(10)).await;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(5)).await;
    world.shutdown.cancel();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(finished.load(Ordering::SeqCst), 1, "the one that ran");
    assert!(stopped.unfinished.is_empty());
    assert!(stopped.waiting >= 1, "{stopped:?}");
}

/// Proves PX-2.
#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_dropped_and_named() {
    let world = World::new();
    world.account("stuck").await;
    let controller = world.controller().stop_within(Duration::from_secs(3));
    let running = world.run(controller, |key, _| async move {
        if key.name() == "stuck" {
            std::future::pending::<()>().await;
        }
        Ok(Action::await_change())
    });
    sleep(Duration::from_secs(5)).await;
    world.shutdown.cancel();
    let start = Instant::now();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(
        stopped.unfinished,
        [ObjectKey::namespaced("default", "stuck")]
    );
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

/// A reconcile that makes a child unless the cache shows one: right only if the cache shows what
/// was made before.
async fn one_child_each(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    if cx.lister::<ServiceAccount>().get(&key).is_none() || key.name() != "parent" {
        return Ok(Action::await_change());
    }
    let children = cx.lister::<Secret>().list();
    if !children
        .iter()
        .any(|child| child.labels().get("parent") == Some(key.name()))
    {
        let labels = BTreeMap::from([("parent".to_owned(), key.name().to_owned())]);
        let metadata = ObjectMeta {
            generate_name: Some("child-".to_owned()),
            namespace: key.namespace().map(str::to_owned),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        cx.create(&Secret {
            metadata,
            ..Secret::default()
        })
        .await?;
    }
    Ok(Action::await_change())
}

/// Makes the parent change faster than the cache of its children follows; how many children come
/// of it?
async fn children_made(
    controller: impl FnOnce(Controller<ServiceAccount>) -> Controller<ServiceAccount>,
) -> usize {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(2)));
    let _running = world.run(
        controller(world.controller().watches::<Secret>(|_| Vec::new())),
        one_child_each,
    );
    sleep(Duration::from_secs(30)).await;
    world.account("parent").await;
    for round in 0..5 {
        sleep(Duration::from_millis(100)).await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"round": round.to_string()}}}));
        world
            .accounts()
            .patch("parent", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "default");
    let all = secrets.list(&ListParams::default()).await.unwrap();
    all.iter()
        .filter(|secret| secret.labels().contains_key("parent"))
        .count()
}

/// Proves N-3.
#[tokio::test(start_paused = true)]
async fn a_reconcile_sees_what_the_one_before_wrote() {
    let careless = children_made(Controller::without_reading_own_writes).await;
    assert!(
        careless > 1,
        "without it the classic bug shows: {careless} children"
    );
    assert_eq!(children_made(|controller| controller).await, 1);
}

/// Proves PX-3.
#[tokio::test(start_paused = true)]
async fn a_key_that_waits_too_long_for_its_own_writes_runs_anyway() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(40)));
    let metrics = Metrics::new();
    let controller = world
        .controller()
        .watches::<Secret>(|_| Vec::new())
        .metrics(&metrics)
        .read_own_writes_within(Duration::from_secs(7));
    let _running = world.run(controller, |key, cx| async move {
        if key.name() == "parent" {
            let metadata = ObjectMeta {
                generate_name: Some("child-".to_owned()),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            };
            cx.create(&Secret {
                metadata,
                ..Secret::default()
            })
            .await?;
        }
        Ok(Action::await_change())
    });
    sleep(Duration::from_secs(200)).await;
    world.account("parent").await;
    sleep(Duration::from_millis(100)).await;
    world.seen.take();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    world
        .accounts()
        .patch("parent", &PatchParams::default(), &patch)
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(world.seen.take().is_empty(), "parked");
    // Meanwhile the one worker is free for others.
    world.account("other").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.seen.take(), ["other"]);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.seen.take(), ["parent"]);
    let stale = r#"controller_runtime_reconcile_stale_total{controller="accounts"} 1"#;
    assert!(metrics.encode().contains(stale));
}

/// Proves X-2.
#[tokio::test(start_paused = true)]
async fn an_owner_without_namespace_is_found_from_inside_one() {
    let world = World::new();
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = Node {
        metadata: named("n1"),
        ..Node::default()
    };
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let (seen, start) = (world.seen.clone(), Instant::now());
    let (informers, shutdown) = (world.informers.clone(), world.shutdown.clone());
    let _running = tokio::spawn(async move {
        let note = move |key: ObjectKey, _| {
            assert_eq!(key.namespace(), None);
            seen.push(&key, start);
            async { Ok(Action::await_change()) }
        };
        Controller::<Node>::new("nodes", &informers)
            .owns::<ConfigMap>()
            .run(note, &shutdown)
            .await
    });
    world.settle().await;
    world.seen.take();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.uid().unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    world.map("of-the-node", Some(owner)).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["n1"]);
}

/// Proves PX-4.
#[tokio::test(start_paused = true)]
async fn a_controller_whose_informer_stops_ends_and_says_so() {
    let world = World::new();
    world.account("a").await;
    let informing = CancellationToken::new();
    let controller = world.controller();
    // Somebody else started the informers, and stops them.
    let _kept = world.informers.informer::<ServiceAccount>();
    world.informers.start(&informing);
    let running = world.run(controller, done);
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    informing.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("ServiceAccount"), "{error}");
}

/// Proves PX-4.
#[tokio::test(start_paused = true)]
async fn a_controller_that_stops_leaves_the_informers_to_those_who_started_them() {
    let world = World::new();
    let _kept = world.informers.informer::<ServiceAccount>();
    world.informers.start(&world.shutdown);
    let first = CancellationToken::new();
    let (informers, stop) = (world.informers.clone(), first.clone());
    let leaving = tokio::spawn(async move {
        Controller::<ServiceAccount>::new("first", &informers)
            .run(done, &stop)
            .await
    });
    let _staying = world.run(world.controller(), done);
    world.settle().await;
    first.cancel();
    leaving.await.unwrap().unwrap();
    world.account("late").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["late"]);
}

/// Proves PX-5.
#[tokio::test(start_paused = true)]
async fn a_panicking_predicate_or_mapping_loses_no_other_key() {
    let world = World::new();
    let account = world.account("a").await;
    let controller = world
        .controller()
        .filter(Predicate::new(|_, _| panic!("oh no")))
        .watches::<ConfigMap>(|_| panic!("oh no"))
        .owns::<ConfigMap>();
    let _running = world.run(controller, done);
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    world.map("ours", Some(controlled_by("v1", &account))).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
}

/// Proves N-4.
#[tokio::test(start_paused = true)]
async fn a_reconcile_does_not_see_what_the_one_before_deleted() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(2)));
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "default");
    let secret = Secret {
        metadata: named("child"),
        ..Secret::default()
    };
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let looks = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&looks);
    let controller = world.controller().watches::<Secret>(|_| Vec::new());
    let _running = world.run(controller, move |key, cx| {
        let seen = Arc::clone(&seen);
        async move {
            if key.name() == "parent" {
                let child = cx.lister::<Secret>().namespace("default").get("child");
                seen.lock().unwrap().push(child.is_some());
                if let Some(child) = child {
                    cx.delete(&child).await?;
                }
            }
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(60)).await;
    world.account("parent").await;
    for round in 0..3 {
        sleep(Duration::from_millis(100)).await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"round": round.to_string()}}}));
        let params = PatchParams::default();
        world
            .accounts()
            .patch("parent", &params, &patch)
            .await
            .unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*looks.lock().unwrap(), [true, false]);
}

/// A client that gets the answers about all of `resource` only after `delay`.
fn slow_reads(server: &ApiServer, resource: &'static str, delay: Duration) -> Client {
    let service = server.service();
    let slow = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_read = request.method() == http::Method::GET;
        let late = is_read && request.uri().path().ends_with(resource);
        let answer = service.clone().oneshot(request);
        async move {
            if late {
                sleep(delay).await;
            }
            answer.await
        }
    });
    Client::new(slow, "default")
}

/// A client whose watches of `resource` deliver every event `delay` late.
fn slow_watches(server: &ApiServer, resource: &'static str, delay: Duration) -> Client {
    let service = server.service();
    let slow = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let uri = request.uri();
        let late = uri.path().ends_with(resource)
            && uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
        let answer = service.clone().oneshot(request);
        async move {
            let answer = answer.await?;
            Ok::<_, tower::BoxError>(answer.map(|body| {
                let frames = BodyStream::new(body);
                if late {
                    let frames = frames.then(move |frame| async move {
                        sleep(delay).await;
                        frame
                    });
                    StreamBody::new(frames.boxed()).boxed_unsync()
                } else {
                    StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
                }
            }))
        }
    });
    Client::new(slow, "default")
}
