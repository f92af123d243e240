//! Reconciling objects: which objects are passed, with which state, and how errors are handled.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::ResourceExt;
use pintle::{
    cache::{BoxError, ObjectKey},
    controller::{Action, Context, ControllerError, ErrorAction, Predicate, ReconcileError},
    queue::WorkQueue,
};
use serde_json::json;
use tokio::time::sleep;

use super::{World, delete, patch};

/// The state of a controller: a log of what its reconciles saw.
#[derive(Clone, Default)]
struct State {
    lines: Arc<Mutex<Vec<String>>>,
}

impl State {
    fn log(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

async fn note(account: Arc<ServiceAccount>, cx: Context<State>) -> Result<Action, kube::Error> {
    let deleting = account.metadata.deletion_timestamp.is_some();
    cx.log(format!(
        "{}{}",
        account.name_any(),
        if deleting { " deleting" } else { "" }
    ));
    Ok(Action::await_change())
}

/// Proves controller/by-object.
#[tokio::test(start_paused = true)]
async fn live_objects_are_reconciled_with_the_state() {
    let world = World::new();
    let state = State::default();
    world.account("a").await;
    let controller = world.controller().state(state.clone());
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(note, &shutdown).await });
    world.settle().await;
    assert_eq!(state.take(), ["a"]);

    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    patch(&world.accounts(), "a", held).await;
    world.settle().await;
    assert_eq!(state.take(), ["a"]);
    delete(&world.accounts(), "a").await;
    world.settle().await;
    assert!(state.take().is_empty(), "it is being deleted");
    let released = json!({"metadata": {"finalizers": null}});
    patch(&world.accounts(), "a", released).await;
    world.settle().await;
    assert!(state.take().is_empty(), "it is gone");
}

/// Proves controller/by-object.
#[tokio::test(start_paused = true)]
async fn deleting_objects_are_reconciled_on_request() {
    let world = World::new();
    let state = State::default();
    world.account("a").await;
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    patch(&world.accounts(), "a", held).await;
    let controller = world.controller().reconcile_deleting().state(state.clone());
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(note, &shutdown).await });
    world.settle().await;
    delete(&world.accounts(), "a").await;
    world.settle().await;
    assert_eq!(state.take(), ["a", "a deleting"]);
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("busy")]
    Busy,
    #[error("invalid")]
    Invalid,
    #[error("broken")]
    Broken,
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of a policy")]
fn error_policy(account: Arc<ServiceAccount>, error: &Error, cx: Context<State>) -> ErrorAction {
    cx.log(format!(
        "{}: {error}, try {}",
        account.name_any(),
        cx.attempt()
    ));
    match error {
        Error::Busy => ErrorAction::RetryAfter(Duration::from_secs(7)),
        Error::Invalid => ErrorAction::Terminal,
        Error::Broken => ErrorAction::Retry,
    }
}

/// Proves controller/outcomes, controller/span.
#[tokio::test(start_paused = true)]
async fn error_policy_decides_about_retries() {
    type Case = (fn() -> Error, &'static [&'static str]);
    let cases: [Case; 2] = [
        (|| Error::Busy, &["a: busy, try 1", "a: busy, try 2"]),
        (|| Error::Invalid, &["a: invalid, try 1"]),
    ];
    for (error, lines) in cases {
        let world = World::new();
        let state = State::default();
        world.account("a").await;
        let controller = world
            .controller()
            .state(state.clone())
            .error_policy(error_policy);
        let shutdown = world.shutdown.clone();
        let reconcile = move |_, _| async move { Err(error()) };
        tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
        sleep(Duration::from_secs(10)).await;
        assert_eq!(state.take(), lines);
    }
    let world = World::new();
    let state = State::default();
    world.account("a").await;
    let controller = world.controller().state(state.clone());
    let controller = controller.error_policy(error_policy);
    let shutdown = world.shutdown.clone();
    let reconcile = |_, _| async { Err(Error::Broken) };
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(state.take().len(), 5, "after 0, 5, 15, 35 and 75 ms");
}

/// Proves controller/outcomes.
#[tokio::test(start_paused = true)]
async fn kube_runtime_policy_may_return_an_action() {
    let world = World::new();
    let state = State::default();
    world.account("a").await;
    let policy = |_: Arc<ServiceAccount>, _: &Error, cx: Context<State>| {
        cx.log("failed");
        Action::requeue(Duration::from_secs(5))
    };
    let controller = world.controller().state(state.clone()).error_policy(policy);
    let shutdown = world.shutdown.clone();
    let reconcile = |_, _| async { Err(Error::Busy) };
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_secs(12)).await;
    assert_eq!(state.take().len(), 3, "after 0, 5 and 10 s");
}

/// Proves controller/outcomes.
#[tokio::test(start_paused = true)]
async fn reconcile_error_overrides_the_default_retry() {
    async fn boxed(_: Arc<ServiceAccount>, cx: Context<State>) -> Result<Action, BoxError> {
        cx.log("boxed");
        Err("no reason".into())
    }
    async fn text(_: Arc<ServiceAccount>, cx: Context<State>) -> Result<Action, String> {
        cx.log("text");
        Err("no reason".to_owned())
    }
    async fn later(_: Arc<ServiceAccount>, cx: Context<State>) -> Result<Action, ReconcileError> {
        cx.log("later");
        let delay = Duration::from_millis(60);
        Err(ReconcileError::retry_after("no reason", delay))
    }
    async fn terminal(
        _: Arc<ServiceAccount>,
        cx: Context<State>,
    ) -> Result<Action, ReconcileError> {
        cx.log("terminal");
        Err(ReconcileError::terminal("no reason"))
    }
    macro_rules! runs {
        ($reconcile:expr) => {{
            let world = World::new();
            let state = State::default();
            world.account("a").await;
            let controller = world.controller().state(state.clone());
            let shutdown = world.shutdown.clone();
            tokio::spawn(async move { controller.run($reconcile, &shutdown).await });
            sleep(Duration::from_millis(100)).await;
            state.take().len()
        }};
    }
    assert_eq!(runs!(boxed), 5);
    assert_eq!(runs!(text), 5);
    assert_eq!(runs!(later), 2);
    assert_eq!(runs!(terminal), 1);
}

/// Proves controller/cleanup.
#[tokio::test(start_paused = true)]
async fn cleanup_runs_before_the_object_is_removed() {
    let world = World::new();
    let state = State::default();
    world.account("a").await;
    let queue = WorkQueue::new("accounts");
    let cleanup = |account: Arc<ServiceAccount>, cx: Context<State>| async move {
        cx.log(format!("cleaning up {}", account.name_any()));
        if cx.attempt() == 1 {
            return Err("the bucket is not empty");
        }
        Ok(())
    };
    let controller = world
        .controller()
        .queue(queue.clone())
        .state(state.clone())
        .finalizer("example.org/bucket", cleanup);
    let shutdown = world.shutdown.clone();
    let reconcile = |account: Arc<ServiceAccount>, cx: Context<State>| async move {
        cx.log(format!("{:?}", account.finalizers()));
        Ok::<_, Error>(Action::await_change())
    };
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    world.settle().await;
    let mut runs = state.take();
    runs.dedup();
    assert_eq!(
        runs,
        [r#"["example.org/bucket"]"#],
        "stored before the first run"
    );

    delete(&world.accounts(), "a").await;
    world.settle().await;
    assert_eq!(state.take(), ["cleaning up a"; 2], "tried again");
    assert!(world.accounts().get_opt("a").await.unwrap().is_none());
    assert_eq!(queue.retries(&ObjectKey::namespaced("default", "a")), 0);
}

/// Proves controller/cleanup.
#[tokio::test(start_paused = true)]
async fn predicate_does_not_hide_the_start_of_a_deletion() {
    let world = World::new();
    world.account("a").await;
    let controller = world
        .controller()
        .filter(Predicate::new(|old, _| old.is_none()))
        .finalizer("example.org/bucket", |_, _| async { Ok::<_, Error>(()) });
    let shutdown = world.shutdown.clone();
    let reconcile = |_, _: Context| async { Ok::<_, Error>(Action::await_change()) };
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    world.settle().await;
    delete(&world.accounts(), "a").await;
    world.settle().await;
    assert!(world.accounts().get_opt("a").await.unwrap().is_none());
}

/// Proves controller/cleanup.
#[tokio::test(start_paused = true)]
async fn invalid_finalizer_name_is_reported_at_start() {
    let world = World::new();
    let cleanup = |_, _| async { Ok::<_, Error>(()) };
    let controller = world.controller().finalizer("bucket", cleanup);
    let reconcile = |_, _: Context| async { Ok::<_, Error>(Action::await_change()) };
    let error = controller
        .run(reconcile, &world.shutdown)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ControllerError::Finalizer { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("invalid finalizer name"));
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn mapping_function_reads_the_caches() {
    let world = World::new();
    let state = State::default();
    for name in ["a", "b"] {
        world.account(name).await;
    }
    world.relabel("b", 7).await;
    let controller = world
        .controller()
        .watches::<ConfigMap>(|_, listers| {
            assert!(listers.get::<ConfigMap>().is_ok());
            let mut accounts = listers.get::<ServiceAccount>().unwrap().list();
            accounts.retain(|account| account.labels().contains_key("round"));
            accounts
                .iter()
                .map(|account| account.key().clone())
                .collect()
        })
        .state(state.clone());
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(note, &shutdown).await });
    world.settle().await;
    state.take();
    world.map("any", None).await;
    world.settle().await;
    assert_eq!(state.take(), ["b"]);
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn predicate_of_an_owned_kind_filters_updates() {
    let world = World::new();
    let state = State::default();
    let account = world.account("a").await;
    let labels = Predicate::labels_changed();
    let controller = world
        .controller()
        .owns_if::<ConfigMap>(labels)
        .state(state.clone());
    let shutdown = world.shutdown.clone();
    tokio::spawn(async move { controller.run(note, &shutdown).await });
    world
        .map("ours", [super::controlled_by("v1", &account)])
        .await;
    world.settle().await;
    state.take();
    for (change, runs) in [
        (json!({"data": {"x": "y"}}), 0),
        (json!({"metadata": {"labels": {"x": "y"}}}), 1),
    ] {
        patch(&world.maps(), "ours", change).await;
        world.settle().await;
        assert_eq!(state.take().len(), runs);
    }
    delete(&world.maps(), "ours").await;
    world.settle().await;
    assert_eq!(state.take(), ["a"], "deletions are never filtered out");
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn reconcile_sees_the_shutdown() {
    let world = World::new();
    world.account("a").await;
    let controller = world.controller();
    let shutdown = world.shutdown.clone();
    let reconcile = |_, cx: Context| async move {
        cx.shutdown().cancelled().await;
        Ok::<_, Error>(Action::await_change())
    };
    let running = tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    world.settle().await;
    world.shutdown.cancel();
    let stopped = running.await.unwrap().unwrap();
    assert!(stopped.unfinished.is_empty());
}
