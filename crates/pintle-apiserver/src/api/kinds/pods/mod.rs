//! Pods: preparation, resizes, graceful deletion, eviction.

mod eviction;
mod prepare;
mod qos;
mod resize;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use pintle_clock::Clock;
use serde_json::Value;

use super::Kind;
use crate::{
    api::{
        Api, ApiError,
        write::{Part, delete_options::DeleteOptions},
    },
    meta::{self, Tree},
    schema::field::FieldError,
    server::PodDeletion,
    store::Object,
};

/// The grace period of a Pod that sets none, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// `pods`.
#[derive(Debug)]
pub(super) struct Pods;

impl Kind for Pods {
    fn prepare_create(&self, object: &mut Tree, now: &str) {
        prepare::create(object, now);
    }

    fn prepare_update(&self, part: Part, object: &mut Tree, stored: &Tree, _clock: &Clock) {
        match part {
            Part::Main => prepare::update(object, stored),
            Part::Resize => resize::prepare(object, stored),
            _ => {}
        }
    }

    fn validate(
        &self,
        part: Part,
        object: &Tree,
        stored: Option<&Tree>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        if let (Part::Resize, Some(stored)) = (part, stored) {
            resize::validate(object, stored, errors);
        }
        Ok(())
    }

    /// Returns zero for a Pod that no kubelet runs, because it is not scheduled or has finished.
    fn grace(&self, pod: &Tree, requested: Option<i64>) -> i64 {
        let at = |part: &str, field: &str| pod.get(part).and_then(|part| part.get(field));
        let scheduled = at("spec", "nodeName").is_some_and(|node| node.as_str() != Some(""));
        let phase = at("status", "phase").and_then(Value::as_str);
        let finished = matches!(phase, Some("Succeeded" | "Failed"));
        if !scheduled || finished {
            return 0;
        }
        let own = || {
            at("spec", "terminationGracePeriodSeconds")
                .and_then(Value::as_i64)
                .unwrap_or(DEFAULT_GRACE)
        };
        match requested.unwrap_or_else(own) {
            // Upstream treats a negative grace period as the shortest one.
            grace if grace < 0 => 1,
            grace => grace,
        }
    }

    fn keeps_deletion_mark(&self) -> bool {
        true
    }

    fn after_mark(&self, api: &Arc<Api>, object: &Object) {
        if api.pod_deletion == PodDeletion::AfterGrace {
            api.delete_after_grace(object);
        }
    }
}

impl Api {
    /// Deletes a marked Pod when its grace period ends, as a kubelet would.
    fn delete_after_grace(self: &Arc<Self>, pod: &Object) {
        let at = meta::text(&pod.decode(), "deletionTimestamp").parse::<Timestamp>();
        let left = at.map_or(Duration::ZERO, |at| {
            let left = at.duration_since(self.clock.now());
            Duration::try_from(left).unwrap_or_default()
        });
        let options = DeleteOptions::immediate(&pod.header().uid);
        let (api, key) = (Arc::clone(self), Arc::clone(&pod.key));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            tokio::select! {
                biased;
                () = api.closing.cancelled() => {}
                () = tokio::time::sleep(left) => {
                    let catalog = api.registry.catalog();
                    if let Some(pods) = catalog.find("", "v1", "pods") {
                        // Ignore errors: the Pod is gone, or another Pod has taken its name.
                        let _ = api.delete_unasked(pods, &key, &options);
                    }
                }
            }
        });
    }
}
