//! Every public move against the model: the queue itself, under virtual time, with workers that wait
//! and are polled by hand.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    runtime,
    task::coop::unconstrained,
    time::{Instant, advance},
};

use super::{
    super::{Item, Priority, WorkQueue, rate_limit::ExponentialBackoff},
    model::{Model, Pending},
    ms, take,
};
use crate::queue::state::{Merge, Tick};

const KEYS: u32 = 8;

/// What a worker says about its key.
#[derive(Clone, Copy, Debug)]
enum Said {
    Forget,
    ForgetAndNext,
    Retry,
    RequeueAfter(u64),
    PutBack,
    /// Nothing: it is dropped.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add {
        key: u32,
        priority: i32,
    },
    AddAfter {
        key: u32,
        delay: u64,
    },
    Reschedule {
        key: u32,
        delay: u64,
    },
    AddRateLimited {
        key: u32,
    },
    Cancel {
        key: u32,
    },
    Forget {
        key: u32,
    },
    Get,
    GetBatch {
        limit: usize,
    },
    /// One more worker waits, if there is nothing for it.
    Wait,
    /// A worker that waits is polled, woken or not.
    Poll {
        which: usize,
    },
    /// A worker that waits goes away.
    Leave {
        which: usize,
    },
    Done {
        which: usize,
        said: Said,
        priority: Option<i32>,
    },
    Pass {
        time: u64,
    },
    Count,
    ShutDown,
    Drain,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let priority = prop_oneof![4 => Just(0), 3 => Just(-100), 2 => -2..4i32];
    let delay = prop_oneof![1 => Just(0u64), 9 => 1..40u64];
    let said = prop_oneof![
        2 => Just(Said::Forget),
        6 => Just(Said::ForgetAndNext),
        3 => Just(Said::Retry),
        2 => delay.clone().prop_map(Said::RequeueAfter),
        2 => Just(Said::PutBack),
        2 => Just(Said::Nothing),
    ];
    let done = (
        any::<usize>(),
        said,
        proptest::option::weighted(0.2, priority.clone()),
    );
    prop_oneof![
        40 => (key.clone(), priority).prop_map(|(key, priority)| Op::Add { key, priority }),
        20 => (key.clone(), delay.clone()).prop_map(|(key, delay)| Op::AddAfter { key, delay }),
        10 => (key.clone(), delay.clone()).prop_map(|(key, delay)| Op::Reschedule { key, delay }),
        10 => key.clone().prop_map(|key| Op::AddRateLimited { key }),
        6 => key.clone().prop_map(|key| Op::Cancel { key }),
        6 => key.prop_map(|key| Op::Forget { key }),
        20 => Just(Op::Get),
        6 => (0..4usize).prop_map(|limit| Op::GetBatch { limit }),
        20 => Just(Op::Wait),
        20 => any::<usize>().prop_map(|which| Op::Poll { which }),
        8 => any::<usize>().prop_map(|which| Op::Leave { which }),
        60 => done.prop_map(|(which, said, priority)| Op::Done { which, said, priority }),
        20 => delay.prop_map(|time| Op::Pass { time }),
        6 => Just(Op::Count),
        1 => Just(Op::ShutDown),
        1 => Just(Op::Drain),
    ]
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A worker in `get`.
struct Waiter {
    get: Pin<Box<dyn Future<Output = Option<Item<u32>>>>>,
    woken: Arc<Flag>,
}

impl Waiter {
    fn new(queue: &WorkQueue<u32>) -> Self {
        let queue = queue.clone();
        Self {
            get: Box::pin(async move { queue.get().await }),
            woken: Arc::default(),
        }
    }

    fn poll(&mut self) -> Poll<Option<Item<u32>>> {
        self.woken.0.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        self.get.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst)
    }
}

/// The queue, the model, and what a test holds of both.
struct World {
    queue: WorkQueue<u32>,
    model: Model,
    origin: Instant,
    failures: BTreeMap<u32, u32>,
    held: Vec<Item<u32>>,
    waiters: Vec<Waiter>,
}

impl World {
    fn new() -> Self {
        let limiter = ExponentialBackoff::new(ms(5), ms(40));
        Self {
            queue: WorkQueue::builder("test").rate_limiter(limiter).build(),
            model: Model::default(),
            origin: Instant::now(),
            failures: BTreeMap::new(),
            held: Vec::new(),
            waiters: Vec::new(),
        }
    }

    fn now(&self) -> Tick {
        ticks(self.origin.elapsed())
    }

    /// What the model knows of a rate limiter.
    fn fails(&mut self, key: u32) -> u64 {
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        (5 << (*failures - 1).min(8)).min(40)
    }

    fn ask(&mut self, key: u32, priority: i32, delay: u64, merge: Merge) {
        let now = self.now();
        if !self.model.closed {
            self.model
                .ask(key, priority, now + ticks(ms(delay)), merge, now);
        }
    }

    /// The key that whoever asks now must get.
    fn next(&mut self) -> Option<u32> {
        self.model.promote(self.now());
        self.model.take()
    }

    fn hold(&mut self, item: Option<Item<u32>>, expected: Option<u32>) {
        assert_eq!(item.as_ref().map(|item| *item.key()), expected);
        let Some(item) = item else { return };
        let key = *item.key();
        assert!(self.held.iter().all(|other| *other.key() != key), "{key}");
        assert_eq!(self.model.keys[&key].held, Some(item.priority().get()));
        assert_eq!(
            item.retries(),
            self.failures.get(&key).copied().unwrap_or(0)
        );
        self.held.push(item);
    }

    fn poll(&mut self, which: usize) {
        let expected = self.next();
        match self.waiters[which].poll() {
            Poll::Pending => {
                assert_eq!(expected, None);
                assert!(!self.is_finished(), "a worker waits for the end of time");
            }
            Poll::Ready(item) => {
                drop(self.waiters.remove(which));
                assert!(item.is_some() || self.is_finished());
                self.hold(item, expected);
            }
        }
    }

    fn done(&mut self, which: usize, said: Said, priority: Option<i32>) {
        let mut item = self.held.swap_remove(which);
        let (key, now) = (*item.key(), self.now());
        if let Some(priority) = priority {
            item = item.with_priority(Priority::new(priority));
            self.model.keys.get_mut(&key).unwrap().held = Some(priority);
        }
        match said {
            Said::Forget | Said::ForgetAndNext | Said::RequeueAfter(_) => {
                self.failures.remove(&key);
            }
            Said::Retry | Said::PutBack | Said::Nothing => {}
        }
        match said {
            Said::Forget => {
                item.forget();
                self.model.done(key, None, now);
            }
            Said::ForgetAndNext => {
                let item = item.forget_and_next();
                self.model.done(key, None, now);
                let next = self.next();
                self.hold(item, next);
            }
            Said::Retry => {
                let delay = self.fails(key);
                assert_eq!(item.retry(), ms(delay));
                self.model.done(key, Some(now + ticks(ms(delay))), now);
            }
            Said::RequeueAfter(delay) => {
                item.requeue_after(ms(delay));
                self.model.done(key, Some(now + ticks(ms(delay))), now);
            }
            Said::PutBack => {
                item.put_back();
                self.model.done(key, Some(now), now);
            }
            Said::Nothing => {
                drop(item);
                let delay = self.fails(key);
                self.model.done(key, Some(now + ticks(ms(delay))), now);
            }
        }
    }

    async fn step(&mut self, op: Op) {
        match op {
            Op::Add { key, priority } => {
                self.queue.add_with_priority(key, Priority::new(priority));
                self.ask(key, priority, 0, Merge::Earlier);
            }
            Op::AddAfter { key, delay } => {
                self.queue.add_after(key, ms(delay));
                self.ask(key, 0, delay, Merge::Earlier);
            }
            Op::Reschedule { key, delay } => {
                self.queue.reschedule(key, ms(delay));
                self.ask(key, 0, delay, Merge::Replace);
            }
            Op::AddRateLimited { key } => {
                self.queue.add_rate_limited(key);
                let delay = self.fails(key);
                self.ask(key, 0, delay, Merge::Earlier);
            }
            Op::Cancel { key } => assert_eq!(self.queue.cancel(&key), self.model.cancel(key)),
            Op::Forget { key } => {
                self.queue.forget(&key);
                self.failures.remove(&key);
            }
            Op::Get => {
                let expected = self.next();
                let item = take(&self.queue);
                self.hold(item, expected);
            }
            Op::GetBatch { limit } => self.batch(limit).await,
            Op::Wait => {
                self.waiters.push(Waiter::new(&self.queue));
                self.poll(self.waiters.len() - 1);
            }
            Op::Poll { which } if !self.waiters.is_empty() => self.poll(which % self.waiters.len()),
            Op::Leave { which } if !self.waiters.is_empty() => {
                drop(self.waiters.swap_remove(which % self.waiters.len()));
            }
            Op::Done {
                which,
                said,
                priority,
            } if !self.held.is_empty() => {
                self.done(which % self.held.len(), said, priority);
            }
            Op::Poll { .. } | Op::Leave { .. } | Op::Done { .. } => {}
            Op::Pass { time } => advance(ms(time)).await,
            Op::Count => self.count(),
            Op::ShutDown => {
                self.queue.shut_down();
                self.shut_down();
            }
            Op::Drain => self.drain().await,
        }
        self.check();
    }

    async fn batch(&mut self, limit: usize) {
        self.model.promote(self.now());
        if self.model.ready().is_empty() && !self.is_finished() {
            return; // It would wait.
        }
        let batch = self.queue.get_batch(limit).await;
        let mut expected = Vec::new();
        while expected.len() < limit.max(1) {
            let Some(key) = self.model.take() else { break };
            expected.push(key);
        }
        let keys: Vec<_> = batch.iter().map(|item| *item.key()).collect();
        assert_eq!(keys, expected);
        for (item, key) in batch.into_iter().zip(expected) {
            self.hold(Some(item), Some(key));
        }
    }

    fn count(&mut self) {
        self.model.promote(self.now());
        let ready = self.model.ready().len();
        assert_eq!(self.queue.len(), ready);
        assert_eq!(self.queue.is_empty(), ready == 0);
        assert_eq!(self.queue.is_shut_down(), self.model.closed);
        let shown = format!("{:?}", self.queue);
        let (delayed, held) = (self.model.waiting().len(), self.held.len());
        assert!(
            shown.contains(&format!("delayed: {delayed}, in_process: {held}")),
            "{shown}"
        );
    }

    fn shut_down(&mut self) {
        self.model.promote(self.now());
        self.model.closed = true;
    }

    /// Shuts down and leaves what there is at once: all of it, in order.
    async fn drain(&mut self) {
        self.shut_down();
        let mut left = self.queue.drain(Duration::ZERO).await;
        left.in_process.sort_unstable();
        let mut held: Vec<_> = self.held.iter().map(|item| *item.key()).collect();
        held.sort_unstable();
        let keys = |found: Vec<(_, _, u32)>| found.into_iter().map(|(.., key)| key);
        assert_eq!(left.in_process, held);
        let ready = self.model.ready().into_iter().map(|(.., key)| key);
        assert_eq!(left.ready, ready.collect::<Vec<_>>());
        assert_eq!(left.delayed, keys(self.model.waiting()).collect::<Vec<_>>());
    }

    fn is_finished(&self) -> bool {
        let to_run = |pending| matches!(pending, Pending::Ready { .. });
        self.model.closed && !self.model.keys.values().any(|known| to_run(known.pending))
    }

    /// What holds after every move: the failures, and that nobody sleeps whom something concerns.
    fn check(&self) {
        for key in 0..KEYS {
            let failures = self.failures.get(&key).copied().unwrap_or(0);
            assert_eq!(self.queue.retries(&key), failures, "failures of {key}");
        }
        let woken = self
            .waiters
            .iter()
            .filter(|waiter| waiter.is_woken())
            .count();
        let (ready, waiting) = (self.model.ready().len(), self.waiters.len());
        assert!(
            woken >= ready.min(waiting),
            "{woken} of {waiting} are awake for {ready} keys"
        );
        if self.is_finished() {
            assert_eq!(woken, waiting, "it is over");
        }
        let due = self.model.waiting().first().map(|&(at, ..)| at);
        if !self.model.closed && due.is_some_and(|due| due <= self.now()) {
            assert!(woken > 0 || waiting == 0, "nobody looked at the clock");
        }
    }

    /// Polls whoever is woken until nobody is.
    fn run_woken(&mut self) {
        while let Some(which) = self.waiters.iter().position(Waiter::is_woken) {
            self.poll(which);
            self.check();
        }
    }
}

fn ticks(time: Duration) -> Tick {
    Tick::try_from(time.as_nanos()).unwrap()
}

fn replay(ops: Vec<Op>) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    // Without tokio's budget, which would let a `get` wait for its own sake.
    runtime.block_on(unconstrained(async {
        let mut world = World::new();
        for op in ops {
            world.step(op).await;
        }
        world.run_woken();
        world.count();
        for _ in 0..2 * KEYS {
            // Only woken workers look: whatever becomes due finds one, or there is none.
            world.step(Op::Pass { time: 5 }).await;
            world.run_woken();
        }
        world.drain().await;
        world.run_woken();
        while !world.held.is_empty() {
            world
                .step(Op::Done {
                    which: 0,
                    said: Said::ForgetAndNext,
                    priority: None,
                })
                .await;
            world.run_woken();
        }
        assert!(world.queue.drain(Duration::ZERO).await.is_drained() || world.waiters.is_empty());
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // Proves queue/get-blocks, queue/shutdown, queue/drain, queue/add-replaces-delay.
    // Proves queue/rate-limited-add, queue/priority-merge, queue/reschedule.
    // Proves queue/requeue-after-is-success, queue/dropped-item-retries, queue/cancelled-get.
    // Proves queue/batch, queue/put-back, queue/done-and-next.
    #[test]
    fn any_sequence_of_public_moves_gives_what_the_model_says(
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        replay(ops);
    }
}
