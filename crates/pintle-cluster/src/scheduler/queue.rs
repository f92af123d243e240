//! The Pods that wait for a node, in the order in which they are scheduled: by priority, then by
//! age.
//!
//! | state | the Pod | until |
//! |---|---|---|
//! | ready | waits for its turn, and for its back-off after a failed write | it is taken |
//! | in flight | has been decided on, and the writes are under way | they are done |
//! | refused | cannot be scheduled | something changes that may help it |

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::{filter, pod::PodInfo, world::Change};
use crate::meta;

/// How long a Pod waits after its first failed write; doubled with each further one.
const BACK_OFF: Duration = Duration::from_secs(1);
const BACK_OFF_LIMIT: Duration = Duration::from_secs(10);

/// Orders Pods: the highest priority first, then the oldest, then by name.
type Order = (Reverse<i32>, Timestamp, String, String, String);

/// The pending Pods.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By UID.
    pods: BTreeMap<String, Pending>,
    ready: BTreeSet<Order>,
}

#[derive(Debug)]
struct Pending {
    pod: Arc<PodInfo>,
    state: State,
    failures: u32,
    /// When it may be scheduled after a failure.
    not_before: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// `again` is set if a change in the meantime may help the Pod.
    InFlight {
        again: bool,
    },
    Refused,
}

/// How the writes for a Pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is bound. It leaves the queue when the cache shows that.
    Bound,
    /// Its status reports why it cannot be scheduled.
    Refused,
    /// Writing failed.
    Failed,
}

fn order(pod: &PodInfo) -> Order {
    let meta = &pod.pod.metadata;
    let created = meta.creation_timestamp.as_ref();
    (
        Reverse(pod.priority),
        created.map_or(Timestamp::MIN, |Time(at)| *at),
        pod.namespace().to_owned(),
        meta::name(meta).to_owned(),
        pod.uid.clone(),
    )
}

impl Queue {
    /// Adds a Pod or its new state. A change of its requirements may help it.
    pub(super) fn upsert(&mut self, pod: Arc<PodInfo>) {
        let Some(known) = self.pods.get_mut(&pod.uid) else {
            self.ready.insert(order(&pod));
            let pending = Pending {
                pod: pod.clone(),
                state: State::Ready,
                failures: 0,
                not_before: None,
            };
            self.pods.insert(pod.uid.clone(), pending);
            return;
        };
        let is_same = known.pod.pod.spec == pod.pod.spec
            && known.pod.pod.metadata.labels == pod.pod.metadata.labels
            && (known.pod.nominated().is_none() || pod.nominated().is_some());
        if known.state == State::Ready {
            self.ready.remove(&order(&known.pod));
            self.ready.insert(order(&pod));
        }
        known.pod = pod;
        if !is_same {
            Self::help(known, &mut self.ready);
        }
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|pending| &pending.pod)
    }

    pub(super) fn remove(&mut self, uid: &str) {
        if let Some(pending) = self.pods.remove(uid) {
            self.ready.remove(&order(&pending.pod));
        }
    }

    /// Makes the Pods that a change may help ready again.
    pub(super) fn apply(&mut self, change: Change) {
        if change == Change::None {
            return;
        }
        for pending in self.pods.values_mut() {
            let helps = match change {
                Change::None => false,
                Change::Neighbours => filter::depends_on_neighbours(&pending.pod),
                Change::Claims => !pending.pod.claims.is_empty(),
                Change::Room => true,
            };
            if helps {
                Self::help(pending, &mut self.ready);
            }
        }
    }

    fn help(pending: &mut Pending, ready: &mut BTreeSet<Order>) {
        match &mut pending.state {
            State::Ready => {}
            State::InFlight { again } => *again = true,
            State::Refused => {
                pending.state = State::Ready;
                ready.insert(order(&pending.pod));
            }
        }
    }

    /// Returns whether there is a Pod to schedule, now or after it has backed off.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next Pod to schedule.
    pub(super) fn take(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        let due = |order: &&Order| {
            let pending = self.pods.get(&order.4);
            let not_before = pending.and_then(|pending| pending.not_before);
            not_before.is_none_or(|not_before| not_before <= now)
        };
        let next = self.ready.iter().find(due)?.clone();
        self.ready.remove(&next);
        let pending = self.pods.get_mut(&next.4)?;
        pending.state = State::InFlight { again: false };
        Some(pending.pod.clone())
    }

    /// Returns when the next Pod that backs off is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let ready = self.ready.iter();
        ready
            .filter_map(|order| self.pods.get(&order.4)?.not_before)
            .min()
    }

    /// Records how the writes for a Pod ended. Returns whether it is still in the queue.
    pub(super) fn finish(&mut self, uid: &str, outcome: Outcome, now: Instant) -> bool {
        let Some(pending) = self.pods.get_mut(uid) else {
            return false;
        };
        let again = pending.state == State::InFlight { again: true };
        (pending.failures, pending.not_before) = match outcome {
            Outcome::Bound => return true,
            Outcome::Refused => (0, None),
            Outcome::Failed => {
                let factor = 1_u32.checked_shl(pending.failures).unwrap_or(u32::MAX);
                let wait = BACK_OFF.saturating_mul(factor).min(BACK_OFF_LIMIT);
                (pending.failures.saturating_add(1), Some(now + wait))
            }
        };
        pending.state = State::Refused;
        if again || outcome == Outcome::Failed {
            Self::help(pending, &mut self.ready);
        }
        true
    }
}

#[cfg(test)]
mod tests;
