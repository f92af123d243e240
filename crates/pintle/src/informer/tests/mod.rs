//! Scenarios on an in-memory server under virtual time, with handlers that record their events.

mod basics;
mod factory;
mod handlers;
mod interleavings;
mod properties;
mod relists;
mod resync;
mod slow;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Event, Registration, SharedInformer};
use crate::testing::{Server, Thing};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// A running informer of an in-memory server.
pub(super) struct Running {
    pub(super) informer: SharedInformer<Thing>,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
}

impl Running {
    /// Stops the informer and waits for it.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

pub(super) fn run(informer: SharedInformer<Thing>) -> Running {
    let stop = CancellationToken::new();
    let (running, token) = (informer.clone(), stop.clone());
    let task = tokio::spawn(async move { running.run(&token).await });
    Running {
        informer,
        stop,
        task,
    }
}

/// Runs an informer of `server` and waits until it has synced.
pub(super) async fn synced(server: &Server) -> Running {
    let running = run(SharedInformer::new(server.clone()));
    assert!(running.informer.synced().await);
    running
}

/// Lets one second of virtual time pass.
pub(super) async fn settle() {
    tokio::time::sleep(SECOND).await;
}

/// Lets enough time pass for a reflector to retry.
pub(super) async fn recover() {
    tokio::time::sleep(Duration::from_secs(90)).await;
}

/// Applies the entries in the log, as a running informer does.
pub(super) async fn apply_all(informer: &SharedInformer<Thing>) {
    let processor = &informer.processor;
    while !processor.fifo().is_empty() {
        let applied = processor
            .fifo()
            .pop(|deltas| processor.handle_deltas(deltas, None));
        applied.await.unwrap();
    }
}

/// The events that a handler received, one line each.
#[derive(Clone, Default)]
pub(super) struct EventLog {
    lines: Arc<Mutex<Vec<String>>>,
}

impl EventLog {
    pub(super) fn of(informer: &SharedInformer<Thing>) -> (Self, Registration) {
        let events = Self::default();
        let registration = informer.on_event(events.writer());
        (events, registration)
    }

    pub(super) fn writer(&self) -> impl FnMut(Event<Thing>) + Send + 'static {
        let lines = self.lines.clone();
        move |event| lines.lock().push(line(&event))
    }

    /// Returns the events since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }
}

/// Abbreviates an event: `+ n/a 2`, `= n/a 2→3`, `- n/a 4`; `?` marks a deletion whose final state
/// was missed, `*` an initial addition.
pub(super) fn line(event: &Event<Thing>) -> String {
    match event {
        Event::Added { object, initial } => {
            let initial = if *initial { "*" } else { "" };
            format!("+{initial} {} {}", object.key(), object.resource_version())
        }
        Event::Updated { old, new } => {
            format!(
                "= {} {}→{}",
                new.key(),
                old.resource_version(),
                new.resource_version()
            )
        }
        Event::Deleted(deleted) => {
            let last = deleted.last.resource_version();
            let missed = if deleted.exact { "" } else { "?" };
            format!("-{missed} {} {last}", deleted.key)
        }
    }
}
