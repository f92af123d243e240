//! Records when the change happened that led to a write of endpoints, for programs that measure the
//! delay.
//!
//! A Service changes when it is created, and a Pod when its condition `Ready` does. As upstream, a
//! write after several changes names the earliest, and what was seen is lost when the loop restarts.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use parking_lot::Mutex;
use pintle::cache::ObjectKey;

use crate::{meta, pods::state};

/// The annotation with the time of the change that caused the last write.
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The changes that one controller has seen, by Service.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    seen: Mutex<BTreeMap<ObjectKey, Seen>>,
}

#[derive(Debug)]
struct Seen {
    service: Option<Timestamp>,
    /// By name.
    pods: BTreeMap<String, Timestamp>,
}

impl Triggers {
    /// Records the current state of a Service and its Pods. Returns the time of the earliest change
    /// since the last call, or the creation of a Service that is new.
    pub(super) fn observe(
        &self,
        key: &ObjectKey,
        service: &Service,
        pods: &[Arc<Pod>],
    ) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref();
        let now = Seen {
            service: created.map(|Time(at)| *at),
            pods: pods.iter().filter_map(|pod| change(pod)).collect(),
        };
        let mut seen = self.seen.lock();
        let Some(before) = seen.get(key) else {
            let created = now.service;
            seen.insert(key.clone(), now);
            return created;
        };
        let pods = now.pods.iter();
        let changed = pods.filter(|(name, at)| before.pods.get(*name).is_none_or(|it| it < *at));
        let recreated = now.service.filter(|at| Some(*at) > before.service);
        let earliest = changed.map(|(_, at)| *at).chain(recreated).min();
        seen.insert(key.clone(), now);
        earliest
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.seen.lock().remove(key);
    }
}

fn change(pod: &Pod) -> Option<(String, Timestamp)> {
    let Time(at) = state::condition(pod, "Ready")?
        .last_transition_time
        .as_ref()?;
    Some((meta::name(&pod.metadata).to_owned(), *at))
}

/// Sets the annotation of endpoints that are about to be written, or removes an earlier one.
pub(super) fn annotate(metadata: &mut ObjectMeta, at: Option<Timestamp>) {
    let annotations = metadata.annotations.get_or_insert_default();
    match at {
        Some(at) => annotations.insert(TRIGGER_TIME.into(), at.to_string()),
        None => annotations.remove(TRIGGER_TIME),
    };
    if annotations.is_empty() {
        metadata.annotations = None;
    }
}

#[cfg(test)]
mod tests;
