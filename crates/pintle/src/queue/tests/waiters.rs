//! Which waiting task is woken for what.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};

use super::{ms, queue, take};
use crate::queue::waiters::{Snapshot, Waiters};

/// A task that counts its wake-ups.
#[derive(Default)]
struct Task {
    woken: AtomicUsize,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, SeqCst);
    }
}

fn tasks<const N: usize>() -> ([Arc<Task>; N], [Waker; N]) {
    let tasks = std::array::from_fn(|_| Arc::new(Task::default()));
    let wakers = tasks.each_ref().map(|task| Waker::from(Arc::clone(task)));
    (tasks, wakers)
}

fn woken<const N: usize>(tasks: &[Arc<Task>; N]) -> [usize; N] {
    tasks.each_ref().map(|task| task.woken.load(SeqCst))
}

const NOTHING: Snapshot = Snapshot {
    ready: 0,
    next_due: None,
    finished: false,
    idle: false,
};

/// Proves queue/no-lost-wakeup.
#[test]
fn one_worker_per_key_is_woken_and_the_timekeeper_last() {
    let mut waiters = Waiters::default();
    let (workers, wakers) = tasks::<3>();
    let tickets = wakers.each_ref().map(|waker| waiters.join(waker, None).0);
    let ready = |ready| Snapshot { ready, ..NOTHING };
    waiters.notify(ready(1)).wake();
    assert_eq!(woken(&workers), [0, 1, 0]);
    waiters.notify(ready(1)).wake();
    assert_eq!(woken(&workers), [0, 1, 0], "one was woken already");
    waiters.notify(ready(3)).wake();
    assert_eq!(woken(&workers), [1, 1, 1]);
    for ticket in tickets {
        waiters.leave(ticket);
    }
    assert!(waiters.is_empty());
    waiters.join(&wakers[2], None);
    waiters.notify(ready(1)).wake();
    assert_eq!(woken(&workers), [1, 1, 2], "all woken workers were polled");
}

/// Proves queue/delay, queue/no-lost-wakeup.
#[test]
fn only_the_timekeeper_is_woken_for_an_earlier_due_time() {
    let mut waiters = Waiters::default();
    let (workers, wakers) = tasks::<2>();
    let (first, until) = waiters.join(&wakers[0], Some(50));
    assert_eq!(until, Some(50));
    let (_, until) = waiters.join(&wakers[1], Some(50));
    assert_eq!(until, None, "one timekeeper is enough");
    for (due, expected) in [(50, 0), (60, 0), (40, 1), (40, 1), (39, 2)] {
        waiters
            .notify(Snapshot {
                next_due: Some(due),
                ..NOTHING
            })
            .wake();
        assert_eq!(woken(&workers), [expected, 0], "due at {due}");
    }
    waiters.leave(first);
    waiters
        .notify(Snapshot {
            next_due: Some(39),
            ..NOTHING
        })
        .wake();
    assert_eq!(woken(&workers), [2, 1], "the next worker takes over");
}

/// Proves queue/no-lost-wakeup.
#[test]
fn worker_that_left_is_not_woken() {
    let mut waiters = Waiters::default();
    let (workers, wakers) = tasks::<4>();
    let tickets = wakers.each_ref().map(|waker| waiters.join(waker, None).0);
    waiters.leave(tickets[2]);
    let two = Snapshot {
        ready: 2,
        ..NOTHING
    };
    waiters.notify(two).wake();
    assert_eq!(woken(&workers), [0, 1, 0, 1]);
}

/// Proves queue/shutdown.
#[test]
fn shutdown_wakes_all_workers() {
    let mut waiters = Waiters::default();
    let (workers, wakers) = tasks::<3>();
    for waker in &wakers {
        waiters.join(waker, None);
    }
    waiters
        .notify(Snapshot {
            finished: true,
            ..NOTHING
        })
        .wake();
    assert_eq!(woken(&workers), [1, 1, 1]);
}

/// Proves queue/drain.
#[test]
fn idle_queue_wakes_every_drain_once() {
    let mut waiters = Waiters::default();
    let (drains, wakers) = tasks::<3>();
    let tickets = wakers.each_ref().map(|waker| waiters.join_drainers(waker));
    // Polled again.
    assert!(waiters.leave_drainers(tickets[0]).is_some());
    waiters.join_drainers(&wakers[0]);
    assert!(waiters.leave_drainers(tickets[1]).is_some());
    waiters.notify(NOTHING).wake();
    assert_eq!(woken(&drains), [0, 0, 0]);
    waiters
        .notify(Snapshot {
            idle: true,
            ..NOTHING
        })
        .wake();
    assert_eq!(woken(&drains), [1, 0, 1]);
    assert!(waiters.is_empty());
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn cancelled_drain_is_not_woken() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    let (drains, wakers) = tasks::<2>();
    let [mut cancelled, mut waiting] = [(); 2].map(|()| Box::pin(queue.drain(ms(1000))));
    for (drain, waker) in [&mut cancelled, &mut waiting].into_iter().zip(&wakers) {
        assert!(
            drain
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_pending()
        );
    }
    drop(cancelled);
    item.forget();
    assert_eq!(woken(&drains), [0, 1]);
    assert!(waiting.await.is_drained());
}
