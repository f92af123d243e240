//! Requeueing and retries after a reconcile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use pintle::{
    controller::{Action, ReconcileError},
    metrics::Metrics,
    queue::Priority,
};
use tokio::{sync::mpsc, time::sleep};

use super::World;

/// Proves controller/outcomes, controller/user-panics.
#[tokio::test(start_paused = true)]
async fn result_decides_when_the_key_runs_again() {
    // A result, and the milliseconds before each further run, up to three runs.
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
                    "error" => Err(ReconcileError::retry("unavailable")),
                    "terminal" => Err(ReconcileError::terminal("invalid")),
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

/// Proves queue/priority.
#[tokio::test(start_paused = true)]
async fn key_runs_again_at_the_requested_priority() {
    let world = World::new();
    world.account("0-urgent").await;
    for number in 10..40 {
        world.account(&format!("bulk-{number}")).await;
    }
    let first = AtomicBool::new(true);
    let _running = world.run(world.controller(), move |_, _| {
        let first = first.swap(false, Ordering::SeqCst);
        async move {
            sleep(Duration::from_secs(1)).await;
            if first {
                let again = Action::requeue_after(Duration::from_secs(5));
                return Ok(again.with_priority(Priority::new(10)));
            }
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(20)).await;
    let seen = world.seen.take();
    let runs: Vec<_> = (0..seen.len())
        .filter(|&at| seen[at] == "0-urgent")
        .collect();
    assert!(matches!(runs[..], [0, 5..=8]), "{seen:?}");
}

/// Proves controller/inputs.
#[tokio::test(start_paused = true)]
async fn lister_of_an_unwatched_kind_is_an_error() {
    let world = World::new();
    world.account("a").await;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let controller = world.controller().owns::<ConfigMap>();
    let _running = world.run(controller, move |_, cx| {
        let results = (
            cx.lister::<ServiceAccount>().is_ok(),
            cx.lister::<ConfigMap>().is_ok(),
            cx.lister::<Secret>().unwrap_err().to_string(),
        );
        sender.send(results).unwrap();
        async { Ok(Action::await_change()) }
    });
    let (primary, owned, error) = receiver.recv().await.unwrap();
    assert!(primary && owned);
    assert_eq!(
        error,
        "controller accounts has no cache of Secret: add .owns::<Secret>() or .watches::<Secret>(…)"
    );
}

/// Proves queue/dedup.
#[tokio::test(start_paused = true)]
async fn workers_bound_concurrent_reconciles() {
    let world = World::new();
    for number in 0..10 {
        world.account(&format!("a{number}")).await;
    }
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::clone(&most);
    let _running = world.run(world.controller().workers(3), move |_, _| {
        let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.seen.take().len(), 10);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

/// An error that panics when it is dropped.
#[derive(Debug, thiserror::Error)]
#[error("panics on drop")]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("oh no");
    }
}

/// Proves controller/user-panics.
#[tokio::test(start_paused = true)]
async fn panic_outside_a_reconcile_does_not_kill_its_worker() {
    let world = World::new();
    for name in ["bomb", "other"] {
        world.account(name).await;
    }
    let metrics = Metrics::new();
    let first = AtomicBool::new(true);
    let _running = world.run(world.controller().metrics(&metrics), move |key, _| {
        let throw = key.name() == "bomb" && first.swap(false, Ordering::SeqCst);
        async move {
            if throw {
                return Err(ReconcileError::retry(Bomb));
            }
            Ok(Action::await_change())
        }
    });
    world.settle().await;
    assert_eq!(world.seen.take(), ["bomb", "other", "bomb"]);
    let panics = r#"controller_runtime_reconcile_panics_total{controller="accounts"} 1"#;
    assert!(metrics.encode().contains(panics));
}
