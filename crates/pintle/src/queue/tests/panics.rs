//! Other people's code at a bad moment: a key's `Clone` that panics, a waker that does, a waker or
//! a formatter that asks the queue something.

use std::{
    fmt::{self, Write},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};

use futures::FutureExt;
use tokio::time::{advance, sleep};

use super::{Item, WorkQueue, ends, ms, queue, take};

/// A key whose next clone panics once it is armed, and no other.
struct Touchy {
    id: u8,
    armed: Arc<AtomicBool>,
}

impl Touchy {
    fn new(id: u8) -> Self {
        let armed = Arc::new(AtomicBool::new(false));
        Self { id, armed }
    }

    fn armed(id: u8) -> Self {
        let key = Self::new(id);
        key.armed.store(true, SeqCst);
        key
    }
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        assert!(!self.armed.swap(false, SeqCst), "not now");
        let (id, armed) = (self.id, Arc::clone(&self.armed));
        Self { id, armed }
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Touchy {}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

fn ids(items: &[Item<Touchy>]) -> Vec<u8> {
    items.iter().map(|item| item.key().id).collect()
}

/// What two workers that wait get when `add` adds one key: how many panicked, and which keys came.
async fn two_wait(add: impl FnOnce(&WorkQueue<Touchy>)) -> (usize, Vec<u8>) {
    let queue = WorkQueue::<Touchy>::new("test");
    let workers = [(); 2].map(|()| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let item = queue.get().await?;
            let id = item.key().id;
            item.forget();
            queue.shut_down();
            Some(id)
        })
    });
    sleep(ms(1)).await;
    add(&queue);
    let (mut panicked, mut came) = (0, Vec::new());
    for worker in workers {
        match ends(worker).await {
            Ok(id) => came.extend(id),
            Err(_) => panicked += 1,
        }
    }
    (panicked, came)
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn when_a_key_cannot_be_cloned_for_the_one_who_was_woken_another_gets_it() {
    assert_eq!(
        two_wait(|queue| queue.add(Touchy::armed(7))).await,
        (1, vec![7])
    );
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn when_a_key_cannot_be_cloned_for_the_one_who_watches_the_clock_another_gets_it() {
    let later = |queue: &WorkQueue<Touchy>| queue.add_after(Touchy::armed(7), ms(10));
    assert_eq!(two_wait(later).await, (1, vec![7]));
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn a_batch_ends_before_a_key_that_cannot_be_cloned_and_loses_none() {
    let queue = WorkQueue::new("test");
    queue.add(Touchy::new(1));
    queue.add(Touchy::armed(2));
    queue.add(Touchy::new(3));
    let batch = ends(queue.get_batch(8)).await;
    assert_eq!(ids(&batch), [1]);
    let rest = ends(queue.get_batch(8)).await;
    assert_eq!(ids(&rest), [2, 3]);
    batch.into_iter().chain(rest).for_each(Item::forget);

    queue.add(Touchy::armed(4));
    let broken = AssertUnwindSafe(queue.get_batch(8)).catch_unwind().await;
    assert!(broken.is_err(), "the first key of all: nothing to give");
    assert_eq!(ids(&ends(queue.get_batch(8)).await), [4]);
}

/// Somebody whose executor fails to take him, and who counts how often it should have.
#[derive(Default)]
struct Unwakeable(AtomicUsize);

impl Wake for Unwakeable {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        panic!("no room in the executor");
    }
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_costs_no_key_and_nobody_elses_wake_up() {
    let queue = queue();
    let [first, second] = [(); 2].map(|()| Arc::new(Unwakeable::default()));
    let mut waiting = [pin!(queue.get()), pin!(queue.get())];
    for (get, waker) in waiting.iter_mut().zip([&first, &second]) {
        let waker = Waker::from(Arc::clone(waker));
        let mut cx = Context::from_waker(&waker);
        assert!(get.as_mut().poll(&mut cx).is_pending());
    }
    let woken = || first.0.load(SeqCst) + second.0.load(SeqCst);
    queue.add("a");
    assert_eq!(woken(), 1, "and `add` came back");
    let a = catch_unwind(AssertUnwindSafe(|| take(&queue)));
    let a = a.expect("nobody's panic reaches a worker").unwrap();
    a.forget();
    queue.shut_down();
    assert_eq!(
        (first.0.load(SeqCst), second.0.load(SeqCst)),
        (1, 1),
        "both"
    );
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn a_worker_keeps_its_key_when_the_one_it_wakes_cannot_be_woken() {
    let queue = queue();
    queue.add_after("a", ms(1));
    queue.add_after("b", ms(1));
    let mut other = pin!(queue.get());
    let waker = Waker::from(Arc::new(Unwakeable::default()));
    let waits = other.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waits.is_pending());
    // Time has passed, and the timer has not noticed yet.
    let _ = advance(ms(1)).now_or_never();
    let a = catch_unwind(AssertUnwindSafe(|| take(&queue)));
    let a = a.expect("nobody's panic reaches a worker").unwrap();
    assert_eq!(*a.key(), "a");
    a.forget();
    assert_eq!(take(&queue).map(|item| *item.key()), Some("b"));
}

/// A waker that asks the queue something when it is dropped, as the last share of a task does that
/// waits for the same queue.
struct Curious(WorkQueue<&'static str>, Arc<AtomicUsize>);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Curious {
    fn drop(&mut self) {
        self.1.fetch_add(1 + self.0.len(), SeqCst);
    }
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn a_waker_is_not_dropped_while_the_queue_is_locked() {
    let (queue, dropped) = (queue(), Arc::new(AtomicUsize::new(0)));
    let curious = || Waker::from(Arc::new(Curious(queue.clone(), Arc::clone(&dropped))));
    queue.add("held");
    let held = take(&queue).unwrap();
    {
        let mut watches = pin!(queue.get());
        let mut waits = pin!(queue.get());
        let mut drains = pin!(queue.drain(ms(1)));
        for _ in 0..2 {
            // Each time from another task.
            assert!(
                watches
                    .as_mut()
                    .poll(&mut Context::from_waker(&curious()))
                    .is_pending()
            );
            assert!(
                waits
                    .as_mut()
                    .poll(&mut Context::from_waker(&curious()))
                    .is_pending()
            );
        }
        queue.add("held");
        for _ in 0..2 {
            assert!(
                drains
                    .as_mut()
                    .poll(&mut Context::from_waker(&curious()))
                    .is_pending()
            );
        }
    }
    assert_eq!(dropped.load(SeqCst), 6);
    held.forget();
}

/// Writes into nowhere, and asks how long the queue is.
struct Asks<'a>(&'a WorkQueue<&'static str>);

impl Write for Asks<'_> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        assert_eq!(self.0.len(), 1);
        Ok(())
    }
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn a_queue_is_shown_without_being_locked() {
    let queue = queue();
    queue.add("a");
    write!(Asks(&queue), "{queue:?}").unwrap();
}
