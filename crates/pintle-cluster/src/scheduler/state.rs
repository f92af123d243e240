//! The state machine of the scheduler, which turns changes of the cluster into writes.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use pintle::cache::ObjectKey;
use tokio::time::Instant;

use super::{
    plan::{self, Decision},
    pod::PodInfo,
    preempt::Nomination,
    queue::{Outcome, Queue},
    world::{Change, Nominated, World},
};
use crate::{meta, pods::state};

/// The writes for a pending Pod.
#[derive(Debug)]
pub(super) enum Work {
    Bind {
        pod: Arc<PodInfo>,
        node: String,
    },
    Refuse {
        pod: Arc<PodInfo>,
        message: String,
        nomination: Nomination,
        /// Pods of lower priority that lose their nominated node.
        displaced: Vec<Arc<PodInfo>>,
    },
}

impl Work {
    pub(super) fn pod(&self) -> &Arc<PodInfo> {
        match self {
            Self::Bind { pod, .. } | Self::Refuse { pod, .. } => pod,
        }
    }
}

/// The scheduler without its tasks.
#[derive(Debug, Default)]
pub(super) struct State {
    world: World,
    queue: Queue,
}

impl State {
    /// Returns a state in which Pods wait for their claims if `binds_claims`.
    pub(super) fn new(binds_claims: bool) -> Self {
        let mut state = Self::default();
        state.world.claims.are_bound = binds_claims;
        state
    }

    pub(super) fn observe_claim(
        &mut self,
        key: &ObjectKey,
        claim: Option<Arc<PersistentVolumeClaim>>,
    ) {
        self.world.claims.set(key, claim);
        self.queue.apply(Change::Claims);
    }

    pub(super) fn observe_class(&mut self, name: &str, class: Option<Arc<StorageClass>>) {
        self.world.claims.set_class(name, class);
        self.queue.apply(Change::Claims);
    }

    pub(super) fn observe_node(&mut self, node: Arc<Node>) {
        let change = self.world.set_node(node);
        self.queue.apply(change);
    }

    pub(super) fn forget_node(&mut self, name: &str) {
        self.world.remove_node(name);
        // There may be fewer domains to spread over.
        self.queue.apply(Change::Neighbours);
    }

    pub(super) fn observe_namespace(&mut self, name: &str, namespace: Option<&Namespace>) {
        let labels = namespace.map(|namespace| meta::labels(&namespace.metadata).clone());
        let change = self.world.set_namespace(name, labels);
        self.queue.apply(change);
    }

    pub(super) fn observe_pod(&mut self, pod: Arc<Pod>) {
        let uid = meta::uid(&pod.metadata).to_owned();
        let node = state::node_name(&pod);
        if !state::is_finished(&pod) && !node.is_empty() {
            let node = node.to_owned();
            let pod = self.world.updated(pod);
            let mut change = self.world.place(&node, pod);
            self.queue.remove(&uid);
            if let Some(promised) = self.world.nominated.remove(&uid)
                && promised.node != node
            {
                change = Change::Room;
            }
            self.queue.apply(change);
        } else if state::is_active(&pod) && state::awaits_scheduling(&pod) {
            let known = self.queue.get(&uid);
            let before = known.and_then(|known| known.nominated().map(str::to_owned));
            let pod = Arc::new(match known {
                Some(known) => known.updated(pod),
                None => PodInfo::new(pod),
            });
            let nominated = pod.nominated().map(str::to_owned);
            self.queue.upsert(pod.clone());
            if before != nominated {
                // Nominations by this scheduler count immediately, not only once the cache shows
                // them.
                self.promise(&pod, nominated);
            }
        } else {
            self.forget_pod(&uid);
        }
    }

    pub(super) fn forget_pod(&mut self, uid: &str) {
        self.queue.remove(uid);
        let was_placed = self.world.displace(uid);
        let was_promised = self.world.nominated.remove(uid).is_some();
        if was_placed || was_promised {
            self.queue.apply(Change::Room);
        }
    }

    fn promise(&mut self, pod: &Arc<PodInfo>, node: Option<String>) {
        let before = match node {
            Some(node) => {
                let promise = Nominated {
                    node,
                    pod: pod.clone(),
                };
                self.world.nominated.insert(pod.uid.clone(), promise)
            }
            None => self.world.nominated.remove(&pod.uid),
        };
        let now = self.world.nominated.get(&pod.uid);
        if before.is_some_and(|before| now.is_none_or(|now| now.node != before.node)) {
            self.queue.apply(Change::Room);
        }
    }

    /// Decides on pending Pods until one needs a write. Preemption respects `budgets` where
    /// possible.
    pub(super) fn next(
        &mut self,
        budgets: &[Arc<PodDisruptionBudget>],
        now: Instant,
    ) -> Option<Work> {
        while let Some(pod) = self.queue.take(now) {
            match plan::schedule(&pod, &self.world.view(budgets)) {
                Decision::Bind(node) => {
                    self.world.place(&node, pod.clone());
                    self.world.nominated.remove(&pod.uid);
                    return Some(Work::Bind { pod, node });
                }
                Decision::Refuse {
                    message,
                    nomination,
                } => {
                    let displaced = self.nominate(&pod, &nomination);
                    if is_reported(&pod, &message, &nomination) {
                        self.queue.finish(&pod.uid, Outcome::Refused, now);
                        continue;
                    }
                    return Some(Work::Refuse {
                        pod,
                        message,
                        nomination,
                        displaced,
                    });
                }
            }
        }
        None
    }

    /// Updates the nominated node of a Pod. Returns the Pods that lose their nomination to it.
    fn nominate(&mut self, pod: &Arc<PodInfo>, nomination: &Nomination) -> Vec<Arc<PodInfo>> {
        let node = match nomination {
            Nomination::Keep => return Vec::new(),
            Nomination::Clear => None,
            Nomination::Set(preemption) => Some(preemption.node.clone()),
        };
        let nominated = self.world.nominated.values();
        let displaced: Vec<Arc<PodInfo>> = nominated
            .filter(|it| Some(&it.node) == node.as_ref() && it.pod.priority < pod.priority)
            .map(|it| it.pod.clone())
            .collect();
        for loser in &displaced {
            self.promise(loser, None);
        }
        self.promise(pod, node);
        displaced
    }

    /// Returns whether there is a Pod to decide on, now or after it has backed off.
    pub(super) fn has_ready(&self) -> bool {
        self.queue.has_ready()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    /// Records how the writes for a Pod ended.
    pub(super) fn finish(&mut self, uid: &str, outcome: Outcome, now: Instant) {
        let waits = self.queue.finish(uid, outcome, now);
        if waits && outcome == Outcome::Failed && self.world.displace(uid) {
            self.queue.apply(Change::Room);
        }
    }
}

/// Returns whether the Pod already has this status.
fn is_reported(pod: &PodInfo, message: &str, nomination: &Nomination) -> bool {
    let is_nominated = match nomination {
        Nomination::Keep => true,
        Nomination::Clear => pod.nominated().is_none(),
        Nomination::Set(_) => false,
    };
    is_nominated
        && state::condition(&pod.pod, "PodScheduled").is_some_and(|it| {
            it.reason.as_deref() == Some("Unschedulable") && it.message.as_deref() == Some(message)
        })
}

#[cfg(test)]
mod tests;
