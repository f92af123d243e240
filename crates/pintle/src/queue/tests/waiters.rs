//! Who is woken for what, without anybody really waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};

use super::{ms, queue, take};
use crate::queue::line::{Line, Situation};

/// Somebody who counts how often he was woken.
#[derive(Default)]
struct Sleeper {
    woken: AtomicUsize,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, SeqCst);
    }
}

fn sleepers<const N: usize>() -> ([Arc<Sleeper>; N], [Waker; N]) {
    let sleepers = std::array::from_fn(|_| Arc::new(Sleeper::default()));
    let wakers = sleepers
        .each_ref()
        .map(|sleeper| Waker::from(Arc::clone(sleeper)));
    (sleepers, wakers)
}

fn woken<const N: usize>(sleepers: &[Arc<Sleeper>; N]) -> [usize; N] {
    sleepers
        .each_ref()
        .map(|sleeper| sleeper.woken.load(SeqCst))
}

const NOTHING: Situation = Situation {
    ready: 0,
    next_due: None,
    finished: false,
    idle: false,
};

/// Proves queue/cancelled-get.
#[test]
fn as_many_workers_are_woken_as_there_are_keys_and_the_keeper_last() {
    let mut line = Line::default();
    let (workers, wakers) = sleepers::<3>();
    let tickets = wakers.each_ref().map(|waker| line.join(waker, None).0);
    let ready = |ready| Situation { ready, ..NOTHING };
    line.settle(ready(1)).wake();
    assert_eq!(woken(&workers), [0, 1, 0]);
    line.settle(ready(1)).wake();
    assert_eq!(woken(&workers), [0, 1, 0], "somebody is on his way");
    line.settle(ready(3)).wake();
    assert_eq!(woken(&workers), [1, 1, 1]);
    for ticket in tickets {
        line.leave(ticket);
    }
    assert!(line.is_empty());
    line.join(&wakers[2], None);
    line.settle(ready(1)).wake();
    assert_eq!(
        woken(&workers),
        [1, 1, 2],
        "nobody else is on his way any more"
    );
}

/// Proves queue/delay, queue/cancelled-get.
#[test]
fn only_the_keeper_is_woken_for_a_due_time_and_only_for_an_earlier_one() {
    let mut line = Line::default();
    let (workers, wakers) = sleepers::<2>();
    let (first, until) = line.join(&wakers[0], Some(50));
    assert_eq!(until, Some(50));
    let (_, until) = line.join(&wakers[1], Some(50));
    assert_eq!(until, None, "one is enough");
    for (due, expected) in [(50, 0), (60, 0), (40, 1), (40, 1), (39, 2)] {
        line.settle(Situation {
            next_due: Some(due),
            ..NOTHING
        })
        .wake();
        assert_eq!(woken(&workers), [expected, 0], "due at {due}");
    }
    line.leave(first);
    line.settle(Situation {
        next_due: Some(39),
        ..NOTHING
    })
    .wake();
    assert_eq!(woken(&workers), [2, 1], "the next one takes over");
}

/// Proves queue/cancelled-get.
#[test]
fn a_worker_that_leaves_the_middle_of_the_line_is_not_woken() {
    let mut line = Line::default();
    let (workers, wakers) = sleepers::<4>();
    let tickets = wakers.each_ref().map(|waker| line.join(waker, None).0);
    line.leave(tickets[2]);
    let two = Situation {
        ready: 2,
        ..NOTHING
    };
    line.settle(two).wake();
    assert_eq!(woken(&workers), [0, 1, 0, 1]);
}

/// Proves queue/shutdown.
#[test]
fn the_end_wakes_everybody() {
    let mut line = Line::default();
    let (workers, wakers) = sleepers::<3>();
    for waker in &wakers {
        line.join(waker, None);
    }
    line.settle(Situation {
        finished: true,
        ..NOTHING
    })
    .wake();
    assert_eq!(woken(&workers), [1, 1, 1]);
}

/// Proves queue/drain.
#[test]
fn all_who_wait_for_the_end_are_woken_once_unless_they_left() {
    let mut line = Line::default();
    let (drains, wakers) = sleepers::<3>();
    let tickets = wakers.each_ref().map(|waker| line.join_drainers(waker));
    // Polled again: still one of them.
    assert!(line.leave_drainers(tickets[0]).is_some());
    line.join_drainers(&wakers[0]);
    assert!(line.leave_drainers(tickets[1]).is_some());
    line.settle(NOTHING).wake();
    assert_eq!(woken(&drains), [0, 0, 0]);
    line.settle(Situation {
        idle: true,
        ..NOTHING
    })
    .wake();
    assert_eq!(woken(&drains), [1, 0, 1]);
    assert!(line.is_empty());
}

/// Proves queue/drain.
#[tokio::test(start_paused = true)]
async fn a_drain_that_is_given_up_is_not_woken_at_the_end() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    let (drains, wakers) = sleepers::<2>();
    let [mut given_up, mut waits] = [(); 2].map(|()| Box::pin(queue.drain(ms(1000))));
    for (drain, waker) in [&mut given_up, &mut waits].into_iter().zip(&wakers) {
        assert!(
            drain
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_pending()
        );
    }
    drop(given_up);
    item.forget();
    assert_eq!(woken(&drains), [0, 1]);
    assert!(waits.await.is_drained());
}
