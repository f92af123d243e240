//! Handing a key back and taking the next under one lock.

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
async fn the_next_key_is_the_one_that_get_would_give() {
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
        // Nothing here asks the queue, which would make ready what is due.
        next = item.forget_and_next();
    }
    assert_eq!(ran, ["first", "b", "a", "due"]);
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn the_key_is_forgotten_also_when_there_is_no_next() {
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
async fn a_key_that_was_added_meanwhile_is_its_own_next() {
    let queue = queue();
    queue.add("a");
    let a = take(&queue).unwrap();
    queue.add_with_priority("a", Priority::new(3));
    let again = a.forget_and_next().unwrap();
    assert_eq!((*again.key(), again.priority()), ("a", Priority::new(3)));
    assert!(again.forget_and_next().is_none());
}

/// Proves queue/cancelled-get, queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn who_was_woken_for_a_key_that_another_took_waits_for_the_one_after() {
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
    assert!(b.forget_and_next().is_none(), "that one has the other");
}

/// A key that cannot be cloned for a while.
struct Fragile(Arc<AtomicBool>);

/// A key whose destructor panics once, when it is told to.
#[derive(Clone)]
struct Bitter(u8, Arc<AtomicBool>);

impl Drop for Bitter {
    fn drop(&mut self) {
        let due = self.0 == 0 && self.1.swap(false, Ordering::Relaxed);
        assert!(!due, "a destructor panics");
    }
}

impl PartialEq for Bitter {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Bitter {}

impl Hash for Bitter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn a_destructor_that_panics_does_not_take_the_next_key_along() {
    let queue = WorkQueue::new("test");
    let panics = Arc::new(AtomicBool::new(false));
    for key in [0, 1] {
        queue.add(Bitter(key, Arc::clone(&panics)));
    }
    let item = take(&queue).unwrap();
    panics.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| item.forget_and_next())).is_err());
    // It was in the hands of nobody who finished it: it is retried.
    let next = ends(queue.get()).await.unwrap();
    assert_eq!(next.key().0, 1);
    next.forget();
    queue.shut_down();
    assert!(ends(queue.get()).await.is_none());
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!self.0.load(Ordering::Relaxed), "not now");
        Self(Arc::clone(&self.0))
    }
}

impl PartialEq for Fragile {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Fragile {}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Proves queue/done-and-next.
#[tokio::test(start_paused = true)]
async fn a_key_whose_clone_panics_then_goes_to_whoever_waits() {
    let queue = WorkQueue::new("test");
    let broken = Arc::new(AtomicBool::new(false));
    queue.add(Fragile(Arc::clone(&broken)));
    let item = take(&queue).unwrap();
    queue.add(Fragile(Arc::clone(&broken)));
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
