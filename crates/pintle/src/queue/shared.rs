//! The state behind its lock, and the hand-offs between those who add and those who take.

use std::{
    future::poll_fn,
    hash::BuildHasher,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use super::{
    Key,
    line::{Line, Situation, Wakes},
    metrics::{QueueMetrics, Readable, Reading},
    rate_limit::RateLimiter,
    state::{Merge, State, Taken, Tick, Verdict},
};
use crate::sync::{Mutex, MutexGuard, Sleep, sleep};

/// The longest single sleep: timers need not cope with more.
const LONGEST_SLEEP: Duration = Duration::from_hours(24);

/// The delay of a retry whose rate limiter panicked.
const LIMITER_BROKEN: Duration = Duration::from_secs(1);

/// What all handles and items of one queue share.
pub(super) struct Shared<T: Key> {
    pub(super) name: Arc<str>,
    core: Mutex<Core<T>>,
    limiter: Arc<dyn RateLimiter<T>>,
    hasher: DefaultHashBuilder,
    origin: Instant,
    /// Somebody looks at the durations: otherwise the clock is read only for delays.
    timed: bool,
    metrics: Option<QueueMetrics>,
}

/// What the lock guards.
struct Core<T> {
    state: State<T>,
    line: Line,
}

impl<T: Key> Core<T> {
    /// The end of every move that may concern somebody who waits.
    #[inline]
    fn settle(&mut self) -> Option<Wakes> {
        if self.line.is_empty() {
            None
        } else {
            Some(self.settle_line())
        }
    }

    fn settle_line(&mut self) -> Wakes {
        let situation = Situation {
            ready: self.state.ready(),
            next_due: self.state.next_due().map(|due| due.at),
            finished: self.state.is_finished(),
            idle: self.state.is_idle(),
        };
        self.line.settle(situation)
    }
}

/// The lock, for one move. However the move ends, also by a panic in a key's `Eq` or `Clone`, those
/// whom it concerns are told: no key stays ready while a worker sleeps.
struct Move<'a, T: Key> {
    // In this order: nobody is woken before the lock is free.
    core: MutexGuard<'a, Core<T>>,
    wakes: WhenDropped,
}

/// Wakes when it is dropped.
#[derive(Default)]
struct WhenDropped(Option<Wakes>);

impl<T: Key> Deref for Move<'_, T> {
    type Target = Core<T>;
    fn deref(&self) -> &Core<T> {
        &self.core
    }
}

impl<T: Key> DerefMut for Move<'_, T> {
    fn deref_mut(&mut self) -> &mut Core<T> {
        &mut self.core
    }
}

impl<T: Key> Drop for Move<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.wakes.0 = self.core.settle();
    }
}

impl Drop for WhenDropped {
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
                line: Line::default(),
            }),
            limiter,
            hasher: DefaultHashBuilder::default(),
            origin: Instant::now(),
            timed,
            metrics,
        }
    }

    pub(super) fn add(&self, key: T, priority: i32) {
        let hash = self.hasher.hash_one(&key);
        let now = if self.timed { self.tick() } else { 0 };
        // By hand, which is quicker than a `Move`: if the key's `Eq` panics, nothing has moved yet.
        let mut core = self.core.lock();
        let spare = core.state.add(hash, key, priority, now);
        let wakes = WhenDropped(core.settle());
        drop(core);
        drop(wakes);
        drop(spare);
    }

    pub(super) fn add_after(&self, key: T, priority: i32, delay: Duration, merge: Merge) {
        let hash = self.hasher.hash_one(&key);
        let now = self.tick();
        let at = after(now, delay);
        let spare = self
            .begin()
            .state
            .add_at(hash, key, priority, at, merge, now);
        drop(spare);
    }

    pub(super) fn cancel(&self, key: &T) -> bool {
        let hash = self.hasher.hash_one(key);
        let (cancelled, freed) = self.core.lock().state.cancel(hash, key);
        drop(freed);
        cancelled
    }

    /// Takes something if it can be done at once.
    fn try_take<R>(&self, take: &mut impl FnMut(&mut State<T>, Tick) -> Option<R>) -> Option<R> {
        let mut core = self.begin();
        self.promote(&mut core.state);
        let now = if self.timed { self.tick() } else { 0 };
        take(&mut core.state, now)
    }

    /// Waits until `take` takes something; `None` when the queue is finished.
    ///
    /// Cancel safe: what was taken is in the answer of the very poll that took it, and a worker that
    /// leaves passes on what it was woken for.
    pub(super) async fn take<R>(
        &self,
        mut take: impl FnMut(&mut State<T>, Tick) -> Option<R>,
    ) -> Option<R> {
        if let Some(taken) = self.try_take(&mut take) {
            return Some(taken);
        }
        let mut seat = Seat {
            shared: self,
            ticket: None,
        };
        let mut timer = pin!(None::<Sleep>);
        poll_fn(|cx| {
            loop {
                let until = match seat.step(cx, &mut take) {
                    Step::Taken(taken) => return Poll::Ready(Some(taken)),
                    Step::Finished => return Poll::Ready(None),
                    Step::Wait(until) => until,
                };
                // A timer that fires has something for us to look at; one that does not wakes us.
                if self.arm(timer.as_mut(), until, cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Hands a key back, as its worker says.
    pub(super) fn done(&self, slot: u32, verdict: Done) {
        drop(self.done_and(slot, verdict, |_, _| ()));
    }

    /// As [`done`](Self::done), and takes the next key if one is ready, all under one lock. Besides
    /// it gives what was freed, whose destructor may panic: drop it when the next key is safe.
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
        let needed = self.timed || !matches!(verdict, Done::Forget);
        let now = if needed { self.tick() } else { 0 };
        let verdict = match verdict {
            Done::Forget => Verdict::Done,
            Done::Back { priority } => Verdict::Back { priority },
            Done::Again { delay, priority } => Verdict::Again {
                at: after(now, delay),
                priority,
            },
        };
        let freed; // Before the lock, so dropped after it, also if `then` panics.
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

    /// Waits until nothing is ready and nothing in process. Cancel safe.
    pub(super) async fn idle(&self) {
        let mut seat = DrainSeat {
            shared: self,
            ticket: None,
        };
        poll_fn(|cx| {
            let _old = seat.leave();
            let mut core = self.core.lock();
            if core.state.is_idle() {
                return Poll::Ready(());
            }
            seat.ticket = Some(core.line.join_drainers(cx.waker()));
            Poll::Pending
        })
        .await;
    }

    /// Looks at the state, with everything due made ready.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut State<T>, Tick) -> R) -> R {
        let now = self.tick();
        let mut core = self.begin();
        core.state.promote(now);
        look(&mut core.state, now)
    }

    /// The limiter's delay for one more try. A limiter is user code: it runs outside the lock, and
    /// its panic, perhaps while another one unwinds, must not end the process.
    pub(super) fn limit(&self, key: &T) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.limiter.when(key))).unwrap_or_else(|_| {
            tracing::error!(queue = &*self.name, "the rate limiter panicked in `when`");
            LIMITER_BROKEN
        })
    }

    /// Ends the back-off of a key.
    pub(super) fn forget(&self, key: &T) {
        if catch_unwind(AssertUnwindSafe(|| self.limiter.forget(key))).is_err() {
            tracing::error!(queue = &*self.name, "the rate limiter panicked in `forget`");
        }
    }

    /// Failures since the last `forget`.
    pub(super) fn retries(&self, key: &T) -> u32 {
        catch_unwind(AssertUnwindSafe(|| self.limiter.retries(key))).unwrap_or_else(|_| {
            tracing::error!(
                queue = &*self.name,
                "the rate limiter panicked in `retries`"
            );
            0
        })
    }

    /// Counts an item that was dropped without a verdict.
    pub(super) fn count_undecided(&self) {
        self.core.lock().state.stats.undecided += 1;
    }

    /// A move that may concern somebody who waits begins so, all but [`add`](Self::add), and ends when
    /// what this gives is dropped.
    #[inline]
    fn begin(&self) -> Move<'_, T> {
        Move {
            core: self.core.lock(),
            wakes: WhenDropped::default(),
        }
    }

    fn promote(&self, state: &mut State<T>) {
        // Without delays the clock is not even read.
        if let Some(due) = state.next_due() {
            let now = self.tick();
            if due.at <= now {
                state.promote(now);
            }
        }
    }

    fn tick(&self) -> Tick {
        nanos(self.origin.elapsed())
    }

    /// Arms the timer for `until`, or disarms it. Pending: somebody will wake the task.
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
        self.look(|state, now| {
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

/// What an item says when it is handed back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Forget,
    Back { priority: i32 },
    Again { delay: Duration, priority: i32 },
}

/// What a waiting worker finds when it looks.
enum Step<R> {
    Taken(R),
    Finished,
    /// Not yet; the keeper also gets the next due time.
    Wait(Option<Tick>),
}

/// A worker's place in the line. Dropping it leaves the line and passes on the wake-up, if there was
/// one, and the keeper's role.
struct Seat<'a, T: Key> {
    shared: &'a Shared<T>,
    ticket: Option<u64>,
}

impl<T: Key> Seat<'_, T> {
    fn step<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut impl FnMut(&mut State<T>, Tick) -> Option<R>,
    ) -> Step<R> {
        let _old: Option<Waker>; // Before the lock, so dropped after it: who knows what goes with it.
        let mut core = self.shared.begin();
        _old = self
            .ticket
            .take()
            .and_then(|ticket| core.line.leave(ticket));
        self.shared.promote(&mut core.state);
        let now = if self.shared.timed {
            self.shared.tick()
        } else {
            0
        };
        if let Some(taken) = take(&mut core.state, now) {
            Step::Taken(taken)
        } else if core.state.is_finished() {
            Step::Finished
        } else {
            let next_due = core.state.next_due().map(|due| due.at);
            let (ticket, until) = core.line.join(cx.waker(), next_due);
            self.ticket = Some(ticket);
            Step::Wait(until)
        }
    }
}

impl<T: Key> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let left = self.shared.begin().line.leave(ticket);
        drop(left);
    }
}

/// The place of somebody who waits for the end.
struct DrainSeat<'a, T: Key> {
    shared: &'a Shared<T>,
    ticket: Option<u64>,
}

impl<T: Key> DrainSeat<'_, T> {
    /// The waker it waited with, to be dropped without the lock.
    fn leave(&mut self) -> Option<Waker> {
        let ticket = self.ticket.take()?;
        self.shared.core.lock().line.leave_drainers(ticket)
    }
}

impl<T: Key> Drop for DrainSeat<'_, T> {
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
