//! The rules of the election as pure functions of a Lease's `spec` and the local clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

use crate::clock;

/// The last `spec` this replica saw, and when it saw it change.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    spec: LeaseSpec,
    changed: Instant,
}

impl Observed {
    pub(super) fn new(spec: LeaseSpec, now: Instant) -> Self {
        Self { spec, changed: now }
    }

    /// Records what was read at `now`. Only a change restarts the wait of a candidate.
    pub(super) fn update(&mut self, spec: LeaseSpec, now: Instant) {
        if self.spec != spec {
            *self = Self::new(spec, now);
        }
    }

    pub(super) fn holder(&self) -> Option<&str> {
        holder(&self.spec)
    }

    /// Returns until when another replica than `identity` holds the Lease, `None` if none does.
    ///
    /// The time at which this replica saw the last change counts, and never a timestamp in the
    /// Lease: that is another machine's clock.
    pub(super) fn held_until(&self, identity: &str, now: Instant) -> Option<Instant> {
        let holder = self.holder()?;
        let until = clock::after(self.changed, duration(&self.spec));
        (holder != identity && now < until).then_some(until)
    }
}

pub(super) fn holder(spec: &LeaseSpec) -> Option<&str> {
    let holder = spec.holder_identity.as_deref();
    holder.filter(|holder| !holder.is_empty())
}

fn duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Returns how often the Lease had changed hands: a number that grows with every new holder.
pub(super) fn transitions(spec: &LeaseSpec) -> i32 {
    spec.lease_transitions.unwrap_or(0)
}

/// Returns the `spec` with which `identity` creates, acquires or renews a Lease. Fields of other
/// writers are retained.
pub(super) fn claimed(
    before: Option<LeaseSpec>,
    identity: &str,
    lease: Duration,
    now: Timestamp,
) -> LeaseSpec {
    let exists = before.is_some();
    let before = before.unwrap_or_default();
    let held_before = holder(&before) == Some(identity);
    let changes_hands = exists && !held_before;
    let transitions = transitions(&before).saturating_add(i32::from(changes_hands));
    let acquired = before.acquire_time.clone().filter(|_| held_before);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(i32::try_from(lease.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..before
    }
}

/// Returns `before` without a holder, in the form in which client-go releases a Lease.
pub(super) fn released(before: LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions(&before)),
        ..before
    }
}
