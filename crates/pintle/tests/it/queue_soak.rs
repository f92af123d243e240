//! No key is lost: many producers and workers, with failures, panics and cancellation, under
//! virtual time and replayed from a seed.
//!
//! `PINTLE_SOAK_OPS` sets the number of operations (a million for an overnight run),
//! `PINTLE_SOAK_SEED` the seed.

use std::{
    cell::RefCell, collections::BTreeMap, env, panic::AssertUnwindSafe, rc::Rc, time::Duration,
};

use futures::FutureExt;
use pintle::{
    clock::Rng,
    queue::{Item, Priority, WorkQueue, rate_limit::ExponentialBackoff},
};
use tokio::{
    task::{LocalSet, spawn_local},
    time::{sleep, timeout},
};

const PRODUCERS: u64 = 64;
const WORKERS: u64 = 16;
const KEYS: u64 = 300;

/// The history of one key.
#[derive(Default)]
struct Trace {
    added_at: u64,
    started_at: u64,
    succeeded: bool,
    processing: bool,
}

/// The histories of all keys, on one timeline of events.
#[derive(Default)]
struct Ledger {
    events: u64,
    keys: BTreeMap<u64, Trace>,
    runs: u64,
    /// A digest of the order of runs, to compare two runs of one seed.
    digest: u64,
    /// Whether every run succeeds from now on.
    calm: bool,
}

impl Ledger {
    fn next(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn added(&mut self, key: u64) {
        let at = self.next();
        self.keys.entry(key).or_default().added_at = at;
    }

    fn started(&mut self, key: u64) {
        let at = self.next();
        self.runs += 1;
        self.digest = self.digest.rotate_left(7) ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at;
        let trace = self.keys.entry(key).or_default();
        assert!(!trace.processing, "key {key} is being processed twice");
        trace.processing = true;
        trace.succeeded = false;
        trace.started_at = at;
    }

    fn ended(&mut self, key: u64, succeeded: bool) {
        let trace = self.keys.entry(key).or_default();
        trace.processing = false;
        trace.succeeded = succeeded;
    }

    fn unfinished(&self) -> Vec<u64> {
        let unfinished = |trace: &Trace| !trace.succeeded || trace.started_at < trace.added_at;
        self.keys
            .iter()
            .filter(|(_, trace)| unfinished(trace))
            .map(|(&key, _)| key)
            .collect()
    }
}

/// Records the end of a run, however it ends, just before the item is done.
struct Run {
    ledger: Rc<RefCell<Ledger>>,
    key: u64,
    succeeded: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.ledger.borrow_mut().ended(self.key, self.succeeded);
    }
}

fn below(rng: &Rng, limit: u64) -> u64 {
    rng.u64() % limit
}

fn millis(rng: &Rng, limit: u64) -> Duration {
    Duration::from_millis(below(rng, limit))
}

async fn produce(queue: WorkQueue<u64>, rng: Rng, ledger: Rc<RefCell<Ledger>>, ops: u64) {
    for _ in 0..ops {
        let key = below(&rng, KEYS);
        ledger.borrow_mut().added(key);
        match below(&rng, 10) {
            0 => queue.add_after(key, millis(&rng, 50)),
            1 => queue.add_rate_limited(key),
            2 => queue.add_with_priority(key, Priority::LOW),
            3 => queue.add_with_priority(key, Priority::new(7)),
            4 => {
                queue.cancel(&key);
                queue.add_after(key, millis(&rng, 20));
            }
            _ => queue.add(key),
        }
        match below(&rng, 4) {
            0 => tokio::task::yield_now().await,
            1 => sleep(millis(&rng, 30)).await,
            _ => {}
        }
    }
}

async fn work(queue: WorkQueue<u64>, rng: Rng, ledger: Rc<RefCell<Ledger>>) {
    let mut next = None;
    loop {
        let item = if let Some(item) = next.take() {
            item
        } else {
            // Some workers are cancelled while they wait.
            let got = timeout(Duration::from_millis(1 + below(&rng, 20)), queue.get()).await;
            let Ok(got) = got else { continue };
            let Some(item) = got else { return };
            item
        };
        let reconcile = AssertUnwindSafe(reconcile(item, &rng, &ledger)).catch_unwind();
        // Some reconciles are cancelled, some panic.
        let ended = timeout(Duration::from_millis(4), reconcile).await;
        next = ended.ok().and_then(Result::ok).flatten();
    }
}

/// Processes an item. Returns the next one if it was dequeued in the same step.
async fn reconcile(item: Item<u64>, rng: &Rng, ledger: &Rc<RefCell<Ledger>>) -> Option<Item<u64>> {
    let key = *item.key();
    ledger.borrow_mut().started(key);
    // Declared after the item, so dropped before it.
    let mut run = Run {
        ledger: Rc::clone(ledger),
        key,
        succeeded: false,
    };
    if ledger.borrow().calm {
        run.succeeded = true;
        drop(run);
        item.forget();
        return None;
    }
    sleep(millis(rng, 6)).await;
    match below(rng, 10) {
        0 => {
            drop(run);
            item.retry();
        }
        1 => {}
        // Without running the panic hook.
        2 => std::panic::resume_unwind(Box::new("a bug in the reconcile")),
        3 => {
            drop(run);
            item.requeue_after(millis(rng, 30));
        }
        4..7 => {
            run.succeeded = true;
            drop(run);
            return item.forget_and_next();
        }
        _ => {
            run.succeeded = true;
            drop(run);
            item.forget();
        }
    }
    None
}

fn soak(seed: u64, ops: u64) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("runtime");
    LocalSet::new().block_on(&runtime, async {
        let backoff = ExponentialBackoff::new(Duration::from_millis(1), Duration::from_millis(100));
        let queue = WorkQueue::builder("soak").rate_limiter(backoff).build();
        let rng = Rng::with_seed(seed);
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| spawn_local(work(queue.clone(), rng.clone(), Rc::clone(&ledger))))
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| {
                let share = ops.div_ceil(PRODUCERS);
                spawn_local(produce(
                    queue.clone(),
                    rng.clone(),
                    Rc::clone(&ledger),
                    share,
                ))
            })
            .collect();
        for producer in producers {
            producer.await.expect("producers do not fail");
        }
        ledger.borrow_mut().calm = true;
        // Longer than any delay.
        sleep(Duration::from_secs(10)).await;
        let left = queue.drain(Duration::from_secs(10)).await;
        assert!(
            left.is_drained() && left.delayed.is_empty(),
            "seed {seed}: left {left:?}"
        );
        for worker in workers {
            worker.await.expect("workers do not fail");
        }
        let ledger = ledger.borrow();
        assert_eq!(ledger.unfinished(), [] as [u64; 0], "seed {seed}");
        assert!(
            (0..KEYS).all(|key| queue.retries(&key) == 0),
            "seed {seed}: a back-off is left"
        );
        (ledger.runs, ledger.digest)
    })
}

fn from_env(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("number"))
}

/// Proves queue/dedup, queue/drain, queue/delay, queue/dropped-item-retries, queue/no-lost-wakeup.
/// Proves queue/no-lost-add.
#[test]
fn every_key_runs_after_its_last_add() {
    let ops = from_env("PINTLE_SOAK_OPS", 10_000);
    let seed = from_env("PINTLE_SOAK_SEED", 1);
    for seed in seed..seed + 3 {
        let (runs, _) = soak(seed, ops);
        println!("seed {seed}: {ops} operations, {runs} runs");
        assert!(runs > ops / 10);
    }
}

/// Proves queue/deterministic.
#[test]
fn seed_replays_the_same_run() {
    assert_eq!(soak(42, 2_000), soak(42, 2_000));
    assert_ne!(soak(42, 2_000), soak(43, 2_000));
}
