//! Keys from external sources: a channel, a timer, any stream.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::stream;
use pintle::{cache::ObjectKey, controller::StopReason, queue::WorkQueue};
use tokio::{sync::mpsc, time::sleep};

use super::{World, done};
use crate::support::{Log, SECOND};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// Proves controller/external-sources.
#[tokio::test(start_paused = true)]
async fn channel_wakes_keys_until_the_controller_stops() {
    let world = World::new();
    world.account("a").await;
    let (sender, mut receiver) = mpsc::channel(4);
    let keys = stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let running = world.run(world.controller().wakes(keys), done);
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    sender.send(key("a")).await.unwrap();
    sender.send(key("elsewhere")).await.unwrap();
    world.settle().await;
    assert_eq!(world.seen.take(), ["a", "elsewhere"]);
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
    assert!(
        sender.is_closed(),
        "the stream is dropped with the controller"
    );
}

/// Proves controller/external-sources.
#[tokio::test(start_paused = true)]
async fn timer_wakes_every_key_of_the_cache() {
    let world = World::new();
    for name in ["a", "b"] {
        world.account(name).await;
    }
    let _running = world.run(world.controller().wakes_every(SECOND * 60), done);
    world.settle().await;
    world.seen.take();
    sleep(SECOND * 55).await;
    assert_eq!(world.seen.take(), [""; 0]);
    world.account("c").await;
    sleep(SECOND * 10).await;
    let mut seen = world.seen.take();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b", "c", "c"]);
    sleep(SECOND * 600).await;
    assert_eq!(world.seen.take().len(), 30);
}

/// Proves controller/external-sources.
#[tokio::test(start_paused = true)]
async fn source_that_panics_or_ends_is_contained() {
    let (log, _logging) = Log::capture();
    let world = World::new();
    world.account("a").await;
    let mut polls = 0;
    let panics = stream::poll_fn(move |_| {
        polls += 1;
        assert!(polls < 2, "a broken source");
        std::task::Poll::Ready(Some(key("from-panicking")))
    });
    let ends = stream::iter([key("from-ending")]);
    let controller = world.controller().wakes(panics).wakes(ends);
    let running = world.run(controller, done);
    world.settle().await;
    let mut seen = world.seen.take();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "from-ending", "from-panicking"]);
    assert_eq!(
        log.lines("external source failed; continuing without it")
            .len(),
        1
    );
    world.relabel("a", 1).await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"], "the controller continues");
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/external-sources.
#[tokio::test(start_paused = true)]
async fn endless_source_pauses_while_the_queue_is_full() {
    let world = World::new();
    let queue = WorkQueue::new("accounts");
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = DropFlag(dropped.clone());
    let endless = stream::unfold((0_u64, guard), |(number, guard)| async move {
        Some((key(&format!("k-{number}")), (number + 1, guard)))
    });
    let controller = world.controller().queue(queue.clone()).wakes(endless);
    let running = world.run(controller, |_, _| std::future::pending());
    sleep(SECOND * 60).await;
    assert!((16_384..20_000).contains(&queue.len()), "{}", queue.len());
    queue.shut_down();
    world.shutdown.cancel();
    sleep(Duration::from_secs(60)).await;
    let stopped = running.await.unwrap().unwrap();
    assert_eq!(stopped.reason, StopReason::Shutdown);
    assert!(dropped.load(Ordering::SeqCst));
}

struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
