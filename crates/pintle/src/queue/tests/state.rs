//! The pure state machine, without lock, clock or runtime.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::queue::state::{Cause, PATIENCE, State, Tick, Verdict};

/// The state with a hasher and a clock that the test sets.
pub(super) struct Bench {
    pub(super) state: State<u32>,
    hasher: DefaultHashBuilder,
    pub(super) now: Tick,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            state: State::new(false),
            hasher: DefaultHashBuilder::default(),
            now: 1,
        }
    }

    pub(super) fn add(&mut self, key: u32, priority: i32) {
        self.state.add(
            self.hasher.hash_one(key),
            key,
            priority,
            Cause::ADDED,
            self.now,
        );
    }

    pub(super) fn add_after(&mut self, key: u32, priority: i32, delay: Tick) {
        let hash = self.hasher.hash_one(key);
        self.state
            .add_at(hash, key, priority, self.now + delay, self.now);
    }

    pub(super) fn cancel(&mut self, key: u32) -> bool {
        self.state.cancel(self.hasher.hash_one(key), &key).0
    }

    pub(super) fn pass(&mut self, time: Tick) {
        self.now += time;
        self.state.promote(self.now);
    }

    /// Dequeues the next key. Returns its slot and the key.
    pub(super) fn take(&mut self) -> Option<(u32, u32)> {
        self.state
            .take(self.now)
            .map(|taken| (taken.slot, taken.key))
    }

    /// Dequeues and finishes the next key.
    fn run(&mut self) -> Option<u32> {
        let (slot, key) = self.take()?;
        self.state.done(slot, Verdict::Done, self.now);
        Some(key)
    }

    fn run_all(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.run()).collect()
    }
}

/// Proves queue/priority.
#[test]
fn higher_priorities_run_first_and_each_in_order() {
    let mut bench = Bench::new();
    for (key, priority) in [(1, -100), (2, 0), (3, 7), (4, 0), (5, -100), (6, 7)] {
        bench.add(key, priority);
    }
    assert_eq!(bench.run_all(), [3, 6, 2, 4, 1, 5]);
}

/// Proves queue/priority.
#[test]
fn raised_key_goes_to_the_tail_of_its_new_priority() {
    let mut bench = Bench::new();
    for key in 1..=3 {
        bench.add(key, 0);
    }
    bench.add(4, 5);
    bench.add(2, 5);
    bench.add(1, 0);
    bench.add(3, -100);
    bench.add(4, 0);
    assert_eq!(bench.run_all(), [4, 2, 1, 3]);
}

/// Proves queue/priority.
#[test]
fn delayed_key_keeps_higher_priority_and_earlier_time() {
    let mut bench = Bench::new();
    bench.add_after(1, -100, 10);
    bench.add_after(1, 5, 20);
    bench.add(2, 0);
    bench.pass(10);
    assert_eq!(bench.run_all(), [1, 2]);
    bench.add_after(3, 5, 10);
    bench.add(3, 0);
    bench.add(4, 1);
    assert_eq!(
        bench.run_all(),
        [3, 4],
        "ready immediately, with its old priority"
    );
}

/// Proves queue/delay.
#[test]
fn due_key_goes_behind_ready_keys() {
    let mut bench = Bench::new();
    bench.add_after(1, 0, 10);
    bench.add(2, 0);
    bench.pass(10);
    bench.add(3, 0);
    assert_eq!(bench.run_all(), [2, 1, 3]);
}

/// Proves queue/delay, queue/priority.
#[test]
fn same_due_time_keeps_its_position() {
    let mut bench = Bench::new();
    bench.add_after(1, 0, 10);
    bench.add_after(2, 0, 10);
    bench.add_after(1, 0, 10);
    bench.pass(10);
    assert_eq!(bench.run_all(), [1, 2]);
}

/// Proves queue/priority, queue/delay.
#[test]
fn due_key_overtakes_lower_priorities() {
    let mut bench = Bench::new();
    bench.add_after(1, 5, 10);
    bench.add(2, 0);
    bench.add(3, 0);
    assert_eq!(bench.run(), Some(2), "not yet due");
    bench.pass(10);
    assert_eq!(bench.run_all(), [1, 3]);
}

/// Proves queue/delay.
#[test]
fn cancel_drops_a_delay_but_not_a_dirty_mark() {
    let mut bench = Bench::new();
    bench.add(1, 0);
    let (slot, _) = bench.take().unwrap();
    bench.add_after(1, 0, 10);
    assert!(bench.cancel(1));
    bench.add(1, 0);
    assert!(!bench.cancel(1));
    bench.state.done(slot, Verdict::Done, bench.now);
    assert_eq!(bench.run_all(), [1]);
    bench.pass(10);
    assert_eq!(bench.run_all(), [] as [u32; 0]);
}

/// Proves queue/dedup.
#[test]
fn dirty_key_can_be_raised_while_processing() {
    let mut bench = Bench::new();
    bench.add(1, 0);
    let (slot, _) = bench.take().unwrap();
    bench.add(2, 3);
    bench.add(1, 0);
    bench.add(1, 5);
    bench.state.done(
        slot,
        Verdict::RunAt {
            at: bench.now + 10,
            priority: 0,
            cause: Cause::RETRIED,
        },
        bench.now,
    );
    assert_eq!(bench.run_all(), [1, 2]);
    bench.pass(10);
    assert_eq!(
        bench.run_all(),
        [] as [u32; 0],
        "the add was earlier than the retry"
    );
}

/// Proves queue/no-starvation.
#[test]
fn steady_stream_does_not_starve_lower_priorities() {
    let mut bench = Bench::new();
    for key in 0..3 {
        bench.add(key, -100);
    }
    bench.add(100, -50);
    let mut others = Vec::new();
    for turn in 1..=60 {
        bench.add(1000 + turn, 0);
        let key = bench.run().unwrap();
        if key < 1000 {
            others.push((turn, key));
        }
    }
    // Each is served after being passed over 15 times, the higher priority first.
    assert_eq!(others, [(16, 100), (17, 0), (33, 1), (49, 2)]);
}

/// Proves queue/no-starvation.
#[test]
fn every_priority_gets_its_share() {
    for levels in [2, 10, 40] {
        let mut bench = Bench::new();
        for key in 0..levels * 1000 {
            bench.add(key, i32::try_from(key % levels).unwrap());
        }
        let mut last = vec![0; levels as usize];
        for turn in 1..=1000 {
            let key = bench.run().unwrap();
            last[(key % levels) as usize] = turn;
            let longest = last.iter().map(|served| turn - served).max();
            assert!(
                longest < Some(PATIENCE + levels),
                "{levels} levels, turn {turn}: {last:?}"
            );
        }
    }
}

/// Proves queue/no-starvation.
#[test]
fn empty_priority_saves_up_no_turns() {
    let mut bench = Bench::new();
    bench.add(1, -100);
    assert_eq!(bench.run(), Some(1));
    for key in 10..40 {
        bench.add(key, 0);
    }
    for key in 10..30 {
        assert_eq!(bench.run(), Some(key));
    }
    bench.add(1, -100);
    assert_eq!(bench.run(), Some(30));
}

/// Proves queue/delay.
#[test]
fn moving_a_delay_often_does_not_grow_the_heap() {
    let mut bench = Bench::new();
    for round in 0..1000 {
        bench.add_after(1, 0, 1_000_000 - round);
        bench.cancel(2);
        bench.add_after(2, 0, 1_000_000 + round);
    }
    assert_eq!(bench.state.delayed(), 2);
    assert!(
        bench.state.heap_entries() < 100,
        "{}",
        bench.state.heap_entries()
    );
    bench.pass(2_000_000);
    assert_eq!(bench.run_all(), [1, 2]);
}

/// Proves queue/delay.
#[test]
fn moving_a_delay_is_cheap_with_many_delays() {
    let mut bench = Bench::new();
    for key in 0..100 {
        bench.add_after(key, 0, 5_000_000);
    }
    for round in 0..10_000 {
        bench.cancel(1000);
        bench.add_after(1000, 0, 1_000_000 + round);
    }
    let entries = bench.state.heap_entries();
    assert!(entries < 300, "{entries}");
}

/// Proves queue/delay, queue/get-blocks.
#[test]
fn cancelled_delays_leave_no_memory() {
    for keys in [1000, 1001] {
        let mut bench = Bench::new();
        for key in 0..keys {
            bench.add_after(key, 0, 1_000_000);
        }
        for key in 0..keys {
            assert!(bench.cancel(key));
        }
        assert_eq!((bench.state.delayed(), bench.state.known()), (0, 0));
        let entries = bench.state.heap_entries();
        assert!(entries < 100, "{entries} of {keys}");
    }
}

/// Proves queue/get-blocks.
#[test]
fn idle_queue_retains_no_keys_and_reuses_slots() {
    let mut bench = Bench::new();
    let mut highest = 0;
    for key in 0..1000 {
        bench.add(key, 0);
        bench.add_after(key + 5000, 0, 3);
        bench.pass(5);
        while let Some((slot, _)) = bench.take() {
            highest = highest.max(slot);
            bench.state.done(slot, Verdict::Done, bench.now);
        }
    }
    assert_eq!(bench.state.known(), 0);
    assert!(highest <= 1);
}

/// Proves queue/get-blocks.
#[test]
fn unused_priorities_cost_no_memory() {
    let mut bench = Bench::new();
    for key in 0..100 {
        bench.add(key, i32::try_from(key).unwrap());
    }
    assert_eq!(bench.state.levels(), 100);
    assert_eq!(bench.run_all().len(), 100);
    assert_eq!(bench.state.levels(), 4, "a few stay allocated");
}

/// Proves queue/delay.
#[test]
fn stale_due_time_does_not_affect_the_next_key_in_a_slot() {
    let mut bench = Bench::new();
    bench.add_after(1, 0, 10);
    assert!(bench.cancel(1));
    bench.add_after(2, 0, 20);
    bench.pass(10);
    assert_eq!(bench.run_all(), [] as [u32; 0]);
    bench.pass(10);
    assert_eq!(bench.run_all(), [2]);
}

/// Proves queue/shutdown, queue/drain.
#[test]
fn closing_promotes_due_keys_and_leaves_the_rest() {
    let mut bench = Bench::new();
    bench.add_after(1, 0, 10);
    bench.add_after(2, 0, 20);
    bench.now += 15;
    bench.state.close(bench.now);
    assert!(!bench.state.is_finished());
    bench.pass(100);
    assert_eq!(bench.run_all(), [1]);
    assert!(bench.state.is_finished());
    assert_eq!(bench.state.snapshot(), (vec![], vec![], vec![2]));
}

/// Returns why the next key runs, and its slot.
fn cause(bench: &mut Bench) -> (u8, u32) {
    let taken = bench.state.take(bench.now).unwrap();
    (taken.cause.number(), taken.slot)
}

#[test]
fn first_request_of_a_run_is_its_cause() {
    let mut bench = Bench::new();
    let add = |bench: &mut Bench, cause| {
        let hash = bench.hasher.hash_one(1);
        let cause = Cause::new(cause);
        bench.state.add(hash, 1, 0, cause, bench.now);
    };
    add(&mut bench, 7);
    add(&mut bench, 8);
    let (first, slot) = cause(&mut bench);
    assert_eq!(first, 7);

    // Put back unprocessed, it runs for the same reason.
    bench
        .state
        .done(slot, Verdict::PutBack { priority: 0 }, bench.now);
    let (again, slot) = cause(&mut bench);
    assert_eq!(again, 7);

    // Added while it is being processed, it runs again because of that.
    add(&mut bench, 9);
    bench.state.done(slot, Verdict::Done, bench.now);
    let (dirty, slot) = cause(&mut bench);
    assert_eq!(dirty, 9);

    // A retry is the cause unless a request is earlier.
    let retry = Verdict::RunAt {
        at: bench.now + 10,
        priority: 0,
        cause: Cause::RETRIED,
    };
    bench.state.done(slot, retry, bench.now);
    bench.pass(10);
    bench.state.promote(bench.now);
    let (retried, slot) = cause(&mut bench);
    assert_eq!(retried, Cause::RETRIED.number());
    let retry = Verdict::RunAt {
        at: bench.now + 10,
        priority: 0,
        cause: Cause::RETRIED,
    };
    bench.state.done(slot, retry, bench.now);
    add(&mut bench, 10);
    assert_eq!(cause(&mut bench).0, 10);
}
