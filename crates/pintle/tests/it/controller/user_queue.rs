//! A queue passed to the controller remains under the control of the user.

use std::time::Duration;

use pintle::{
    cache::ObjectKey,
    controller::{Action, StopReason},
    queue::WorkQueue,
};
use tokio::time::{sleep, timeout};

use super::{World, done};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn run_returns_when_the_user_shuts_the_queue_down() {
    let world = World::new();
    world.account("a").await;
    let queue = WorkQueue::new("accounts");
    let running = world.run(world.controller().queue(queue.clone()), |_, _| async {
        sleep(Duration::from_secs(2)).await;
        Ok(Action::await_change())
    });
    world.settle().await;
    queue.add(key("b"));
    queue.shut_down();
    let stopped = timeout(Duration::from_secs(60), running).await;
    let stopped = stopped.expect("it returns").unwrap().unwrap();
    assert_eq!(world.seen.take(), ["a", "b"], "ready keys still ran");
    assert_eq!(stopped.reason, StopReason::QueueShutDown);
    assert!(stopped.unfinished.is_empty());
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn run_returns_immediately_if_the_queue_is_shut_down() {
    let world = World::new();
    let queue = WorkQueue::new("accounts");
    queue.shut_down();
    let running = world.run(world.controller().queue(queue), done);
    let stopped = timeout(Duration::from_secs(1), running).await;
    let stopped = stopped.expect("it returns").unwrap().unwrap();
    assert_eq!(stopped.reason, StopReason::QueueShutDown);
}

/// Proves controller/stop.
#[tokio::test(start_paused = true)]
async fn stopping_leaves_the_users_queue_open() {
    let world = World::new();
    world.account("a").await;
    let queue = WorkQueue::new("accounts");
    let running = world.run(world.controller().queue(queue.clone()), done);
    world.settle().await;
    world.shutdown.cancel();
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(stopped.reason, StopReason::Shutdown);
    assert_eq!(world.seen.take(), ["a"]);
    assert!(!queue.is_shut_down());

    // A key added between two runs waits for the second.
    queue.add(key("queued"));
    assert_eq!(queue.len(), 1);
    let again = World::on(world.client.clone());
    let _running = again.run(again.controller().queue(queue), done);
    again.settle().await;
    let mut seen = again.seen.take();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "queued"]);
}
