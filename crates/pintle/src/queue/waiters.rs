//! Who waits for a key: the workers in `get`, and those who wait for the end.
//!
//! One of the waiting workers is the *keeper*: it alone sleeps until the next due time, so that
//! delays need neither a task of their own nor a timer per worker. When it leaves, the first of the
//! others takes the role. If nobody waits, nobody needs to be told: whoever asks next makes ready
//! what has become due.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use super::state::Tick;

/// The wakers to call once the lock is released. Waking nobody, or one, costs no allocation.
#[derive(Debug, Default)]
#[must_use = "somebody waits for these"]
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

    /// Wakes them all. A waker is somebody's executor: its panic must keep neither the others asleep
    /// nor the key of whoever wakes them.
    pub(super) fn wake(self) {
        for waker in self.first.into_iter().chain(self.more) {
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::error!("the waker of somebody who waits for a queue panicked");
            }
        }
    }
}

/// What the line needs to know of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// Keys that can be taken.
    pub(super) ready: usize,
    /// When the next key becomes due.
    pub(super) next_due: Option<Tick>,
    /// No key will ever be handed out again.
    pub(super) finished: bool,
    /// Nothing ready, nothing in process.
    pub(super) idle: bool,
}

/// The worker that watches the clock for all.
#[derive(Debug)]
struct Keeper {
    ticket: u64,
    waker: Waker,
    /// What it sleeps until, as far as it was told.
    until: Option<Tick>,
}

/// The line of waiting workers.
///
/// Between any two moves (`settle` sees to it): while somebody is in line there is a keeper; and
/// there are never more ready keys than workers on their way to them while others sleep. One at a
/// time would not do: who was woken may not look for long, as a `get` that a loop keeps but does not
/// poll, and the other keys must not wait for him.
#[derive(Debug, Default)]
pub(super) struct Line {
    keeper: Option<Keeper>,
    rest: VecDeque<(u64, Waker)>,
    /// Workers that were woken for a key and have not looked yet.
    on_their_way: usize,
    tickets: u64,
    /// Those who wait for the queue to become idle.
    drainers: Vec<(u64, Waker)>,
}

impl Line {
    /// Nobody waits for anything.
    pub(super) fn is_empty(&self) -> bool {
        self.keeper.is_none() && self.rest.is_empty() && self.drainers.is_empty()
    }

    /// Joins the line. Whoever becomes keeper must sleep until `next_due`.
    pub(super) fn join(&mut self, waker: &Waker, next_due: Option<Tick>) -> (u64, Option<Tick>) {
        self.tickets += 1;
        let ticket = self.tickets;
        if self.keeper.is_some() {
            self.rest.push_back((ticket, waker.clone()));
            return (ticket, None);
        }
        self.keeper = Some(Keeper {
            ticket,
            waker: waker.clone(),
            until: next_due,
        });
        (ticket, next_due)
    }

    /// Leaves the line, or comes to look after having been woken. Gives the waker if it was not
    /// called, to be dropped without the lock.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Waker> {
        if let Some(keeper) = self.keeper.take_if(|keeper| keeper.ticket == ticket) {
            return Some(keeper.waker);
        }
        if let Some(at) = self.rest.iter().position(|&(other, _)| other == ticket) {
            return self.rest.remove(at).map(|(_, waker)| waker);
        }
        self.on_their_way -= 1;
        None
    }

    /// Waits for the queue to become idle.
    pub(super) fn join_drainers(&mut self, waker: &Waker) -> u64 {
        self.tickets += 1;
        self.drainers.push((self.tickets, waker.clone()));
        self.tickets
    }

    /// Waits no longer for the queue to become idle. Gives the waker, as [`leave`](Self::leave).
    pub(super) fn leave_drainers(&mut self, ticket: u64) -> Option<Waker> {
        let at = self
            .drainers
            .iter()
            .position(|&(other, _)| other == ticket)?;
        Some(self.drainers.swap_remove(at).1)
    }

    /// Restores what holds between moves; says whom to wake for it.
    pub(super) fn settle(&mut self, now: Situation) -> Wakes {
        let mut wakes = Wakes::default();
        while now.finished || now.ready > self.on_their_way {
            // The keeper last: the others then need no new one.
            let Some(waker) = self.pop() else { break };
            self.on_their_way += 1;
            wakes.push(waker);
        }
        if self.keeper.is_none()
            && let Some((ticket, waker)) = self.rest.pop_front()
        {
            self.keeper = Some(Keeper {
                ticket,
                waker,
                until: None,
            });
        }
        if let (Some(keeper), Some(due)) = (&mut self.keeper, now.next_due)
            && keeper.until.is_none_or(|until| due < until)
        {
            wakes.push(keeper.waker.clone());
            keeper.until = Some(due);
        }
        if now.idle {
            self.drainers
                .drain(..)
                .for_each(|(_, waker)| wakes.push(waker));
        }
        wakes
    }

    fn pop(&mut self) -> Option<Waker> {
        match self.rest.pop_front() {
            Some((_, waker)) => Some(waker),
            None => self.keeper.take().map(|keeper| keeper.waker),
        }
    }
}
