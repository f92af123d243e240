//! Which informers have not synced, have fallen behind, or have died.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    factory::InformerFactory,
    registry::Entry,
    shared_informer::{Runner, Usage},
};
use crate::{clock, reflector::Status};

/// How long an informer may be without a watch before it is reported. Watches end all the time and
/// API servers restart, so shorter gaps are normal.
const TOLERANCE: Duration = Duration::from_secs(30);

/// How often a wait for watches checks them.
const WATCH_POLL: Duration = Duration::from_millis(50);

/// The error of [`InformerFactory::wait_for_sync`]: informers that have not synced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NotSynced {
    /// The informers, each with its status.
    pub informers: Vec<Unsynced>,
}

/// An informer that has not synced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unsynced {
    /// The watched objects: `pods at cluster scope`.
    pub informer: String,
    /// Its current phase and last failure.
    pub status: Status,
}

impl std::error::Error for NotSynced {}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not synced: ")?;
        for (number, Unsynced { informer, status }) in self.informers.iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            write!(f, "{separator}{informer} ({status})")?;
        }
        Ok(())
    }
}

/// The health of one informer of a factory.
pub(crate) struct Health {
    /// The followed objects: `pods at cluster scope`.
    pub(crate) informer: String,
    pub(crate) state: State,
}

pub(crate) enum State {
    /// The cache follows the server.
    Healthy,
    /// The cache is empty or out of date, and the informer is retrying.
    Behind(String),
    /// The informer was asked to stop.
    Stopped,
    /// The informer ended on its own and cannot recover.
    Dead(String),
}

/// Why no informer of a factory runs.
pub(crate) enum Idle {
    NotStarted,
    Stopped,
}

impl InformerFactory {
    /// Returns the started informers that have not synced, with their status; `None` if all have.
    pub fn not_synced(&self) -> Option<NotSynced> {
        let state = self.shared.state.lock();
        let running = state.entries.values().filter(|entry| entry.stop.is_some());
        let informers: Vec<Unsynced> = running
            .filter(|entry| entry.usage.strong_count() > 0 && !entry.informer.is_filled())
            .map(|entry| {
                let runner = entry.informer.runner();
                let status = runner.status.borrow().clone();
                Unsynced {
                    informer: status.target.to_string(),
                    status,
                }
            })
            .collect();
        (!informers.is_empty()).then_some(NotSynced { informers })
    }

    /// Waits until every synced informer in use has an open watch, but no longer than `limit`.
    /// Returns the informers without one: their caches may be far out of date.
    pub(crate) async fn wait_for_watches(&self, limit: Duration) -> Vec<String> {
        wait_for_watches(limit, || self.without_watch()).await
    }

    fn without_watch(&self) -> Vec<String> {
        let state = self.shared.state.lock();
        let running = state.entries.values().filter(|entry| entry.stop.is_some());
        let used = running.filter(|entry| entry.usage.strong_count() > 0);
        let synced = used.filter(|entry| entry.informer.has_synced());
        let runners = synced.map(|entry| entry.informer.runner());
        let stale = runners.filter(|runner| !runner.status.borrow().is_following());
        stale.map(|runner| runner.describe()).collect()
    }

    /// Returns the health of each informer in use. A dead informer is reported even after another
    /// has replaced it.
    pub(crate) fn health(&self) -> Result<Vec<Health>, Idle> {
        let mut state = self.shared.state.lock();
        if !state.can_run() {
            let idle = state.is_new().then_some(Idle::NotStarted);
            return Err(idle.unwrap_or(Idle::Stopped));
        }
        let now = Instant::now();
        state.dead.retain(|_, dead| dead.is_missed());
        let dead = state.dead.values().map(Dead::health);
        let used = state.entries.iter().filter(|(identity, entry)| {
            entry.usage.strong_count() > 0 && !state.dead.contains_key(identity)
        });
        let used = used.map(|(_, entry)| Health {
            informer: entry.informer.runner().describe(),
            state: entry.state(now),
        });
        Ok(dead.chain(used).collect())
    }
}

/// Waits until `without_watch` returns no informer, but no longer than `limit`. Returns its last
/// result.
pub(crate) async fn wait_for_watches(
    limit: Duration,
    without_watch: impl Fn() -> Vec<String>,
) -> Vec<String> {
    let deadline = clock::after(Instant::now(), limit);
    loop {
        let stale = without_watch();
        if stale.is_empty() || Instant::now() >= deadline {
            return stale;
        }
        sleep(WATCH_POLL).await;
    }
}

impl Entry {
    pub(super) fn state(&self, now: Instant) -> State {
        if self.is_stopping() {
            return State::Stopped;
        }
        let runner = self.informer.runner();
        if self.informer.is_stopped() {
            return State::Dead(runner.end());
        }
        let status = runner.status.borrow().clone();
        if !self.informer.has_synced() {
            return State::Behind(status.to_string());
        }
        match status.behind_for(now) {
            Some(time) if time >= TOLERANCE => {
                State::Behind(format!("no watch for {} s; {status}", time.as_secs()))
            }
            _ => State::Healthy,
        }
    }
}

/// An informer that ended on its own and has been replaced.
pub(super) struct Dead {
    runner: Arc<Runner>,
    usage: Weak<Usage>,
    stop: CancellationToken,
}

impl Dead {
    /// Returns `None` if the informer is alive, was asked to stop or is not in use.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let dead = Self {
            runner: entry.informer.runner().clone(),
            usage: entry.usage.clone(),
            stop: entry.stop.clone()?,
        };
        (entry.informer.is_stopped() && dead.is_missed()).then_some(dead)
    }

    /// Returns whether the informer is still in use and was not asked to stop since.
    pub(super) fn is_missed(&self) -> bool {
        self.usage.strong_count() > 0 && !self.stop.is_cancelled()
    }

    fn health(&self) -> Health {
        Health {
            informer: self.runner.describe(),
            state: State::Dead(self.runner.end()),
        }
    }
}

impl Runner {
    /// Describes why the informer ended.
    fn end(&self) -> String {
        match self.panic.get() {
            Some(panicked) => format!("its task {panicked}"),
            None => "its task ended".to_owned(),
        }
    }
}
