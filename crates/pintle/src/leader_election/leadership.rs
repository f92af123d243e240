//! Whether this replica leads: written by the elector, read by the gate and by programs.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

/// Reports whether this replica leads, and which replica does. Cheap to clone.
#[derive(Clone)]
pub struct Leadership {
    state: Arc<watch::Sender<State>>,
    lease: Arc<str>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// How many terms this process has begun.
    begun: u64,
    term: Option<Standing>,
    /// The holder that was last seen in the Lease.
    holder: Option<String>,
}

/// The state of this replica's current term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    number: u64,
    /// When the last successful renewal was sent.
    renewed: Instant,
    /// No write starts from this moment on.
    until: Instant,
}

impl State {
    /// Returns the term's number and until when this replica may write; `None` if it does not lead
    /// at `now`.
    ///
    /// The clock decides, not the elector, which may not have run for a while: a process that was
    /// paused finds its term over before it does anything else.
    pub(super) fn standing(&self, now: Instant) -> Option<(u64, Instant)> {
        let term = self.term.filter(|term| now < term.until)?;
        Some((term.number, term.until))
    }
}

impl Leadership {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            state: Arc::new(watch::Sender::new(State::default())),
            lease: format!("{namespace}/{name}").into(),
        }
    }

    /// Returns whether this replica leads at this moment, by its monotonic clock.
    pub fn is_leader(&self) -> bool {
        self.state.borrow().standing(Instant::now()).is_some()
    }

    /// Returns the identity that was last seen to hold the Lease, this replica's or another's.
    pub fn leader(&self) -> Option<String> {
        self.state.borrow().holder.clone()
    }

    /// Returns the time since this replica last renewed the Lease, `None` if it is not in a term.
    /// It exceeds the renew deadline if the elector is stuck, so a watchdog can check it.
    pub fn lease_age(&self) -> Option<Duration> {
        let term = self.state.borrow().term?;
        Some(term.renewed.elapsed())
    }

    /// Waits until the holder last seen in the Lease changes; returns the new one, if any.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. A change between two calls is missed; compare with [`leader`](Self::leader).
    pub async fn new_leader(&self) -> Option<String> {
        let mut changes = self.state.subscribe();
        let before = changes.borrow_and_update().holder.clone();
        let changed = changes.wait_for(|state| state.holder != before).await;
        changed.ok().and_then(|state| state.holder.clone())
    }

    /// Returns `namespace/name` of the Lease.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Begins a term in which no write starts after `until`; returns its number.
    pub(super) fn begin(&self, renewed: Instant, until: Instant) -> u64 {
        let mut number = 0;
        self.state.send_modify(|state| {
            state.begun += 1;
            number = state.begun;
            state.term = Some(Standing {
                number,
                renewed,
                until,
            });
        });
        number
    }

    pub(super) fn renew(&self, number: u64, renewed: Instant, until: Instant) {
        self.state.send_modify(|state| {
            if let Some(term) = state.term.as_mut().filter(|term| term.number == number) {
                term.renewed = renewed;
                term.until = until;
            }
        });
    }

    pub(super) fn end(&self, number: u64) {
        self.state.send_modify(|state| {
            state.term.take_if(|term| term.number == number);
        });
    }

    pub(super) fn observe(&self, holder: Option<&str>) {
        self.state.send_if_modified(|state| {
            let changed = state.holder.as_deref() != holder;
            if changed {
                state.holder = holder.map(str::to_owned);
            }
            changed
        });
    }

    /// Returns how long the term `number` may still write.
    pub(super) fn remaining(&self, number: u64) -> Duration {
        let now = Instant::now();
        let standing = self.state.borrow().standing(now);
        let current = standing.filter(|(current, _)| *current == number);
        current.map_or(Duration::ZERO, |(_, until)| until - now)
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("lease", &self.lease)
            .field("is_leader", &self.is_leader())
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}
