//! User code inside the queue: a `Clone` or a waker that panics, a waker or a formatter that calls
//! back into the queue.

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

use super::{WorkQueue, ends, ms, queue, take};

/// A key whose next clone panics if it is armed.
struct PanicsOnClone {
    id: u8,
    armed: Arc<AtomicBool>,
}

impl PanicsOnClone {
    fn armed(id: u8) -> Self {
        let armed = Arc::new(AtomicBool::new(true));
        Self { id, armed }
    }
}

impl Clone for PanicsOnClone {
    fn clone(&self) -> Self {
        assert!(!self.armed.swap(false, SeqCst), "panic in a clone");
        let (id, armed) = (self.id, Arc::clone(&self.armed));
        Self { id, armed }
    }
}

impl PartialEq for PanicsOnClone {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for PanicsOnClone {}

impl Hash for PanicsOnClone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// Adds one key while two workers wait. Returns how many panicked, and the keys they got.
async fn two_wait(add: impl FnOnce(&WorkQueue<PanicsOnClone>)) -> (usize, Vec<u8>) {
    let queue = WorkQueue::<PanicsOnClone>::new("test");
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
    let (mut panicked, mut keys) = (0, Vec::new());
    for worker in workers {
        match ends(worker).await {
            Ok(id) => keys.extend(id),
            Err(_) => panicked += 1,
        }
    }
    (panicked, keys)
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn key_whose_clone_panics_goes_to_the_other_worker() {
    assert_eq!(
        two_wait(|queue| queue.add(PanicsOnClone::armed(7))).await,
        (1, vec![7])
    );
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn due_key_whose_clone_panics_goes_to_the_other_worker() {
    let later = |queue: &WorkQueue<PanicsOnClone>| queue.add_after(PanicsOnClone::armed(7), ms(10));
    assert_eq!(two_wait(later).await, (1, vec![7]));
}

/// A waker that panics, and counts its calls.
#[derive(Default)]
struct PanickingWaker(AtomicUsize);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        panic!("panic in a waker");
    }
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn panicking_waker_loses_no_key_and_no_other_wake_up() {
    let queue = queue();
    let [first, second] = [(); 2].map(|()| Arc::new(PanickingWaker::default()));
    let mut waiting = [pin!(queue.get()), pin!(queue.get())];
    for (get, waker) in waiting.iter_mut().zip([&first, &second]) {
        let waker = Waker::from(Arc::clone(waker));
        let mut cx = Context::from_waker(&waker);
        assert!(get.as_mut().poll(&mut cx).is_pending());
    }
    let woken = || first.0.load(SeqCst) + second.0.load(SeqCst);
    queue.add("a");
    assert_eq!(woken(), 1, "and `add` returned");
    let a = catch_unwind(AssertUnwindSafe(|| take(&queue)));
    let a = a.expect("the panic does not reach the worker").unwrap();
    a.forget();
    queue.shut_down();
    assert_eq!(
        (first.0.load(SeqCst), second.0.load(SeqCst)),
        (1, 1),
        "the shutdown wakes both workers"
    );
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn worker_keeps_its_key_when_the_waker_it_calls_panics() {
    let queue = queue();
    queue.add_after("a", ms(1));
    queue.add_after("b", ms(1));
    let mut other = pin!(queue.get());
    let waker = Waker::from(Arc::new(PanickingWaker::default()));
    let waits = other.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waits.is_pending());
    // Time has passed, but the timer has not fired yet.
    let _ = advance(ms(1)).now_or_never();
    let a = catch_unwind(AssertUnwindSafe(|| take(&queue)));
    let a = a.expect("the panic does not reach the worker").unwrap();
    assert_eq!(*a.key(), "a");
    a.forget();
    assert_eq!(take(&queue).map(|item| *item.key()), Some("b"));
}

/// A waker that calls the queue when it is dropped, as dropping the last reference to a task that
/// uses the queue may do.
struct CallsOnDrop(WorkQueue<&'static str>, Arc<AtomicUsize>);

impl Wake for CallsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for CallsOnDrop {
    fn drop(&mut self) {
        self.1.fetch_add(1 + self.0.len(), SeqCst);
    }
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn waker_is_never_dropped_under_the_lock() {
    let (queue, dropped) = (queue(), Arc::new(AtomicUsize::new(0)));
    let waker = || Waker::from(Arc::new(CallsOnDrop(queue.clone(), Arc::clone(&dropped))));
    queue.add("held");
    let held = take(&queue).unwrap();
    {
        let mut watches = pin!(queue.get());
        let mut waits = pin!(queue.get());
        let mut drains = pin!(queue.drain(ms(1)));
        for _ in 0..2 {
            // Each time with another waker.
            assert!(
                watches
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker()))
                    .is_pending()
            );
            assert!(
                waits
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker()))
                    .is_pending()
            );
        }
        queue.add("held");
        for _ in 0..2 {
            assert!(
                drains
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker()))
                    .is_pending()
            );
        }
    }
    assert_eq!(dropped.load(SeqCst), 6);
    held.forget();
}

/// A writer that calls the queue.
struct CallsOnWrite<'a>(&'a WorkQueue<&'static str>);

impl Write for CallsOnWrite<'_> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        assert_eq!(self.0.len(), 1);
        Ok(())
    }
}

/// Proves queue/panicking-user-code.
#[tokio::test(start_paused = true)]
async fn debug_output_is_written_outside_the_lock() {
    let queue = queue();
    queue.add("a");
    write!(CallsOnWrite(&queue), "{queue:?}").unwrap();
}
