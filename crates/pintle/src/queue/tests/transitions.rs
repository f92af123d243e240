//! Every public transition against the model: a real queue under virtual time, with waiting workers
//! that are polled by hand.

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
use crate::queue::state::Tick;

const KEYS: u32 = 8;

/// How a worker finishes an item.
#[derive(Clone, Copy, Debug)]
enum End {
    Forget,
    ForgetAndNext,
    Retry,
    RequeueAfter(u64),
    PutBack,
    Drop,
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
    /// Another worker calls `get`.
    Wait,
    /// A waiting worker is polled, woken or not.
    Poll {
        which: usize,
    },
    /// A waiting worker is cancelled.
    Leave {
        which: usize,
    },
    Done {
        which: usize,
        end: End,
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
    let end = prop_oneof![
        2 => Just(End::Forget),
        6 => Just(End::ForgetAndNext),
        3 => Just(End::Retry),
        2 => delay.clone().prop_map(End::RequeueAfter),
        2 => Just(End::PutBack),
        2 => Just(End::Drop),
    ];
    let done = (
        any::<usize>(),
        end,
        proptest::option::weighted(0.2, priority.clone()),
    );
    prop_oneof![
        40 => (key.clone(), priority).prop_map(|(key, priority)| Op::Add { key, priority }),
        20 => (key.clone(), delay.clone()).prop_map(|(key, delay)| Op::AddAfter { key, delay }),
        10 => key.clone().prop_map(|key| Op::AddRateLimited { key }),
        6 => key.clone().prop_map(|key| Op::Cancel { key }),
        6 => key.prop_map(|key| Op::Forget { key }),
        20 => Just(Op::Get),
        20 => Just(Op::Wait),
        20 => any::<usize>().prop_map(|which| Op::Poll { which }),
        8 => any::<usize>().prop_map(|which| Op::Leave { which }),
        60 => done.prop_map(|(which, end, priority)| Op::Done { which, end, priority }),
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

/// The queue, the model, and the items and workers of the test.
struct World {
    queue: WorkQueue<u32>,
    model: Model,
    origin: Instant,
    failures: BTreeMap<u32, u32>,
    processing: Vec<Item<u32>>,
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
            processing: Vec::new(),
            waiters: Vec::new(),
        }
    }

    fn now(&self) -> Tick {
        ticks(self.origin.elapsed())
    }

    /// Models the rate limiter.
    fn fails(&mut self, key: u32) -> u64 {
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        (5 << (*failures - 1).min(8)).min(40)
    }

    fn request(&mut self, key: u32, priority: i32, delay: u64) {
        let now = self.now();
        if !self.model.closed {
            self.model
                .request(key, priority, now + ticks(ms(delay)), now);
        }
    }

    /// Returns the key that the next dequeue has to return.
    fn next(&mut self) -> Option<u32> {
        self.model.promote(self.now());
        self.model.take()
    }

    fn hold(&mut self, item: Option<Item<u32>>, expected: Option<u32>) {
        assert_eq!(item.as_ref().map(|item| *item.key()), expected);
        let Some(item) = item else { return };
        let key = *item.key();
        assert!(
            self.processing.iter().all(|other| *other.key() != key),
            "{key}"
        );
        assert_eq!(
            self.model.keys[&key].processing,
            Some(item.priority().get())
        );
        assert_eq!(
            item.retries(),
            self.failures.get(&key).copied().unwrap_or(0)
        );
        self.processing.push(item);
    }

    fn poll(&mut self, which: usize) {
        let expected = self.next();
        match self.waiters[which].poll() {
            Poll::Pending => {
                assert_eq!(expected, None);
                assert!(!self.is_finished(), "a worker waits for a finished queue");
            }
            Poll::Ready(item) => {
                drop(self.waiters.remove(which));
                assert!(item.is_some() || self.is_finished());
                self.hold(item, expected);
            }
        }
    }

    fn done(&mut self, which: usize, end: End, priority: Option<i32>) {
        let mut item = self.processing.swap_remove(which);
        let (key, now) = (*item.key(), self.now());
        if let Some(priority) = priority {
            item = item.with_priority(Priority::new(priority));
            self.model.keys.get_mut(&key).unwrap().processing = Some(priority);
        }
        match end {
            End::Forget | End::ForgetAndNext | End::RequeueAfter(_) => {
                self.failures.remove(&key);
            }
            End::Retry | End::PutBack | End::Drop => {}
        }
        match end {
            End::Forget => {
                item.forget();
                self.model.done(key, None, now);
            }
            End::ForgetAndNext => {
                let item = item.forget_and_next();
                self.model.done(key, None, now);
                let next = self.next();
                self.hold(item, next);
            }
            End::Retry => {
                let delay = self.fails(key);
                assert_eq!(item.retry(), ms(delay));
                self.model.done(key, Some(now + ticks(ms(delay))), now);
            }
            End::RequeueAfter(delay) => {
                item.requeue_after(ms(delay));
                self.model.done(key, Some(now + ticks(ms(delay))), now);
            }
            End::PutBack => {
                item.put_back();
                self.model.done(key, Some(now), now);
            }
            End::Drop => {
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
                self.request(key, priority, 0);
            }
            Op::AddAfter { key, delay } => {
                self.queue.add_after(key, ms(delay));
                self.request(key, 0, delay);
            }
            Op::AddRateLimited { key } => {
                self.queue.add_rate_limited(key);
                let delay = self.fails(key);
                self.request(key, 0, delay);
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
                end,
                priority,
            } if !self.processing.is_empty() => {
                self.done(which % self.processing.len(), end, priority);
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

    fn count(&mut self) {
        self.model.promote(self.now());
        let ready = self.model.ready().len();
        assert_eq!(self.queue.len(), ready);
        assert_eq!(self.queue.is_empty(), ready == 0);
        assert_eq!(self.queue.is_shut_down(), self.model.closed);
        let shown = format!("{:?}", self.queue);
        let (delayed, processing) = (self.model.delayed().len(), self.processing.len());
        assert!(
            shown.contains(&format!("delayed: {delayed}, processing: {processing}")),
            "{shown}"
        );
    }

    fn shut_down(&mut self) {
        self.model.promote(self.now());
        self.model.closed = true;
    }

    /// Drains with a deadline of zero: every key is left, in order.
    async fn drain(&mut self) {
        self.shut_down();
        let mut left = self.queue.drain(Duration::ZERO).await;
        left.processing.sort_unstable();
        let mut processing: Vec<_> = self.processing.iter().map(|item| *item.key()).collect();
        processing.sort_unstable();
        let keys = |found: Vec<(_, _, u32)>| found.into_iter().map(|(.., key)| key);
        assert_eq!(left.processing, processing);
        let ready = self.model.ready().into_iter().map(|(.., key)| key);
        assert_eq!(left.ready, ready.collect::<Vec<_>>());
        assert_eq!(left.delayed, keys(self.model.delayed()).collect::<Vec<_>>());
    }

    fn is_finished(&self) -> bool {
        let to_run = |pending| matches!(pending, Pending::Ready { .. });
        self.model.closed && !self.model.keys.values().any(|known| to_run(known.pending))
    }

    /// Checks the invariants after every transition: failure counts, and that enough workers are
    /// woken.
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
            "{woken} of {waiting} workers are woken for {ready} keys"
        );
        if self.is_finished() {
            assert_eq!(woken, waiting, "the queue is finished");
        }
        let due = self.model.delayed().first().map(|&(at, ..)| at);
        if !self.model.closed && due.is_some_and(|due| due <= self.now()) {
            assert!(woken > 0 || waiting == 0, "the timekeeper is not woken");
        }
    }

    /// Polls woken workers until none is left.
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
    // Without tokio's budget, which makes `get` yield.
    runtime.block_on(unconstrained(async {
        let mut world = World::new();
        for op in ops {
            world.step(op).await;
        }
        world.run_woken();
        world.count();
        for _ in 0..2 * KEYS {
            // Polls woken workers only: a key that becomes due has to wake one.
            world.step(Op::Pass { time: 5 }).await;
            world.run_woken();
        }
        world.drain().await;
        world.run_woken();
        while !world.processing.is_empty() {
            world
                .step(Op::Done {
                    which: 0,
                    end: End::ForgetAndNext,
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

    // Proves queue/get-blocks, queue/shutdown, queue/drain, queue/delay, queue/retries.
    // Proves queue/priority, queue/dropped-item-retries, queue/no-lost-wakeup.
    // Proves queue/done-and-next.
    #[test]
    fn any_sequence_of_calls_matches_the_model(
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        replay(ops);
    }
}
