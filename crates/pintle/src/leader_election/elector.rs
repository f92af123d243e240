//! Candidates and terms: when to acquire, renew and release.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Api;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

use super::{
    LeaderElection, Leadership,
    lock::{Failure, Lock, Shared},
    metrics::ElectionMetrics,
};
use crate::clock;

/// A candidate for a Lease. Built by [`LeaderElection::build`].
#[derive(Debug)]
pub struct Elector {
    shared: Arc<Shared>,
    /// Held by the renewal of the current term, so that an elector is in one term at a time.
    lock: Arc<Mutex<Lock>>,
}

impl Elector {
    pub(super) fn new(settings: LeaderElection) -> Self {
        let identity = settings.identity.clone();
        let leadership = Leadership::new(&settings.namespace, &settings.name);
        let metrics = settings.metrics.set::<ElectionMetrics>();
        let shared = Arc::new(Shared {
            identity: identity.unwrap_or_else(|| settings.default_identity()),
            api: Api::namespaced(settings.client.clone(), &settings.namespace),
            counters: metrics.of(&settings.name, &leadership),
            leadership,
            settings,
        });
        let lock = Lock::new(&shared);
        Self {
            shared,
            lock: Arc::new(Mutex::new(lock)),
        }
    }

    /// Returns the name under which this replica holds the Lease.
    pub fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// Returns a handle that reports whether this replica leads, and gates clients.
    pub fn leadership(&self) -> &Leadership {
        &self.shared.leadership
    }

    /// Waits until this replica is elected; returns `None` once `shutdown` is cancelled.
    ///
    /// Errors of the API server are logged and retried. If an earlier [`Term`] of this elector is
    /// still current, waits for its end first.
    ///
    /// # Cancel safety
    ///
    /// A Lease that was acquired at the moment of cancellation is neither renewed nor released; it
    /// expires. Cancel `shutdown` instead: it releases the Lease.
    pub async fn acquire(&mut self, shutdown: &CancellationToken) -> Option<Term> {
        let mut lock = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            lock = Arc::clone(&self.lock).lock_owned() => lock,
        };
        info!(lease = self.shared.leadership.lease(), identity = %self.shared.identity, "waiting to lead");
        let won = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            sent = lock.win() => Some(sent),
        };
        let Some(sent) = won else {
            // The server may have executed a claim that was cancelled in flight.
            if lock.claiming {
                lock.release_quietly().await;
            }
            return None;
        };
        Some(Term::begin(lock, sent, shutdown))
    }
}

/// The time during which this replica leads. Its Lease is renewed in the background.
///
/// Dropping a term resigns from it in the background; [`resign`](Self::resign) also waits until the
/// Lease is released.
#[derive(Debug)]
#[must_use = "dropping a term resigns from it"]
pub struct Term {
    leadership: Leadership,
    number: u64,
    transitions: i32,
    ended: CancellationToken,
    resign: DropGuard,
    renewal: JoinHandle<()>,
    abandoned: Arc<AtomicBool>,
}

impl Term {
    fn begin(lock: OwnedMutexGuard<Lock>, sent: Instant, shutdown: &CancellationToken) -> Self {
        let shared = Arc::clone(&lock.shared);
        let until = shared.until(sent);
        let number = shared.leadership.begin(sent, until);
        shared.counters.leads.set(1);
        info!(lease = shared.leadership.lease(), identity = %shared.identity, "acquired the lease; leading");
        let (ended, resign) = (shutdown.child_token(), CancellationToken::new());
        let renewal = Renewal {
            transitions: lock.transitions(),
            lock,
            number,
            ended: ended.clone(),
            abandoned: Arc::default(),
        };
        Self {
            leadership: shared.leadership.clone(),
            number,
            transitions: renewal.transitions,
            ended,
            abandoned: Arc::clone(&renewal.abandoned),
            resign: resign.clone().drop_guard(),
            renewal: tokio::spawn(renewal.run(sent, resign)),
        }
    }

    /// Returns a token that is cancelled when this replica must stop leading: because the term is
    /// lost, or because the `shutdown` given to [`acquire`](Elector::acquire) was cancelled.
    ///
    /// In the latter case the term continues until it is resigned or dropped, so that work in
    /// progress can finish; [`is_current`](Self::is_current) is then still true.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Returns whether this replica may write at this moment, by its monotonic clock.
    pub fn is_current(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns how long this replica may still write if the Lease is not renewed again.
    pub fn remaining(&self) -> Duration {
        self.leadership.remaining(self.number)
    }

    /// Returns the Lease's `leaseTransitions` in this term, which can serve as a fencing token: a
    /// system that remembers the greatest number it has seen can reject a former leader.
    ///
    /// The number grows whenever a replica acquires the Lease from another one, or after it was
    /// released. A replica that loses its term and acquires the Lease again before any other
    /// replica does keeps its number. If the Lease is deleted, the numbers start over.
    pub fn transitions(&self) -> i32 {
        self.transitions
    }

    /// Ends the term and releases the Lease, so that another replica can take over immediately.
    ///
    /// Call it when the term's work has stopped: from now on writes of gated clients fail. Waits at
    /// most one renew deadline for the API server. A term that was lost is not released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the Lease is released in the background.
    pub async fn resign(self) {
        drop(self.resign);
        // The task runs no user code, so it cannot panic.
        let _ = self.renewal.await;
    }

    /// Ends the term without releasing the Lease, which then expires.
    ///
    /// For a term whose work could not be stopped in time: requests in flight have the rest of the
    /// lease duration to arrive before another replica starts.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the term has ended, and the rest happens in the background.
    pub async fn abandon(self) {
        self.abandoned.store(true, Ordering::Relaxed);
        drop(self.resign);
        let _ = self.renewal.await;
    }
}

/// The background task of a term.
struct Renewal {
    lock: OwnedMutexGuard<Lock>,
    number: u64,
    transitions: i32,
    ended: CancellationToken,
    /// Whether the Lease is to expire instead of being released.
    abandoned: Arc<AtomicBool>,
}

impl Renewal {
    async fn run(mut self, sent: Instant, resign: CancellationToken) {
        let lost = tokio::select! {
            biased;
            () = resign.cancelled() => None,
            why = self.renew_until_lost(sent) => Some(why),
        };
        let Shared {
            leadership,
            counters,
            identity,
            ..
        } = &*Arc::clone(&self.lock.shared);
        // Writes stop before the Lease is free.
        leadership.end(self.number);
        self.ended.cancel();
        counters.leads.set(0);
        let lease = leadership.lease();
        if let Some(why) = lost {
            counters.lost.inc();
            self.lock.claiming = false;
            // Not released: requests of this term may still be on the wire, and the rest of the
            // lease duration is the time they have to arrive.
            warn!(lease, %identity, %why, "lost the lease; no longer leading");
        } else if self.abandoned.load(Ordering::Relaxed) {
            self.lock.claiming = false;
            info!(lease, %identity, "ended the term; leaving the lease to expire");
        } else {
            info!(lease, %identity, "resigned; releasing the lease");
            self.lock.release_quietly().await;
        }
    }

    /// Renews the Lease until the term is lost; returns the reason.
    async fn renew_until_lost(&mut self, mut sent: Instant) -> Lost {
        let shared = Arc::clone(&self.lock.shared);
        let retry = shared.settings.retry_period;
        loop {
            let deadline = shared.until(sent);
            let mut next = clock::after(Instant::now(), retry);
            let mut last_error = None;
            sent = loop {
                sleep_until(next.min(deadline)).await;
                if Instant::now() >= deadline {
                    return Lost::Deadline(last_error);
                }
                match timeout_at(deadline, self.lock.renew()).await {
                    Ok(Ok(Some(sent))) => break sent,
                    Ok(Ok(None)) => return Lost::Taken(shared.leadership.leader()),
                    Ok(Err(error)) => {
                        debug!(lease = shared.leadership.lease(), %error, "renewal failed; retrying");
                        last_error = Some(error);
                    }
                    Err(_) => return Lost::Deadline(last_error),
                }
                next = clock::after(Instant::now(), retry);
            };
            let until = shared.until(sent);
            shared.leadership.renew(self.number, sent, until);
        }
    }
}

/// Why a term ended without being resigned.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("not renewed within the renew deadline{}", because(.0.as_ref()))]
    Deadline(Option<Failure>),
    #[error("held by {}", .0.as_deref().unwrap_or("no replica"))]
    Taken(Option<String>),
}

fn because(error: Option<&Failure>) -> String {
    error.map_or_else(String::new, |error| format!(": {error}"))
}
