//! Whether informers do their work.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    factory::{Entry, InformerFactory},
    shared::Runner,
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
    /// How each informer is that is in use.
    pub(crate) fn health(&self) -> Result<Vec<Health>, Idle> {
        let state = self.shared.state.lock();
        if !state.can_run() {
            let idle = state.is_new().then_some(Idle::NotStarted);
            return Err(idle.unwrap_or(Idle::Stopped));
        }
        let now = Instant::now();
        let entries = state.entries.values();
        let used = entries.filter(|entry| entry.usage.strong_count() > 0);
        Ok(used
            .map(|entry| Health {
                informer: entry.informer.runner().describe.clone(),
                state: entry.state(now),
            })
            .collect())
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

impl Runner {
    /// Why the informer ended.
    fn end(&self) -> String {
        match self.panic.get() {
            Some(panicked) => format!("its task {panicked}"),
            None => "its task ended".to_owned(),
        }
    }
}
