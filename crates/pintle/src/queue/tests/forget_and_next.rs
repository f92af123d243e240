//! `forget_and_next`: finishing a key and dequeueing the next under one lock.

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::poll;
use tokio::time::sleep;

use super::{super::Priority, Item, WorkQueue, ends, ms, queue, run_all, take};

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn next_key_is_the_one_get_would_return() {
    let queue = queue();
    for key in ["a", "b"] {
        queue.add(key);
    }
    queue.add_after("due", ms(10));
    let a = take(&queue).unwrap();
    queue.add("a");
    sleep(ms(10)).await;
    queue.add_with_priority("first", Priority::new(1));
    let mut ran = Vec::new();
    let mut next = a.forget_and_next();
    while let Some(item) = next {
        ran.push(*item.key());
        // No other call is made, so this one has to promote the keys that are due.
        next = item.forget_and_next();
    }
    assert_eq!(ran, ["first", "b", "a", "due"]);
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn key_is_forgotten_even_without_a_next() {
    let queue = queue();
    queue.add("a");
    take(&queue).unwrap().retry();
    sleep(ms(5)).await;
    let again = take(&queue).unwrap();
    assert_eq!(again.retries(), 1);
    assert!(again.forget_and_next().is_none());
    assert_eq!(queue.retries(&"a"), 0);
    queue.add("a");
    assert_eq!(run_all(&queue), ["a"]);
    queue.shut_down();
    assert!(ends(queue.get()).await.is_none());
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn key_added_while_processing_is_dequeued_next() {
    let queue = queue();
    queue.add("a");
    let a = take(&queue).unwrap();
    queue.add_with_priority("a", Priority::new(3));
    let again = a.forget_and_next().unwrap();
    assert_eq!((*again.key(), again.priority()), ("a", Priority::new(3)));
    assert!(again.forget_and_next().is_none());
}

/// Proves queue/no-lost-wakeup, queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn spuriously_woken_worker_gets_the_next_key() {
    let queue = queue();
    queue.add("a");
    let a = take(&queue).unwrap();
    let mut waiting = pin!(queue.get());
    assert!(poll!(&mut waiting).is_pending());
    queue.add("b");
    let b = a.forget_and_next().unwrap();
    assert_eq!(*b.key(), "b");
    assert!(poll!(&mut waiting).is_pending());
    queue.add("c");
    let c = ends(waiting).await.unwrap();
    assert_eq!(*c.key(), "c");
    assert!(b.forget_and_next().is_none(), "the waiting worker has it");
}

/// A key whose clone panics while the flag is set.
struct PanicsOnClone(Arc<AtomicBool>);

/// A key. The destructor of key 0 panics once the flag is set, and clears the flag.
#[derive(Clone)]
struct PanicsOnDrop(u8, Arc<AtomicBool>);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        let due = self.0 == 0 && self.1.swap(false, Ordering::Relaxed);
        assert!(!due, "panic in a destructor");
    }
}

impl PartialEq for PanicsOnDrop {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for PanicsOnDrop {}

impl Hash for PanicsOnDrop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn panicking_destructor_does_not_lose_the_next_key() {
    let queue = WorkQueue::new("test");
    let panics = Arc::new(AtomicBool::new(false));
    for key in [0, 1] {
        queue.add(PanicsOnDrop(key, Arc::clone(&panics)));
    }
    let item = take(&queue).unwrap();
    panics.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| item.forget_and_next())).is_err());
    // The next key was dequeued and dropped with the unwind, so it is retried.
    let next = ends(queue.get()).await.unwrap();
    assert_eq!(next.key().0, 1);
    next.forget();
    queue.shut_down();
    assert!(ends(queue.get()).await.is_none());
}

impl Clone for PanicsOnClone {
    fn clone(&self) -> Self {
        assert!(!self.0.load(Ordering::Relaxed), "panic in a clone");
        Self(Arc::clone(&self.0))
    }
}

impl PartialEq for PanicsOnClone {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for PanicsOnClone {}

impl Hash for PanicsOnClone {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn key_whose_clone_panics_goes_to_a_waiting_worker() {
    let queue = WorkQueue::new("test");
    let broken = Arc::new(AtomicBool::new(false));
    queue.add(PanicsOnClone(Arc::clone(&broken)));
    let item = take(&queue).unwrap();
    queue.add(PanicsOnClone(Arc::clone(&broken)));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(Item::forget) }
    });
    sleep(ms(1)).await;
    broken.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| item.forget_and_next())).is_err());
    broken.store(false, Ordering::Relaxed);
    assert!(ends(waiting).await.unwrap().is_some());
}
