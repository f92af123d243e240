//! Whether informers do their work.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    factory::{Entry, InformerFactory},
    shared_informer::Runner,
    usage::Usage,
};

/// How long an informer may be without a watch before it is reported. Watches end all the time and
/// API servers are restarted; a cache that is this much out of date is something else.
const TOLERANCE: Duration = Duration::from_secs(30);

/// How one informer of a factory is.
pub(crate) struct Health {
    /// What it follows: `pods at cluster scope`.
    pub(crate) informer: String,
    pub(crate) state: State,
}

pub(crate) enum State {
    /// Its cache follows the server.
    Well,
    /// Its cache is empty or out of date, which it is working on.
    Behind(String),
    /// It was asked to stop.
    Stopped,
    /// It ended by itself and does not come back.
    Dead(String),
}

/// Why no informer of a factory can be well.
pub(crate) enum Idle {
    NotStarted,
    Stopped,
}

impl InformerFactory {
    /// How each informer is that is in use. One that died stays dead, whatever has taken its place.
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

impl Entry {
    fn state(&self, now: Instant) -> State {
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
            _ => State::Well,
        }
    }
}

/// An informer that ended by itself, after another has taken its place.
pub(super) struct Dead {
    runner: Arc<Runner>,
    usage: Weak<Usage>,
    stop: CancellationToken,
}

impl Dead {
    /// None if the informer lives, was asked to stop or is not used.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let dead = Self {
            runner: entry.informer.runner().clone(),
            usage: entry.usage.clone(),
            stop: entry.stop.clone()?,
        };
        (entry.informer.is_stopped() && dead.is_missed()).then_some(dead)
    }

    /// Whether somebody still relies on it and it was not asked to stop since.
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
    /// Why the informer ended.
    fn end(&self) -> String {
        match self.panic.get() {
            Some(panicked) => format!("its task {panicked}"),
            None => "its task ended".to_owned(),
        }
    }
}
