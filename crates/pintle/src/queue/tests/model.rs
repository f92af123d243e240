//! The state machine against a model that is simple enough to be obviously right: a map of keys,
//! searched from end to end.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::state::Bench;
use crate::queue::state::{Cause, PATIENCE, Tick, Verdict};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pending {
    Nothing,
    Ready { priority: i32, place: u64 },
    Delayed { priority: i32, at: Tick, place: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The priority of the item.
    pub(super) processing: Option<i32>,
    pub(super) pending: Pending,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<u32, Known>,
    passed_over: BTreeMap<i32, u32>,
    places: u64,
    pub(super) closed: bool,
}

impl Model {
    fn place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    pub(super) fn request(&mut self, key: u32, priority: i32, at: Tick, now: Tick) {
        let place = self.place();
        let known = self.keys.entry(key).or_insert(Known {
            processing: None,
            pending: Pending::Nothing,
        });
        let due = at <= now && !self.closed;
        known.pending = match known.pending {
            Pending::Ready { priority: old, .. } if priority > old => {
                Pending::Ready { priority, place }
            }
            ready @ Pending::Ready { .. } => ready,
            Pending::Nothing if due => Pending::Ready { priority, place },
            Pending::Nothing => Pending::Delayed {
                priority,
                at,
                place,
            },
            Pending::Delayed { priority: old, .. } if due => Pending::Ready {
                priority: priority.max(old),
                place,
            },
            Pending::Delayed {
                priority: old,
                at: before,
                place: old_place,
            } => {
                let priority = priority.max(old);
                if at < before {
                    Pending::Delayed {
                        priority,
                        at,
                        place,
                    }
                } else {
                    Pending::Delayed {
                        priority,
                        at: before,
                        place: old_place,
                    }
                }
            }
        };
        self.remove_unused();
    }

    pub(super) fn cancel(&mut self, key: u32) -> bool {
        let Some(known) = self.keys.get_mut(&key) else {
            return false;
        };
        let cancelled = matches!(known.pending, Pending::Delayed { .. });
        if cancelled {
            known.pending = Pending::Nothing;
        }
        self.remove_unused();
        cancelled
    }

    pub(super) fn promote(&mut self, now: Tick) {
        if self.closed {
            return;
        }
        for key in self
            .delayed()
            .into_iter()
            .filter(|&(at, ..)| at <= now)
            .map(|(.., key)| key)
        {
            let place = self.place();
            let pending = &mut self.keys.get_mut(&key).unwrap().pending;
            if let Pending::Delayed { priority, .. } = *pending {
                *pending = Pending::Ready { priority, place };
            }
        }
    }

    /// Returns the ready keys, highest priority first.
    pub(super) fn ready(&self) -> Vec<(i32, u64, u32)> {
        let mut ready: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(&key, known)| match (known.processing, known.pending) {
                (None, Pending::Ready { priority, place }) => Some((-priority, place, key)),
                _ => None,
            })
            .collect();
        ready.sort_unstable();
        ready
    }

    pub(super) fn delayed(&self) -> Vec<(Tick, u64, u32)> {
        let mut delayed: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(&key, known)| match known.pending {
                Pending::Delayed { at, place, .. } => Some((at, place, key)),
                _ => None,
            })
            .collect();
        delayed.sort_unstable();
        delayed
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        let ready = self.ready();
        let highest = -ready.first()?.0;
        let passed_over = |priority: i32| self.passed_over.get(&priority).copied().unwrap_or(0);
        let mut served = highest;
        for &(priority, ..) in &ready {
            let impatient = passed_over(-priority) >= PATIENCE;
            if impatient && passed_over(-priority) > passed_over(served) {
                served = -priority;
            }
        }
        for &(priority, ..) in &ready {
            self.passed_over.entry(-priority).or_insert(0);
        }
        for (priority, count) in &mut self.passed_over {
            *count = if *priority == served { 0 } else { *count + 1 };
        }
        let &(.., key) = ready.iter().find(|&&(priority, ..)| -priority == served)?;
        self.keys.insert(
            key,
            Known {
                processing: Some(served),
                pending: Pending::Nothing,
            },
        );
        self.remove_unused();
        Some(key)
    }

    pub(super) fn done(&mut self, key: u32, again: Option<Tick>, now: Tick) {
        let known = self.keys.get_mut(&key).unwrap();
        let priority = known.processing.take().unwrap();
        // A dirty key becomes ready only now.
        self.places += 1;
        if let Pending::Ready { place, .. } = &mut known.pending {
            *place = self.places;
        }
        if let Some(at) = again {
            self.request(key, priority, at, now);
        }
        self.remove_unused();
    }

    fn remove_unused(&mut self) {
        self.keys
            .retain(|_, known| known.processing.is_some() || known.pending != Pending::Nothing);
        let levels: Vec<_> = self
            .ready()
            .iter()
            .map(|&(priority, ..)| -priority)
            .collect();
        self.passed_over
            .retain(|priority, _| levels.contains(priority));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add {
        key: u32,
        priority: i32,
    },
    AddAfter {
        key: u32,
        priority: i32,
        delay: Tick,
    },
    Cancel {
        key: u32,
    },
    Take,
    Done {
        which: usize,
        again: Option<Tick>,
    },
    Pass {
        time: Tick,
    },
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..12u32;
    let priority = prop_oneof![4 => Just(0), 3 => Just(-100), 2 => -2..8i32];
    let delay = prop_oneof![1 => Just(0u64), 9 => 1..40u64];
    prop_oneof![
        60 => (key.clone(), priority.clone()).prop_map(|(key, priority)| Op::Add { key, priority }),
        30 => (key.clone(), priority, delay.clone()).prop_map(
            |(key, priority, delay)| Op::AddAfter { key, priority, delay }
        ),
        8 => key.prop_map(|key| Op::Cancel { key }),
        60 => Just(Op::Take),
        50 => (any::<usize>(), proptest::option::of(delay.clone()))
            .prop_map(|(which, again)| Op::Done { which, again }),
        20 => delay.prop_map(|time| Op::Pass { time }),
        1 => Just(Op::Close),
    ]
}

fn replay(ops: Vec<Op>) {
    let mut bench = Bench::new();
    let mut model = Model::default();
    let mut items: Vec<(u32, u32)> = Vec::new();
    for op in ops {
        match op {
            Op::Add { key, priority } => {
                bench.add(key, priority);
                if !model.closed {
                    model.request(key, priority, bench.now, bench.now);
                }
            }
            Op::AddAfter {
                key,
                priority,
                delay,
            } => {
                bench.add_after(key, priority, delay);
                if !model.closed {
                    model.request(key, priority, bench.now + delay, bench.now);
                }
            }
            Op::Cancel { key } => assert_eq!(bench.cancel(key), model.cancel(key)),
            Op::Take => {
                let taken = bench.take();
                assert_eq!(taken.map(|(_, key)| key), model.take());
                if let Some((slot, key)) = taken {
                    assert!(
                        items.iter().all(|&(_, other)| other != key),
                        "{key} is being processed already"
                    );
                    items.push((slot, key));
                }
            }
            Op::Done { which, again } if !items.is_empty() => {
                let (slot, key) = items.swap_remove(which % items.len());
                let again = again.map(|delay| bench.now + delay);
                let priority = model.keys[&key].processing.unwrap();
                let verdict = again.map_or(Verdict::Done, |at| Verdict::RunAt {
                    at,
                    priority,
                    cause: Cause::RETRIED,
                });
                bench.state.done(slot, verdict, bench.now);
                model.done(key, again, bench.now);
            }
            Op::Done { .. } => {}
            Op::Pass { time } => {
                bench.pass(time);
                model.promote(bench.now);
            }
            Op::Close => {
                bench.state.close(bench.now);
                model.closed = true;
            }
        }
        compare(&mut bench, &model);
    }
}

fn compare(bench: &mut Bench, model: &Model) {
    let (ready, mut processing, delayed) = bench.state.snapshot();
    processing.sort_unstable();
    let expected = model
        .keys
        .iter()
        .filter(|(_, known)| known.processing.is_some());
    let dirty = expected
        .clone()
        .filter(|(_, known)| matches!(known.pending, Pending::Ready { .. }));
    let dirty = dirty.count();
    assert_eq!(
        ready,
        model
            .ready()
            .iter()
            .map(|&(.., key)| key)
            .collect::<Vec<_>>()
    );
    assert_eq!(
        processing,
        expected.map(|(&key, _)| key).collect::<Vec<_>>()
    );
    assert_eq!(
        delayed,
        model
            .delayed()
            .iter()
            .map(|&(.., key)| key)
            .collect::<Vec<_>>()
    );
    assert_eq!(bench.state.ready(), ready.len());
    assert_eq!(bench.state.depth(), ready.len() + dirty);
    assert_eq!(bench.state.delayed(), delayed.len());
    assert_eq!(bench.state.processing(), processing.len());
    assert_eq!(bench.state.known(), model.keys.len());
    assert_eq!(
        bench.state.is_idle(),
        ready.is_empty() && processing.is_empty()
    );
    assert_eq!(
        bench.state.is_finished(),
        model.closed && ready.is_empty() && dirty == 0
    );
    let next = model
        .delayed()
        .first()
        .map(|&(at, ..)| at)
        .filter(|_| !model.closed);
    assert_eq!(bench.state.next_due(), next);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // Proves queue/dedup, queue/delay, queue/priority, queue/no-starvation, queue/get-blocks.
    #[test]
    fn any_sequence_of_transitions_matches_the_model(
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        replay(ops);
    }
}
