//! Faults of watches and of the server: delays, disconnects, restarts, stale reads.

use std::time::Duration;

use tokio::time::Instant;

use super::{Hub, record::Away};
use crate::gateway::request::ResourceName;

impl Hub {
    /// Holds the events of a resource back.
    pub(crate) fn hold(&self, resource: &ResourceName, by: Duration) {
        let mut record = self.record.lock();
        record.holds.insert(resource.clone(), Instant::now() + by);
        record.busy_for(by + Duration::from_secs(1));
    }

    /// Returns the time until which events of a resource are held back.
    pub(crate) fn held_until(&self, resource: &ResourceName) -> Option<Instant> {
        let record = self.record.lock();
        let until = *record.holds.get(resource)?;
        (until > Instant::now()).then_some(until)
    }

    /// Disconnects the feeds of a resource until the next step of a paced story, or for four
    /// seconds if there is none.
    pub(crate) fn disconnect(&self, resource: &ResourceName) {
        let mut record = self.record.lock();
        let more = record.next_step < self.steps.len();
        let paced = !self.rapid && more;
        let stay = Duration::from_secs(if paced { 120 } else { 4 });
        let away = Away {
            until: Instant::now() + stay,
            after_step: paced.then_some(record.next_step),
        };
        record.away.insert(resource.clone(), away);
        record.expired.insert(resource.clone());
        record.mark(format!("watch of {resource} is down (fault)"));
        if !paced {
            record.busy_for(stay + Duration::from_secs(1));
        }
    }

    /// Returns whether a feed stays disconnected until the next step.
    pub(crate) fn is_waiting_for_step(&self) -> bool {
        let record = self.record.lock();
        record.away.values().any(|away| away.after_step.is_some())
    }

    /// Reconnects feeds: those that waited for this step, or all of them.
    pub(crate) fn lift(&self, all: bool) {
        let mut record = self.record.lock();
        if record.away.is_empty() {
            return;
        }
        let next = record.next_step;
        let soon = Instant::now() + Duration::from_secs(2);
        for away in record.away.values_mut() {
            if all || away.after_step.is_some_and(|step| next > step) {
                away.until = away.until.min(soon);
                away.after_step = None;
            }
        }
        record.busy_for(Duration::from_secs(4));
        drop(record);
        self.back.notify_waiters();
    }

    /// Waits until the feed of a resource may reconnect.
    pub(crate) async fn connected(&self, resource: &ResourceName) {
        loop {
            let notified = self.back.notified();
            let until = self.record.lock().away.get(resource).map(|away| away.until);
            let Some(until) = until.filter(|until| *until > Instant::now()) else {
                self.record.lock().away.remove(resource);
                return;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => {}
                () = notified => {}
            }
        }
    }

    /// Returns whether the next resumed watch of this resource has expired, and clears that.
    pub(crate) fn take_expired(&self, resource: &ResourceName) -> bool {
        self.record.lock().expired.remove(resource)
    }

    /// Stops the API server for ten seconds and drops its watch history.
    pub(crate) fn restart_server(&self) {
        {
            let mut record = self.record.lock();
            record.mark("API server restarts (fault)");
            record.down_until = Some(Instant::now() + Duration::from_secs(10));
            record.busy_for(Duration::from_secs(12));
        }
        self.server.compact();
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn is_down(&self) -> bool {
        let until = self.record.lock().down_until;
        until.is_some_and(|until| until > Instant::now())
    }

    /// Serves lists that accept any version from the state at `revision`, for ten seconds.
    pub(crate) fn travel(&self, revision: u64) {
        let mut record = self.record.lock();
        record.past = Some((revision, Instant::now() + Duration::from_secs(10)));
        record.busy_for(Duration::from_secs(14));
    }

    pub(crate) fn past(&self) -> Option<(u64, Instant)> {
        let past = self.record.lock().past;
        past.filter(|(_, until)| *until > Instant::now())
    }

    pub(crate) fn newest(&self) -> u64 {
        self.server.resource_version().parse().unwrap_or_default()
    }
}
