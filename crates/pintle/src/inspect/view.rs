//! Answers built from the record, the queues and the caches.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Inspector, Program,
    entry::{Delay, Happened, Reconciled, Stored},
    model::{
        Controller, Entry, Handler, Informer, KeyLife, KeyRow, KeyState, Now, Queue, TRACE_FORMAT,
        Trace, Verdict, What, Why,
    },
    record::{Inner, KeyLog},
    redact, tree,
    why::{self, why},
};
use crate::{cache::ObjectKey, informer::WeakFactory, queue::Position};

/// The number of keys in a list whose objects are judged. Beyond that, problems are known only from
/// the record.
const MAX_JUDGED: usize = 500;

/// How long a cached answer about a key in a list is valid if nothing happens to the key.
const JUDGED_FOR: Duration = Duration::from_secs(3);

/// How many keys a trace holds.
const MAX_TRACED: usize = 200;

/// Which keys [`Inspector::now`] lists.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Query {
    /// Only keys of this controller.
    pub controller: String,
    /// Only keys that contain this text.
    pub search: String,
    /// Only keys with problems.
    pub problems: bool,
    /// How many keys to skip.
    pub offset: usize,
    /// How many keys to list, at most 1,000.
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            controller: String::new(),
            search: String::new(),
            problems: false,
            offset: 0,
            limit: 100,
        }
    }
}

/// How much to find out about a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Brief,
    Full,
}

/// The answer about a key in a list.
pub(super) struct Judged {
    at: Instant,
    /// When the last entry of the key was recorded.
    last: Option<Instant>,
    why: Why,
}

impl Inspector {
    /// Returns the state of the program, and one page of its keys.
    pub fn now(&self, query: &Query) -> Now {
        let program = &*self.program;
        let informers = program.informers();
        let records = program.records();
        let mut found = Vec::new();
        for record in &records {
            if query.controller.is_empty() || query.controller == record.name {
                record.find(query, &informers, &mut found);
            }
        }
        if query.problems {
            // Judging looks at objects, so it is done for all keys only if there are few.
            if found.len() <= MAX_JUDGED {
                for one in &mut found {
                    one.judge(&informers);
                }
            }
            found.retain(|one| one.verdict() == Verdict::Failing);
        }
        let matching = found.len();
        let end = query
            .offset
            .saturating_add(query.limit.min(1000))
            .min(matching);
        if let Some(last) = end.checked_sub(1) {
            // Only the keys up to the end of the page have to be in order.
            found.select_nth_unstable_by(last, |a, b| a.order().cmp(&b.order()));
            found.truncate(end);
            found.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        }
        let mut page: Vec<_> = found.into_iter().take(end).skip(query.offset).collect();
        for one in &mut page {
            one.judge(&informers);
        }
        // Problems that only the objects show come first on their page.
        page.sort_by(|a, b| a.order().cmp(&b.order()));
        let keys = page.into_iter().map(Found::row).collect();
        Now {
            program: program.name.clone(),
            started: program.started.to_string(),
            now: program.seconds(Instant::now()),
            controllers: program.controllers(),
            informers,
            keys,
            matching,
        }
    }

    /// Returns the life of a key, or `None` if there is no such controller.
    pub fn key(&self, controller: &str, key: &ObjectKey) -> Option<KeyLife> {
        let records = self.program.records();
        let record = records.iter().find(|record| record.name == controller)?;
        Some(record.life(key, &self.program.informers(), Detail::Full))
    }

    /// Returns the records of up to 200 keys, controller by controller, the most recently active
    /// first.
    ///
    /// It takes up to a second of CPU if objects are large, so do not call it on a thread that must
    /// stay responsive.
    pub fn trace(&self) -> Trace {
        let program = &*self.program;
        let informers = program.informers();
        let mut keys = Vec::new();
        for record in program.records() {
            let recent: Vec<_> = {
                let log = record.log.lock();
                let recent = log.keys.iter().map(|(key, _)| key.clone());
                recent
                    .take(MAX_TRACED - keys.len().min(MAX_TRACED))
                    .collect()
            };
            let life = |key| record.life(key, &informers, Detail::Full);
            keys.extend(recent.iter().map(life));
        }
        Trace {
            format: TRACE_FORMAT.to_owned(),
            program: program.name.clone(),
            started: program.started.to_string(),
            now: program.seconds(Instant::now()),
            controllers: program.controllers(),
            informers,
            keys,
        }
    }
}

/// A key that matches a query.
struct Found<'a> {
    record: &'a Inner,
    key: ObjectKey,
    position: Option<Position>,
    /// When the last entry was recorded.
    last: Option<Instant>,
    failures: u32,
    /// The verdict according to the record alone.
    recorded: Verdict,
    why: Option<Why>,
}

impl Found<'_> {
    fn verdict(&self) -> Verdict {
        self.why.as_ref().map_or(self.recorded, |why| why.verdict)
    }

    /// Problems first, then by progress in the queue, then by name.
    fn order(&self) -> (Verdict, u8, &str, &ObjectKey) {
        let position = match self.position {
            Some(Position::Processing { parked: false, .. }) => 0,
            Some(Position::Ready { .. }) => 1,
            Some(Position::Processing { parked: true, .. }) => 2,
            Some(Position::Delayed { .. }) => 3,
            None => 4,
        };
        // Keys that were not judged are listed with those that are fine.
        let verdict = match self.verdict() {
            Verdict::Unknown => Verdict::Fine,
            verdict => verdict,
        };
        (verdict, position, &self.record.name, &self.key)
    }

    fn judge(&mut self, informers: &[Informer]) {
        if self.why.is_none() {
            self.why = Some(self.record.judge(&self.key, self.last, informers));
        }
    }

    fn row(self) -> KeyRow {
        let seconds = |at| self.record.program.seconds(at);
        KeyRow {
            controller: self.record.name.clone(),
            kind: self.record.kind.to_string(),
            key: self.key.to_string(),
            state: state(self.position, 0),
            verdict: self.verdict(),
            why: self.why.map(|why| why.sentence).unwrap_or_default(),
            last: self.last.map(seconds).unwrap_or_default(),
            failures: self.failures,
        }
    }
}

impl Program {
    pub(super) fn informers(&self) -> Vec<Informer> {
        let factories = self.factories();
        let all = factories.iter().flat_map(WeakFactory::inspect);
        all.map(|one| Informer {
            name: one.name,
            kind: one.kind,
            state: one.state.to_owned(),
            reason: redact::text(&one.reason),
            objects: one.objects,
            changes: one.changes,
            fifo: one.fifo,
            version: one.version,
            handlers: one
                .handlers
                .into_iter()
                .map(|(name, pending)| Handler { name, pending })
                .collect(),
        })
        .collect()
    }

    fn controllers(&self) -> Vec<Controller> {
        let records = self.records();
        records.iter().map(|record| record.controller()).collect()
    }
}

impl Inner {
    fn controller(&self) -> Controller {
        let counts = self.queue.counts();
        let mut totals = {
            let log = self.log.lock();
            let mut totals = log.totals;
            totals.keys = log.keys.len() as u64;
            totals
        };
        totals.failures = totals.failures.min(totals.reconciles);
        Controller {
            name: self.name.clone(),
            kind: self.kind.to_string(),
            watches: self.watches.lock().to_vec(),
            workers: self.workers.load(Ordering::Relaxed),
            queue: Queue {
                ready: counts.ready,
                delayed: counts.delayed,
                processing: counts.processing,
                parked: counts.parked,
                longest_millis: u64::try_from(counts.longest.as_millis()).unwrap_or(u64::MAX),
            },
            totals,
        }
    }

    /// Adds the keys that match a query, judged by the record alone.
    fn find<'a>(&'a self, query: &Query, informers: &[Informer], found: &mut Vec<Found<'a>>) {
        let mut positions: BTreeMap<_, _> = self.queue.positions().into_iter().collect();
        let blocked = why::blocked(&self.watches.lock(), informers).is_some();
        let matches = |key: &ObjectKey| key.as_str().contains(query.search.as_str());
        let of = |key, position, last, failures| Found {
            record: self,
            key,
            position,
            last,
            failures,
            recorded: match position {
                _ if blocked || failures > 0 => Verdict::Failing,
                Some(_) => Verdict::Waiting,
                None => Verdict::Unknown,
            },
            why: None,
        };
        // Copied first, because workers wait for this lock.
        let known: Vec<_> = {
            let log = self.log.lock();
            let known = log.keys.iter().map(|(key, log)| {
                let last = log.entries.back().map(|entry| entry.at);
                (key.clone(), last, log.failures)
            });
            known.collect()
        };
        for (key, last, failures) in known {
            let position = positions.remove(&key);
            if matches(&key) {
                found.push(of(key, position, last, failures));
            }
        }
        // Keys that were enqueued without a record.
        for (key, position) in positions {
            if matches(&key) {
                found.push(of(key, Some(position), None, 0));
            }
        }
    }

    /// Answers for a list. The answer may be a few seconds out of date about objects below the
    /// key's own.
    fn judge(&self, key: &ObjectKey, last: Option<Instant>, informers: &[Informer]) -> Why {
        let now = Instant::now();
        if let Some(known) = self.judged.lock().get(key)
            && known.last == last
            && now.saturating_duration_since(known.at) < JUDGED_FOR
        {
            return known.why.clone();
        }
        let why = self.life(key, informers, Detail::Brief).why;
        let judged = Judged {
            at: now,
            last,
            why: why.clone(),
        };
        self.judged.lock().put(key.clone(), judged);
        why
    }

    fn life(&self, key: &ObjectKey, informers: &[Informer], detail: Detail) -> KeyLife {
        let log = self.log.lock().keys.peek(key).cloned();
        let log = log.unwrap_or_default();
        let state = match self.queue.position(key) {
            Some(Position::Ready { waited }) => {
                let ahead = self.queue.counts().ready.saturating_sub(1);
                KeyState::Ready {
                    seconds: waited.as_secs_f64(),
                    ahead,
                }
            }
            position => state(position, 0),
        };
        let mut life = KeyLife {
            controller: self.name.clone(),
            kind: self.kind.to_string(),
            key: key.to_string(),
            now: self.program.seconds(Instant::now()),
            state,
            why: Why::default(),
            entries: self.entries(&log, detail),
            dropped: log.dropped,
            tree: Vec::new(),
            truncated: false,
        };
        let error = why::last_error(&life.entries);
        let full = detail == Detail::Full;
        (life.tree, life.truncated) = tree::of(self, key, error.as_deref(), full);
        if full {
            tree::add_diffs(&mut life.tree, &log);
        }
        life.why = why(&life, &self.controller(), informers);
        life
    }

    fn entries(&self, log: &KeyLog, detail: Detail) -> Vec<Entry> {
        let watches = Arc::clone(&self.watches.lock());
        let mut entries = Vec::with_capacity(log.entries.len());
        for Stored {
            at,
            since,
            times,
            what,
        } in &log.entries
        {
            let seconds = |at: Instant| self.program.seconds(at);
            let entry = |what| Entry {
                at: seconds(*at),
                times: *times,
                since: (*times > 1).then(|| seconds(*since)),
                what,
            };
            match what {
                // A list does not show changed fields, and they take time to compute.
                Happened::Woke { .. } if detail == Detail::Brief => {}
                Happened::Woke { change, via } => entries.push(entry(change.describe(*via))),
                Happened::Wrote(write) => entries.push(entry(write.describe())),
                Happened::Delayed { reason, length } => {
                    entries.push(entry(delay(*reason, *length)));
                }
                Happened::Reconciled(run) => {
                    entries.push(entry(self.reconcile(run, &watches)));
                    if let Some((reason, length)) = run.next {
                        entries.push(Entry {
                            at: seconds(*at),
                            times: 1,
                            since: None,
                            what: delay(reason, length),
                        });
                    }
                }
            }
        }
        entries
    }

    fn reconcile(&self, run: &Reconciled, watches: &[String]) -> What {
        What::Reconcile {
            id: run.id,
            cause: (self.cause)(run.cause, watches),
            attempt: run.attempt,
            seconds: run.took.as_secs_f64(),
            outcome: run.outcome.as_str().to_owned(),
            error: run.error.as_deref().map(redact::text),
        }
    }
}

fn delay(reason: Delay, length: Duration) -> What {
    What::Delay {
        reason: reason.as_str().to_owned(),
        seconds: length.as_secs_f64(),
    }
}

fn state(position: Option<Position>, ahead: usize) -> KeyState {
    match position {
        None => KeyState::Idle,
        Some(Position::Ready { waited }) => KeyState::Ready {
            seconds: waited.as_secs_f64(),
            ahead,
        },
        Some(Position::Delayed { left }) => KeyState::Delayed {
            left: left.as_secs_f64(),
        },
        Some(Position::Processing {
            since,
            parked: false,
        }) => KeyState::Processing {
            seconds: since.as_secs_f64(),
        },
        Some(Position::Processing {
            since,
            parked: true,
        }) => KeyState::Parked {
            seconds: since.as_secs_f64(),
        },
    }
}
