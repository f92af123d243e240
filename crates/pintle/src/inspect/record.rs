//! The record of one controller: a ring of entries per key, with a bound on their total.
//!
//! Recording takes one or two short locks and a few look-ups per key. What needs more work, such as
//! finding the fields that a change touched, is done when the record is read.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Inspector, Program,
    entry::{self, Change, Delay, Happened, Outcome, Reconciled, Stored, Via, Write},
    model::Totals,
    requests::{self, Current},
    view::Judged,
};
use crate::{
    cache::{Kind, Object, ObjectKey},
    informer::Event,
    object::Header,
    queue::WorkQueue,
};

/// Records what happens to the keys of one controller. Returned by [`Inspector::record`].
///
/// A [`Controller`](crate::controller::Controller) records by itself. This type is for hand-written
/// workers: report the events that enqueue keys with [`woke`](Self::woke), and run each reconcile
/// inside [`reconcile`](Self::reconcile), with a client from [`Inspector::client`] so that its
/// writes are recorded too.
#[derive(Clone)]
pub struct Record {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) name: String,
    pub(super) program: Arc<Program>,
    pub(super) group: String,
    pub(super) kind: Arc<str>,
    pub(super) watches: Mutex<Arc<[String]>>,
    /// Describes a cause, given its number.
    pub(super) cause: fn(u8, &[String]) -> String,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) workers: AtomicUsize,
    pub(super) log: Mutex<Log>,
    /// Cached answers about keys in lists.
    pub(super) judged: Mutex<LruCache<ObjectKey, Judged>>,
}

/// The entries of all keys, and their totals.
pub(super) struct Log {
    /// The key that was recorded last is the most recently used one.
    pub(super) keys: LruCache<ObjectKey, KeyLog>,
    pub(super) entries: usize,
    pub(super) totals: Totals,
    per_key: usize,
    in_all: usize,
}

/// The entries of a key.
#[derive(Clone, Default)]
pub(super) struct KeyLog {
    pub(super) entries: VecDeque<Stored>,
    pub(super) dropped: u64,
    /// How many reconciles failed in a row.
    pub(super) failures: u32,
    /// The number of the last reconcile of a hand-written worker.
    pub(super) last_id: u64,
}

impl Log {
    pub(super) fn new(per_key: usize, in_all: usize) -> Self {
        Self {
            keys: LruCache::unbounded(),
            entries: 0,
            totals: Totals::default(),
            per_key: per_key.max(4),
            in_all: in_all.max(per_key.max(4)),
        }
    }

    /// Appends an entry. If the key's ring is full, drops its oldest entry; while the total is too
    /// large, drops the keys that were idle longest.
    fn push(&mut self, key: &ObjectKey, at: Instant, what: Happened) {
        let stored = Stored {
            at,
            since: at,
            times: 1,
            what,
        };
        let log = self.keys.get_or_insert_mut_ref(key, KeyLog::default);
        if log.entries.len() >= self.per_key {
            log.entries.pop_front();
            log.dropped += 1;
            self.totals.dropped += 1;
        } else {
            self.entries += 1;
        }
        log.entries.push_back(stored);
        while self.entries > self.in_all
            && let Some((_, idle)) = self.keys.pop_lru()
        {
            self.entries -= idle.entries.len();
            self.totals.dropped += idle.entries.len() as u64;
        }
    }

    fn delayed(&mut self, key: &ObjectKey, at: Instant, reason: Delay, length: Duration) {
        // A reconcile may send hundreds of requests, and the limit may hold up each of them.
        if reason == Delay::RateLimit
            && let Some(log) = self.keys.get_mut(key)
            && let Some(Stored {
                at: last,
                times,
                what:
                    Happened::Delayed {
                        reason: Delay::RateLimit,
                        length: before,
                    },
                ..
            }) = log.entries.back_mut()
        {
            *last = at;
            *times += 1;
            *before = length;
            return;
        }
        self.push(key, at, Happened::Delayed { reason, length });
    }

    fn reconciled(&mut self, key: &ObjectKey, at: Instant, mut reconciled: Reconciled) {
        let log = self.keys.get_or_insert_mut_ref(key, KeyLog::default);
        self.totals.reconciles += 1;
        reconciled.attempt = log.failures.saturating_add(1);
        if reconciled.outcome.is_failure() {
            self.totals.failures += 1;
            log.failures = log.failures.saturating_add(1);
        } else {
            log.failures = 0;
            // A run that repeats the previous one, with nothing in between, only raises its count.
            if let Some(Stored {
                at: last,
                times,
                what: Happened::Reconciled(before),
                ..
            }) = log.entries.back_mut()
                && before.cause == reconciled.cause
                && before.outcome == reconciled.outcome
            {
                *last = at;
                *times += 1;
                before.id = reconciled.id;
                before.took = reconciled.took;
                before.next = reconciled.next;
                return;
            }
        }
        self.push(key, at, Happened::Reconciled(reconciled));
    }
}

impl Record {
    /// Returns the name of the controller.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(super) fn new(inner: Inner) -> Self {
        inner.queue.measure();
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Sets how many workers run.
    pub fn workers(&self, count: usize) {
        self.inner.workers.store(count, Ordering::Relaxed);
    }

    /// Sets the kinds that wake the keys, which the page shows as the loop. If an informer of one
    /// of them is not synced, that explains why nothing runs. Default: the controller's own.
    pub fn watches<T: Into<String>>(&self, kinds: impl IntoIterator<Item = T>) {
        self.set_watches(&kinds.into_iter().map(Into::into).collect());
    }

    pub(crate) fn set_watches(&self, kinds: &Arc<[String]>) {
        *self.inner.watches.lock() = Arc::clone(kinds);
    }

    /// Records that `event` enqueued `key`. Resyncs are left out.
    pub fn woke<K: Kind<DynamicType: Default>>(&self, key: &ObjectKey, event: &Event<K>) {
        let of = K::DynamicType::default();
        let kind = K::kind(&of);
        let via = if *kind == *self.inner.kind && event.key() == key {
            Via::Own
        } else {
            Via::Owner
        };
        self.woken(std::slice::from_ref(key), &Arc::from(&*kind), via, event);
    }

    pub(crate) fn woken<K: Kind>(
        &self,
        keys: &[ObjectKey],
        kind: &Arc<str>,
        via: Via,
        event: &Event<K>,
    ) {
        if keys.is_empty() || event.is_resync() {
            return;
        }
        let erased = |object: &Object<K>| -> Arc<dyn Header> { Arc::new(object.clone()) };
        let change = Arc::new(match event {
            Event::Added { object, initial } => {
                let what = if *initial { "listed" } else { "added" };
                Change::of(kind, object.key().clone(), what)
            }
            Event::Updated { old, new } => Change::update(kind, erased(old), erased(new)),
            Event::Deleted(deleted) => Change::of(kind, deleted.key.clone(), "deleted"),
        });
        let program = &self.inner.program;
        let budget = program.settings.state_bytes;
        let evicted = program.retained.lock().change(&change, budget);
        drop(evicted);
        let at = Instant::now();
        let mut log = self.inner.log.lock();
        for key in keys {
            // A handler that maps both states of an object may report its change twice.
            let last = log.keys.peek(key).and_then(|log| log.entries.back());
            if let Some(Stored {
                what: Happened::Woke { change: known, .. },
                ..
            }) = last
                && known.is(&change)
            {
                continue;
            }
            log.totals.wakes += 1;
            let change = Arc::clone(&change);
            log.push(key, at, Happened::Woke { change, via });
        }
    }

    /// Runs a reconcile of `key`, so that its writes are recorded as its own, and records how it
    /// ended.
    ///
    /// An error is recorded as the text that `describe` returns. Call
    /// [`delayed`](Self::delayed) afterwards if the key is retried.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `run`; a dropped reconcile is not recorded.
    ///
    /// # Panics
    ///
    /// Panics if `run` or `describe` does, after recording the panic.
    pub async fn reconcile<T, E>(
        &self,
        key: &ObjectKey,
        run: impl Future<Output = Result<T, E>>,
        describe: impl FnOnce(&E) -> String,
    ) -> Result<T, E> {
        let id = {
            let mut log = self.inner.log.lock();
            let log = log.keys.get_or_insert_mut_ref(key, KeyLog::default);
            log.last_id += 1;
            log.last_id
        };
        let started = Instant::now();
        let run = async {
            let result = run.await;
            let error = result.as_ref().err().map(describe);
            (result, error)
        };
        let ended = self
            .scope(key, id, AssertUnwindSafe(run).catch_unwind())
            .await;
        let (outcome, error) = match &ended {
            Ok((_, None)) => (Outcome::Ok, None),
            Ok((_, Some(error))) => (Outcome::Error, Some(error.as_str().into())),
            Err(panic) => (Outcome::Panic, Some(message_of(&**panic).into())),
        };
        let took = started.elapsed();
        self.reconciled(
            key,
            started + took,
            Reconciled {
                id,
                cause: 0,
                attempt: 1,
                took,
                outcome,
                error,
                next: None,
            },
        );
        match ended {
            Ok((result, _)) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Records that `key` has to wait.
    pub fn delayed(&self, key: &ObjectKey, reason: Delay, length: Duration) {
        let at = Instant::now();
        self.inner.log.lock().delayed(key, at, reason, length);
    }

    pub(crate) fn reconciled(&self, key: &ObjectKey, at: Instant, mut reconciled: Reconciled) {
        if let Some(short) = reconciled.error.as_deref().and_then(entry::shortened) {
            reconciled.error = Some(short.into());
        }
        self.inner.log.lock().reconciled(key, at, reconciled);
    }

    /// Attributes the writes of `run` to a reconcile.
    pub(crate) async fn scope<T>(
        &self,
        key: &ObjectKey,
        id: u64,
        run: impl Future<Output = T>,
    ) -> T {
        let current = Current {
            record: self.clone(),
            key: key.clone(),
            id,
        };
        requests::CURRENT.scope(current, run).await
    }

    pub(super) fn wrote(&self, key: &ObjectKey, mut write: Write) {
        if let Some(short) = write.error.as_deref().and_then(entry::shortened) {
            write.error = Some(short);
        }
        let write = Arc::new(write);
        let program = &self.inner.program;
        let budget = program.settings.state_bytes;
        let evicted = program.retained.lock().write(&write, budget);
        drop(evicted);
        let mut log = self.inner.log.lock();
        log.totals.writes += 1;
        log.push(key, Instant::now(), Happened::Wrote(write));
    }

    /// Returns the inspector that this record belongs to.
    pub fn inspector(&self) -> Inspector {
        Inspector {
            program: Arc::clone(&self.inner.program),
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}
