//! The tasks that wait on a queue: workers in `get`, and callers of `drain`.
//!
//! One waiting worker is the *timekeeper*: it alone sleeps until the next due time, so that delays
//! need neither a separate task nor a timer per worker. When it leaves, the first of the others
//! takes over. If no worker waits, no timer is needed: the next `get` makes due keys ready.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use super::state::Tick;

/// The wakers to call once the lock is released. A single waker needs no allocation.
#[derive(Debug, Default)]
#[must_use = "tasks wait to be woken"]
pub(super) struct Wakes {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Waker) {
        match self.first {
            None => self.first = Some(waker),
            Some(_) => self.more.push(waker),
        }
    }

    /// Wakes all tasks. A waker runs code of a foreign executor: its panic must neither keep the
    /// others asleep nor lose the key of the caller.
    pub(super) fn wake(self) {
        for waker in self.first.into_iter().chain(self.more) {
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::error!("waker of a task waiting on a queue panicked; waking the others");
            }
        }
    }
}

/// The conditions that decide which tasks to wake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// The number of ready keys.
    pub(super) ready: usize,
    /// The next due time.
    pub(super) next_due: Option<Tick>,
    /// No further key will be returned.
    pub(super) finished: bool,
    /// No key is ready or being processed.
    pub(super) idle: bool,
}

/// The worker that sleeps until the next due time.
#[derive(Debug)]
struct Timekeeper {
    ticket: u64,
    waker: Waker,
    /// The due time it knows of.
    until: Option<Tick>,
}

/// The waiting tasks.
///
/// Two invariants hold after every transition ([`notify`](Self::notify) restores them): if a worker
/// waits, one is the timekeeper; and as long as workers sleep, at least as many have been woken as
/// keys are ready. Waking a single worker is not enough: if a woken `get` is never polled, the
/// remaining keys are stranded.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    timekeeper: Option<Timekeeper>,
    others: VecDeque<(u64, Waker)>,
    /// Workers that were woken for a key and have not been polled since.
    woken: usize,
    tickets: u64,
    /// Tasks that wait for the queue to become idle.
    drainers: Vec<(u64, Waker)>,
}

impl Waiters {
    /// Returns whether no task waits.
    pub(super) fn is_empty(&self) -> bool {
        self.timekeeper.is_none() && self.others.is_empty() && self.drainers.is_empty()
    }

    /// Adds a worker. Returns its ticket and, if it becomes the timekeeper, when to wake up.
    pub(super) fn join(&mut self, waker: &Waker, next_due: Option<Tick>) -> (u64, Option<Tick>) {
        self.tickets += 1;
        let ticket = self.tickets;
        if self.timekeeper.is_some() {
            self.others.push_back((ticket, waker.clone()));
            return (ticket, None);
        }
        self.timekeeper = Some(Timekeeper {
            ticket,
            waker: waker.clone(),
            until: next_due,
        });
        (ticket, next_due)
    }

    /// Removes a worker that leaves, or that is polled after it was woken. Returns the waker if it
    /// was not called, to be dropped outside the lock.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Waker> {
        if let Some(timekeeper) = self.timekeeper.take_if(|keeper| keeper.ticket == ticket) {
            return Some(timekeeper.waker);
        }
        if let Some(at) = self.others.iter().position(|&(other, _)| other == ticket) {
            return self.others.remove(at).map(|(_, waker)| waker);
        }
        self.woken -= 1;
        None
    }

    /// Adds a task that waits for the queue to become idle.
    pub(super) fn join_drainers(&mut self, waker: &Waker) -> u64 {
        self.tickets += 1;
        self.drainers.push((self.tickets, waker.clone()));
        self.tickets
    }

    /// Removes a task that waits for the queue to become idle. Returns the waker as
    /// [`leave`](Self::leave) does.
    pub(super) fn leave_drainers(&mut self, ticket: u64) -> Option<Waker> {
        let at = self
            .drainers
            .iter()
            .position(|&(other, _)| other == ticket)?;
        Some(self.drainers.swap_remove(at).1)
    }

    /// Returns the tasks to wake after a transition.
    pub(super) fn notify(&mut self, now: Snapshot) -> Wakes {
        let mut wakes = Wakes::default();
        while now.finished || now.ready > self.woken {
            // Wake the timekeeper last, so that no other worker has to take over.
            let Some(waker) = self.pop() else { break };
            self.woken += 1;
            wakes.push(waker);
        }
        if self.timekeeper.is_none()
            && let Some((ticket, waker)) = self.others.pop_front()
        {
            self.timekeeper = Some(Timekeeper {
                ticket,
                waker,
                until: None,
            });
        }
        if let (Some(timekeeper), Some(due)) = (&mut self.timekeeper, now.next_due)
            && timekeeper.until.is_none_or(|until| due < until)
        {
            wakes.push(timekeeper.waker.clone());
            timekeeper.until = Some(due);
        }
        if now.idle {
            self.drainers
                .drain(..)
                .for_each(|(_, waker)| wakes.push(waker));
        }
        wakes
    }

    fn pop(&mut self) -> Option<Waker> {
        match self.others.pop_front() {
            Some((_, waker)) => Some(waker),
            None => self.timekeeper.take().map(|keeper| keeper.waker),
        }
    }
}
