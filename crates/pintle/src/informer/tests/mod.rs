//! Scenarios: a server in memory, virtual time, handlers that write down what they are told.

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

/// A running informer of a server in memory.
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

/// An informer of `server` that runs and has synced.
pub(super) async fn synced(server: &Server) -> Running {
    let running = run(SharedInformer::new(server.clone()));
    assert!(running.informer.synced().await);
    running
}

/// Lets everything happen that is due within a second of virtual time.
pub(super) async fn settle() {
    tokio::time::sleep(SECOND).await;
}

/// Lets a reflector that waits to try again do so.
pub(super) async fn recover() {
    tokio::time::sleep(Duration::from_secs(90)).await;
}

/// What a handler was told, one line each.
#[derive(Clone, Default)]
pub(super) struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    pub(super) fn of(informer: &SharedInformer<Thing>) -> (Self, Registration) {
        let diary = Self::default();
        let registration = informer.on_event(diary.writer());
        (diary, registration)
    }

    pub(super) fn writer(&self) -> impl FnMut(Event<Thing>) + Send + 'static {
        let lines = self.lines.clone();
        move |event| lines.lock().push(line(&event))
    }

    /// What was told since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }
}

/// An event in short: `+ n/a 2`, `= n/a 2→3`, `- n/a 4`; `?` where the final state was missed, `*`
/// on what was there before.
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
            let last = deleted
                .last
                .as_ref()
                .map_or("", |last| last.resource_version());
            let missed = if deleted.exact { "" } else { "?" };
            format!("-{missed} {} {last}", deleted.key)
        }
    }
}
