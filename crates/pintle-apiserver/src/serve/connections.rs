//! The connections of a listener, and which of them are evicted for new ones.
//!
//! ```text
//! admitted ─► handshaking ─► idle ⇄ busy (requests in flight) ─► closed
//!                  └───────────┴──► evicted
//! ```
//!
//! A request is in flight from the moment its credentials are verified until its response is sent.
//! A connection without a request in flight is quiet. Only quiet connections are evicted: first
//! those that have not presented valid credentials, then the others, longest quiet first. Clients
//! retry a request that meets a closed idle connection, so an eviction costs a well-behaved client
//! one more handshake, and no client without valid credentials can lock out others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ServeOptions;

/// The eviction order of quiet connections: unauthenticated ones first, then longest quiet.
type Rank = (bool, u64);

/// The minimum delay between checks for an idle connection.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    max: usize,
    max_handshakes: usize,
    /// Orders admissions and transitions.
    next: u64,
    slots: BTreeMap<u64, Slot>,
    quiet: BTreeMap<Rank, u64>,
    handshaking: BTreeSet<u64>,
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    /// A request presented valid credentials.
    authenticated: bool,
    evicted: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Handshaking {
        rank: Rank,
    },
    Idle {
        rank: Rank,
        since: Instant,
        first: bool,
    },
    Busy {
        requests: usize,
    },
}

impl State {
    fn rank(&mut self, authenticated: bool) -> Rank {
        self.next += 1;
        (authenticated, self.next)
    }

    fn admit(&mut self) -> Option<(u64, CancellationToken)> {
        if self.handshaking.len() >= self.max_handshakes
            && let Some(oldest) = self.handshaking.first().copied()
        {
            self.evict(oldest);
        }
        if self.slots.len() >= self.max && !self.make_room() {
            return None;
        }
        let rank = self.rank(false);
        let id = rank.1;
        let evicted = CancellationToken::new();
        let slot = Slot {
            phase: Phase::Handshaking { rank },
            authenticated: false,
            evicted: evicted.clone(),
        };
        self.slots.insert(id, slot);
        self.quiet.insert(rank, id);
        self.handshaking.insert(id);
        Some((id, evicted))
    }

    /// Evicts the first quiet connection in eviction order. Returns false if there is none.
    fn make_room(&mut self) -> bool {
        let Some((_, id)) = self.quiet.first_key_value() else {
            return false;
        };
        let id = *id;
        self.evict(id);
        true
    }

    fn evict(&mut self, id: u64) {
        if let Some(slot) = self.leave(id) {
            slot.evicted.cancel();
        }
    }

    fn leave(&mut self, id: u64) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        match slot.phase {
            Phase::Handshaking { rank } | Phase::Idle { rank, .. } => {
                self.quiet.remove(&rank);
            }
            Phase::Busy { .. } => {}
        }
        self.handshaking.remove(&id);
        Some(slot)
    }

    fn become_idle(&mut self, id: u64, now: Instant, first: bool) {
        let Some(authenticated) = self.slots.get(&id).map(|slot| slot.authenticated) else {
            return;
        };
        let rank = self.rank(authenticated);
        if let Some(slot) = self.slots.get_mut(&id) {
            if let Phase::Handshaking { rank } = slot.phase {
                self.quiet.remove(&rank);
                self.handshaking.remove(&id);
            }
            slot.phase = Phase::Idle {
                rank,
                since: now,
                first,
            };
            self.quiet.insert(rank, id);
        }
    }

    fn begin(&mut self, id: u64) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let requests = match slot.phase {
            Phase::Busy { requests } => requests + 1,
            Phase::Handshaking { rank } | Phase::Idle { rank, .. } => {
                self.quiet.remove(&rank);
                self.handshaking.remove(&id);
                1
            }
        };
        slot.phase = Phase::Busy { requests };
    }

    fn end(&mut self, id: u64, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        match &mut slot.phase {
            Phase::Busy { requests } if *requests > 1 => *requests -= 1,
            Phase::Busy { .. } => self.become_idle(id, now, false),
            Phase::Handshaking { .. } | Phase::Idle { .. } => {}
        }
    }
}

impl Connections {
    pub(super) fn new(options: &ServeOptions) -> Self {
        Self(Arc::new(Mutex::new(State {
            max: options.max_connections,
            max_handshakes: options.max_handshakes,
            next: 0,
            slots: BTreeMap::new(),
            quiet: BTreeMap::new(),
            handshaking: BTreeSet::new(),
        })))
    }

    /// Admits a connection. Returns `None` at the limit if all connections are busy.
    pub(super) fn admit(&self) -> Option<Ticket> {
        let (id, evicted) = self.0.lock().admit()?;
        Some(Ticket(Seat {
            state: Arc::clone(&self.0),
            id,
            evicted,
        }))
    }

    /// Evicts a quiet connection, if there is one.
    pub(super) fn make_room(&self) {
        self.0.lock().make_room();
    }
}

/// Counts a connection for as long as its socket is open.
#[derive(Debug)]
pub(super) struct Ticket(Seat);

impl Ticket {
    pub(super) fn seat(&self) -> Seat {
        self.0.clone()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.state.lock().leave(self.0.id);
    }
}

/// A handle to one connection.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    state: Arc<Mutex<State>>,
    id: u64,
    evicted: CancellationToken,
}

impl Seat {
    /// Records that the TLS handshake is complete.
    pub(super) fn established(&self) {
        self.state.lock().become_idle(self.id, Instant::now(), true);
    }

    /// Records a request with valid credentials, in flight until the guard is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.state.lock().begin(self.id);
        InFlight(Arc::new(Request(self.clone())))
    }

    /// Records that the client has presented valid credentials.
    pub(super) fn authenticated(&self) {
        if let Some(slot) = self.state.lock().slots.get_mut(&self.id) {
            slot.authenticated = true;
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        let slot = state.slots.get(&self.id);
        slot.is_some_and(|slot| matches!(slot.phase, Phase::Busy { .. }))
    }

    /// Resolves when the connection is evicted.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Resolves when there has been no request for too long.
    ///
    /// Nothing wakes this future when a request begins or ends: it sleeps until the earliest time
    /// at which the connection could be overdue, then checks again.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(super) async fn overdue(&self, options: &ServeOptions) {
        loop {
            let now = Instant::now();
            let left = match self.phase() {
                Some(Phase::Idle { since, first, .. }) => {
                    let allowed = if first {
                        options.header_timeout
                    } else {
                        options.idle_timeout
                    };
                    match allowed.checked_sub(now.duration_since(since)) {
                        None | Some(Duration::ZERO) => return,
                        Some(left) => left,
                    }
                }
                _ => options.idle_timeout,
            };
            let left = left.min(options.idle_timeout);
            tokio::time::sleep(left.max(MIN_CHECK_INTERVAL)).await;
        }
    }

    fn phase(&self) -> Option<Phase> {
        let state = self.state.lock();
        state.slots.get(&self.id).map(|slot| slot.phase)
    }
}

/// Marks a request as in flight. Anything that outlives the response body, such as an upgraded
/// connection, holds a clone.
#[derive(Debug, Clone)]
pub(crate) struct InFlight(#[expect(dead_code, reason = "held for its drop")] Arc<Request>);

#[derive(Debug)]
struct Request(Seat);

impl Drop for Request {
    fn drop(&mut self) {
        let seat = &self.0;
        seat.state.lock().end(seat.id, Instant::now());
    }
}

#[cfg(test)]
mod tests;
