//! The state machine against a model so simple that it can be read at a glance: a map from keys to
//! what is known of them, searched from end to end for every answer.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::state::Bench;
use crate::queue::{
    ready::PATIENCE,
    state::{Merge, Tick, Verdict},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pending {
    Nothing,
    Ready { priority: i32, place: u64 },
    Waiting { priority: i32, at: Tick, place: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) held: Option<i32>,
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

    pub(super) fn ask(&mut self, key: u32, priority: i32, at: Tick, merge: Merge, now: Tick) {
        let place = self.place();
        let known = self.keys.entry(key).or_insert(Known {
            held: None,
            pending: Pending::Nothing,
        });
        let due = at <= now && !self.closed;
        known.pending = match known.pending {
            Pending::Ready { priority: old, .. } if priority > old => {
                Pending::Ready { priority, place }
            }
            ready @ Pending::Ready { .. } => ready,
            Pending::Nothing if due => Pending::Ready { priority, place },
            Pending::Nothing => Pending::Waiting {
                priority,
                at,
                place,
            },
            Pending::Waiting { priority: old, .. } if due => Pending::Ready {
                priority: priority.max(old),
                place,
            },
            Pending::Waiting {
                priority: old,
                at: before,
                place: old_place,
            } => {
                let priority = priority.max(old);
                if merge == Merge::Replace || at < before {
                    Pending::Waiting {
                        priority,
                        at,
                        place,
                    }
                } else {
                    Pending::Waiting {
                        priority,
                        at: before,
                        place: old_place,
                    }
                }
            }
        };
        self.tidy();
    }

    pub(super) fn cancel(&mut self, key: u32) -> bool {
        let Some(known) = self.keys.get_mut(&key) else {
            return false;
        };
        let cancelled = matches!(known.pending, Pending::Waiting { .. });
        if cancelled {
            known.pending = Pending::Nothing;
        }
        self.tidy();
        cancelled
    }

    pub(super) fn promote(&mut self, now: Tick) {
        if self.closed {
            return;
        }
        for key in self
            .waiting()
            .into_iter()
            .filter(|&(at, ..)| at <= now)
            .map(|(.., key)| key)
        {
            let place = self.place();
            let pending = &mut self.keys.get_mut(&key).unwrap().pending;
            if let Pending::Waiting { priority, .. } = *pending {
                *pending = Pending::Ready { priority, place };
            }
        }
    }

    /// Ready keys that nobody has, the most important first.
    pub(super) fn ready(&self) -> Vec<(i32, u64, u32)> {
        let mut ready: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(&key, known)| match (known.held, known.pending) {
                (None, Pending::Ready { priority, place }) => Some((-priority, place, key)),
                _ => None,
            })
            .collect();
        ready.sort_unstable();
        ready
    }

    pub(super) fn waiting(&self) -> Vec<(Tick, u64, u32)> {
        let mut waiting: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(&key, known)| match known.pending {
                Pending::Waiting { at, place, .. } => Some((at, place, key)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
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
                held: Some(served),
                pending: Pending::Nothing,
            },
        );
        self.tidy();
        Some(key)
    }

    pub(super) fn done(&mut self, key: u32, again: Option<Tick>, now: Tick) {
        let known = self.keys.get_mut(&key).unwrap();
        let priority = known.held.take().unwrap();
        // A dirty key takes its place in line now.
        self.places += 1;
        if let Pending::Ready { place, .. } = &mut known.pending {
            *place = self.places;
        }
        if let Some(at) = again {
            self.ask(key, priority, at, Merge::Earlier, now);
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.keys
            .retain(|_, known| known.held.is_some() || known.pending != Pending::Nothing);
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
        replace: bool,
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
        30 => (key.clone(), priority, delay.clone(), any::<bool>()).prop_map(
            |(key, priority, delay, replace)| Op::AddAfter { key, priority, delay, replace }
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
    let mut held: Vec<(u32, u32)> = Vec::new();
    for op in ops {
        match op {
            Op::Add { key, priority } => {
                bench.add(key, priority);
                if !model.closed {
                    model.ask(key, priority, bench.now, Merge::Earlier, bench.now);
                }
            }
            Op::AddAfter {
                key,
                priority,
                delay,
                replace,
            } => {
                let merge = if replace {
                    Merge::Replace
                } else {
                    Merge::Earlier
                };
                bench.add_after(key, priority, delay, merge);
                if !model.closed {
                    model.ask(key, priority, bench.now + delay, merge, bench.now);
                }
            }
            Op::Cancel { key } => assert_eq!(bench.cancel(key), model.cancel(key)),
            Op::Take => {
                let taken = bench.take();
                assert_eq!(taken.map(|(_, key)| key), model.take());
                if let Some((slot, key)) = taken {
                    assert!(
                        held.iter().all(|&(_, other)| other != key),
                        "{key} is taken already"
                    );
                    held.push((slot, key));
                }
            }
            Op::Done { which, again } if !held.is_empty() => {
                let (slot, key) = held.swap_remove(which % held.len());
                let again = again.map(|delay| bench.now + delay);
                let priority = model.keys[&key].held.unwrap();
                let verdict = again.map_or(Verdict::Done, |at| Verdict::Again { at, priority });
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
    let (ready, mut in_process, delayed) = bench.state.snapshot();
    in_process.sort_unstable();
    let held = model.keys.iter().filter(|(_, known)| known.held.is_some());
    let dirty = held
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
    assert_eq!(in_process, held.map(|(&key, _)| key).collect::<Vec<_>>());
    assert_eq!(
        delayed,
        model
            .waiting()
            .iter()
            .map(|&(.., key)| key)
            .collect::<Vec<_>>()
    );
    assert_eq!(bench.state.ready(), ready.len());
    assert_eq!(bench.state.depth(), ready.len() + dirty);
    assert_eq!(bench.state.delayed(), delayed.len());
    assert_eq!(bench.state.held(), in_process.len());
    assert_eq!(bench.state.known(), model.keys.len());
    assert_eq!(
        bench.state.is_idle(),
        ready.is_empty() && in_process.is_empty()
    );
    assert_eq!(
        bench.state.is_finished(),
        model.closed && ready.is_empty() && dirty == 0
    );
    let next = model
        .waiting()
        .first()
        .map(|&(at, ..)| at)
        .filter(|_| !model.closed);
    assert_eq!(bench.state.next_due().map(|due| due.at), next);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // Proves queue/dedup, queue/delay, queue/priority.
    // Proves queue/priority-merge, queue/due-goes-last, queue/no-starvation.
    // Proves queue/no-retained-keys.
    #[test]
    fn any_sequence_of_moves_gives_what_the_model_says(
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        replay(ops);
    }
}
