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

    /// Records the Lease as read at `now`. Only a change restarts a candidate's wait.
    pub(super) fn update(&mut self, spec: LeaseSpec, now: Instant) {
        if self.spec != spec {
            *self = Self::new(spec, now);
        }
    }

    pub(super) fn holder(&self) -> Option<&str> {
        holder(&self.spec)
    }

    /// Returns the time since the Lease was last seen to change.
    pub(super) fn unchanged(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.changed)
    }

    /// Returns until when a replica other than `identity` holds the Lease, or `None` if none does.
    ///
    /// This is based on when this replica saw the last change, never on a timestamp in the Lease,
    /// which comes from another machine's clock.
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

/// Returns how many times the Lease changed hands, including acquisitions of a released Lease.
pub(super) fn transitions(spec: &LeaseSpec) -> i32 {
    spec.lease_transitions.unwrap_or(0)
}

/// How a replica claims a Lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub(super) identity: &'a str,
    pub(super) lease_duration: Duration,
    /// This machine's wall clock.
    pub(super) now: Timestamp,
    /// The time since this replica last saw the Lease change, by its monotonic clock.
    pub(super) unchanged: Duration,
}

impl Claim<'_> {
    /// Returns the `spec` that creates, acquires or renews a Lease. Fields of other writers are
    /// retained.
    pub(super) fn over(self, before: Option<LeaseSpec>) -> LeaseSpec {
        let exists = before.is_some();
        let before = before.unwrap_or_default();
        let held_before = holder(&before) == Some(self.identity);
        let changes_hands = exists && !held_before;
        let transitions = transitions(&before).saturating_add(i32::from(changes_hands));
        let acquired = before.acquire_time.clone().filter(|_| held_before);
        let renewed = before.renew_time.as_ref().filter(|_| held_before);
        let now = renewed.map_or(self.now, |before| self.renewed_after(before.0));
        LeaseSpec {
            holder_identity: Some(self.identity.to_owned()),
            lease_duration_seconds: Some(
                i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX),
            ),
            acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions),
            ..before
        }
    }

    /// Returns the time of a renewal, which differs from the previous renewal's.
    ///
    /// This is the wall clock's time, unless the clock has not advanced or was set back to the
    /// second of the previous renewal. If the times were equal, the API server would not store a
    /// new version, and candidates would take the Lease from a holder that renews it. client-go's
    /// candidates compare whole seconds.
    fn renewed_after(self, before: Timestamp) -> Timestamp {
        let repeats = self.now.as_microsecond() <= before.as_microsecond();
        let same_second = self.now.as_second() == before.as_second();
        if same_second && (repeats || self.unchanged >= Duration::from_secs(1)) {
            let passed = self.unchanged.max(Duration::from_micros(1));
            return before.saturating_add(passed).unwrap_or(self.now);
        }
        self.now
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
