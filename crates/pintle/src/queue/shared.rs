//! The queue's state behind its lock, and the hand-off between tasks that add and tasks that wait.
//!
//! Every transition that may concern a waiting task, except `add`, runs inside a [`Transition`],
//! which wakes the right tasks when it ends, after the lock is released.

use std::{
    future::poll_fn,
    hash::BuildHasher,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use super::{
    Key,
    metrics::{QueueMetrics, Readable, Reading},
    rate_limit::RateLimiter,
    state::{Cause, State, Taken, Tick, Verdict},
    waiters::{Snapshot, Waiters, Wakes},
};
use crate::sync::{Mutex, MutexGuard, Sleep, sleep};

/// The longest single sleep, so that no delay is too long for a timer.
const LONGEST_SLEEP: Duration = Duration::from_hours(24);

/// The delay of a key whose rate limiter panicked.
const PANICKED_LIMITER_DELAY: Duration = Duration::from_secs(1);

/// The state shared by all handles and items of one queue.
pub(super) struct Shared<T: Key> {
    pub(super) name: Arc<str>,
    core: Mutex<Core<T>>,
    limiter: Arc<dyn RateLimiter<T>>,
    hasher: DefaultHashBuilder,
    origin: Instant,
    /// Whether durations are measured. Otherwise the clock is read only for delays.
    timed: AtomicBool,
    metrics: Option<QueueMetrics>,
}

/// The data under the lock.
struct Core<T> {
    state: State<T>,
    waiters: Waiters,
}

impl<T: Key> Core<T> {
    /// Returns the tasks to wake after a transition.
    #[inline]
    fn notify(&mut self) -> Option<Wakes> {
        if self.waiters.is_empty() {
            None
        } else {
            Some(self.notify_waiters())
        }
    }

    fn notify_waiters(&mut self) -> Wakes {
        let snapshot = Snapshot {
            ready: self.state.ready(),
            next_due: self.state.next_due(),
            finished: self.state.is_finished(),
            idle: self.state.is_idle(),
        };
        self.waiters.notify(snapshot)
    }
}

/// Locks the queue and wakes waiters when the guard drops. Every waking transition except
/// [`add`](Shared::add) goes through here.
///
/// It wakes them even if the transition panics in a key's `Eq` or `Clone`: no key stays ready while
/// a worker sleeps.
struct Transition<'a, T: Key> {
    // Dropped in this order: no task is woken before the lock is released.
    core: MutexGuard<'a, Core<T>>,
    wakes: WakeOnDrop,
}

/// Wakes tasks when it is dropped.
#[derive(Default)]
struct WakeOnDrop(Option<Wakes>);

impl<T: Key> Deref for Transition<'_, T> {
    type Target = Core<T>;
    fn deref(&self) -> &Core<T> {
        &self.core
    }
}

impl<T: Key> DerefMut for Transition<'_, T> {
    fn deref_mut(&mut self) -> &mut Core<T> {
        &mut self.core
    }
}

impl<T: Key> Drop for Transition<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.wakes.0 = self.core.notify();
    }
}

impl Drop for WakeOnDrop {
    #[inline]
    fn drop(&mut self) {
        if let Some(wakes) = self.0.take() {
            wakes.wake();
        }
    }
}

impl<T: Key> Shared<T> {
    pub(super) fn new(
        name: Arc<str>,
        limiter: Arc<dyn RateLimiter<T>>,
        metrics: Option<QueueMetrics>,
    ) -> Self {
        let timed = metrics.is_some();
        Self {
            name,
            core: Mutex::new(Core {
                state: State::new(timed),
                waiters: Waiters::default(),
            }),
            limiter,
            hasher: DefaultHashBuilder::default(),
            origin: Instant::now(),
            timed: AtomicBool::new(timed),
            metrics,
        }
    }

    pub(super) fn add(&self, key: T, priority: i32, cause: Cause) {
        let hash = self.hasher.hash_one(&key);
        let now = self.measured();
        // Without a `Transition`, which costs more: if the key's `Eq` panics, nothing has changed
        // yet.
        let mut core = self.core.lock();
        let duplicate = core.state.add(hash, key, priority, cause, now);
        let wakes = WakeOnDrop(core.notify());
        drop(core);
        drop(wakes);
        drop(duplicate);
    }

    pub(super) fn add_after(&self, key: T, priority: i32, delay: Duration) {
        let hash = self.hasher.hash_one(&key);
        let now = self.tick();
        let at = after(now, delay);
        let duplicate = self.begin().state.add_at(hash, key, priority, at, now);
        drop(duplicate);
    }

    pub(super) fn cancel(&self, key: &T) -> bool {
        let hash = self.hasher.hash_one(key);
        let (cancelled, freed) = self.core.lock().state.cancel(hash, key);
        drop(freed);
        cancelled
    }

    /// Dequeues a key if one is ready.
    fn try_take(&self) -> Option<Taken<T>> {
        let mut core = self.begin();
        self.promote(&mut core.state);
        let now = self.measured();
        core.state.take(now)
    }

    /// Waits for a key. Returns `None` when the queue is finished.
    ///
    /// Cancel safe: a key is dequeued only by the poll that returns it, and a cancelled call passes
    /// its wake-up on.
    pub(super) async fn take(&self) -> Option<Taken<T>> {
        if let Some(taken) = self.try_take() {
            return Some(taken);
        }
        let mut waiter = Waiter {
            shared: self,
            ticket: None,
        };
        let mut timer = pin!(None::<Sleep>);
        poll_fn(|cx| {
            loop {
                let until = match waiter.poll_take(cx) {
                    Step::Taken(taken) => return Poll::Ready(Some(taken)),
                    Step::Finished => return Poll::Ready(None),
                    Step::Wait(until) => until,
                };
                // If the timer has fired already, a key may have become due.
                if self.arm(timer.as_mut(), until, cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Ends the processing of a key.
    pub(super) fn done(&self, slot: u32, verdict: Done) {
        drop(self.done_and(slot, verdict, |_, _| ()));
    }

    /// Like [`done`](Self::done), and dequeues the next key under the same lock. Also returns the
    /// freed key: its destructor may panic, so the caller drops it once the next key is safe.
    pub(super) fn done_and_take(&self, slot: u32, verdict: Done) -> (Option<Taken<T>>, Option<T>) {
        self.done_and(slot, verdict, |state, now| {
            self.promote(state);
            state.take(now)
        })
    }

    fn done_and<R>(
        &self,
        slot: u32,
        verdict: Done,
        then: impl FnOnce(&mut State<T>, Tick) -> R,
    ) -> (R, Option<T>) {
        let now = match verdict {
            Done::Forget => self.measured(),
            Done::PutBack { .. } | Done::RunAfter { .. } => self.tick(),
        };
        let verdict = match verdict {
            Done::Forget => Verdict::Done,
            Done::PutBack { priority } => Verdict::PutBack { priority },
            Done::RunAfter {
                delay,
                priority,
                cause,
            } => Verdict::RunAt {
                at: after(now, delay),
                priority,
                cause,
            },
        };
        let freed; // Declared before the lock, so dropped after it, even if `then` panics.
        let mut core = self.begin();
        freed = core.state.done(slot, verdict, now);
        let result = then(&mut core.state, now);
        drop(core);
        (result, freed)
    }

    pub(super) fn park(&self, slot: u32) {
        self.core.lock().state.park(slot);
    }

    pub(super) fn shut_down(&self) {
        let now = self.tick();
        self.begin().state.close(now);
    }

    /// Waits until no key is ready or being processed. Cancel safe.
    pub(super) async fn idle(&self) {
        let mut waiter = DrainWaiter {
            shared: self,
            ticket: None,
        };
        poll_fn(|cx| {
            let _old = waiter.leave();
            let mut core = self.core.lock();
            if core.state.is_idle() {
                return Poll::Ready(());
            }
            waiter.ticket = Some(core.waiters.join_drainers(cx.waker()));
            Poll::Pending
        })
        .await;
    }

    /// Reads the state, after making due keys ready.
    pub(super) fn inspect<R>(&self, read: impl FnOnce(&mut State<T>, Tick) -> R) -> R {
        let now = self.tick();
        let mut core = self.begin();
        core.state.promote(now);
        read(&mut core.state, now)
    }

    #[cfg(feature = "inspect")]
    pub(super) fn hash(&self, key: &T) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the rate limiter's delay for one more failure. A limiter is user code: it runs
    /// outside the lock, and its panic, possibly during another unwind, must not abort the process.
    pub(super) fn limit(&self, key: &T) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.limiter.when(key))).unwrap_or_else(|_| {
            tracing::error!(
                queue = &*self.name,
                "rate limiter panicked in `when`; retrying after one second"
            );
            PANICKED_LIMITER_DELAY
        })
    }

    /// Resets the back-off of a key.
    pub(super) fn forget(&self, key: &T) {
        if catch_unwind(AssertUnwindSafe(|| self.limiter.forget(key))).is_err() {
            tracing::error!(
                queue = &*self.name,
                "rate limiter panicked in `forget`; the key keeps its back-off"
            );
        }
    }

    /// Returns the failures of a key since the last `forget`.
    pub(super) fn retries(&self, key: &T) -> u32 {
        catch_unwind(AssertUnwindSafe(|| self.limiter.retries(key))).unwrap_or_else(|_| {
            tracing::error!(
                queue = &*self.name,
                "rate limiter panicked in `retries`; assuming none"
            );
            0
        })
    }

    /// Counts an item that was dropped without a result.
    pub(super) fn count_undecided(&self) {
        self.core.lock().state.stats.undecided += 1;
    }

    #[inline]
    fn begin(&self) -> Transition<'_, T> {
        Transition {
            core: self.core.lock(),
            wakes: WakeOnDrop::default(),
        }
    }

    /// Makes due keys ready.
    fn promote(&self, state: &mut State<T>) {
        // Without delayed keys the clock is not read.
        if let Some(due) = state.next_due() {
            let now = self.tick();
            if due <= now {
                state.promote(now);
            }
        }
    }

    /// Starts measuring durations, even without metrics.
    #[cfg(feature = "inspect")]
    pub(super) fn measure(&self) {
        self.timed.store(true, Ordering::Relaxed);
    }

    /// Returns the time if durations are measured, and 0 otherwise.
    #[inline]
    fn measured(&self) -> Tick {
        if self.timed.load(Ordering::Relaxed) {
            self.tick()
        } else {
            0
        }
    }

    fn tick(&self) -> Tick {
        nanos(self.origin.elapsed())
    }

    /// Sets the timer to `until`, or disables it. Pending means that the task will be woken.
    fn arm(
        &self,
        mut timer: Pin<&mut Option<Sleep>>,
        until: Option<Tick>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(until) = until else {
            timer.set(None);
            return Poll::Pending;
        };
        let left = Duration::from_nanos(until.saturating_sub(self.tick())).min(LONGEST_SLEEP);
        timer.set(Some(sleep(left)));
        timer
            .as_pin_mut()
            .map_or(Poll::Pending, |sleep| sleep.poll(cx))
    }
}

impl<T: Key> Readable for Shared<T> {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn read(&self) -> Reading {
        self.inspect(|state, now| {
            let (unfinished, longest) = state
                .running_for(now)
                .fold((0u64, 0), |(sum, longest), one| {
                    (sum.saturating_add(one), longest.max(one))
                });
            Reading {
                stats: state.stats.clone(),
                depth: state.depth(),
                delayed: state.delayed(),
                unfinished,
                longest,
            }
        })
    }
}

impl<T: Key> Drop for Shared<T> {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.retire(Arc::clone(&self.name), self.core.lock().state.stats.clone());
        }
    }
}

/// How an item is finished.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Forget,
    PutBack {
        priority: i32,
    },
    RunAfter {
        delay: Duration,
        priority: i32,
        cause: Cause,
    },
}

/// The result of polling a waiting worker.
enum Step<T> {
    Taken(Taken<T>),
    Finished,
    /// No key is ready. The timekeeper also gets the next due time.
    Wait(Option<Tick>),
}

/// A worker in `get`. Dropping it passes on its wake-up, if there was one, and the timekeeper's
/// role.
struct Waiter<'a, T: Key> {
    shared: &'a Shared<T>,
    ticket: Option<u64>,
}

impl<T: Key> Waiter<'_, T> {
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Step<T> {
        // Declared before the lock, so dropped after it: dropping a waker may run any code.
        let _old: Option<Waker>;
        let mut core = self.shared.begin();
        _old = self
            .ticket
            .take()
            .and_then(|ticket| core.waiters.leave(ticket));
        self.shared.promote(&mut core.state);
        let now = self.shared.measured();
        if let Some(taken) = core.state.take(now) {
            Step::Taken(taken)
        } else if core.state.is_finished() {
            Step::Finished
        } else {
            let next_due = core.state.next_due();
            let (ticket, until) = core.waiters.join(cx.waker(), next_due);
            self.ticket = Some(ticket);
            Step::Wait(until)
        }
    }
}

impl<T: Key> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let left = self.shared.begin().waiters.leave(ticket);
        drop(left);
    }
}

/// A task in `drain`.
struct DrainWaiter<'a, T: Key> {
    shared: &'a Shared<T>,
    ticket: Option<u64>,
}

impl<T: Key> DrainWaiter<'_, T> {
    /// Stops waiting. Returns the waker, to be dropped outside the lock.
    fn leave(&mut self) -> Option<Waker> {
        let ticket = self.ticket.take()?;
        self.shared.core.lock().waiters.leave_drainers(ticket)
    }
}

impl<T: Key> Drop for DrainWaiter<'_, T> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

fn after(now: Tick, delay: Duration) -> Tick {
    now.saturating_add(nanos(delay))
}

fn nanos(duration: Duration) -> Tick {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
