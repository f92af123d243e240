//! Simulates the rest of the cluster: a garbage collector, and controllers that make workloads
//! ready.
//!
//! Controllers wait for Pods to run, claims to be bound and Deployments to become available, and
//! rely on the garbage collector. Running the control loops of a whole cluster would take longer
//! than the scenario itself. These actors are functions from the state to the next writes, and run
//! only after a commit.

mod garbage;
mod namespaces;
mod workloads;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::Method;
use serde_json::Value;

use crate::{canonical::Snapshot, gateway::request::ResourceName, hub::Hub};

/// How long the garbage collector takes.
const COLLECT: Duration = Duration::from_millis(200);
/// How long Pods take to start and stop, and workloads to become ready.
const WORK: Duration = Duration::from_secs(1);

/// A write of an actor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Act {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content: &'static str,
    pub(crate) body: Option<Value>,
}

impl Act {
    fn patch(path: String, body: Value) -> Self {
        Self {
            method: Method::PATCH,
            path,
            content: "application/merge-patch+json",
            body: Some(body),
        }
    }

    fn post(path: String, body: Value) -> Self {
        Self {
            method: Method::POST,
            path,
            content: "application/json",
            body: Some(body),
        }
    }

    fn delete(path: String, body: Value) -> Self {
        Self {
            method: Method::DELETE,
            path,
            content: "application/json",
            body: Some(body),
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the path of an object.
pub(crate) fn path_of(resource: &ResourceName, object: &Value) -> String {
    let api = text(object, "apiVersion");
    let root = if api.contains('/') { "/apis" } else { "/api" };
    let meta = &object["metadata"];
    let (namespace, name) = (text(meta, "namespace"), text(meta, "name"));
    if namespace.is_empty() {
        format!("{root}/{api}/{}/{name}", resource.plural)
    } else {
        format!(
            "{root}/{api}/namespaces/{namespace}/{}/{name}",
            resource.plural
        )
    }
}

/// Which actors take part in a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Cast {
    pub(crate) workloads: bool,
    pub(crate) garbage_collector: bool,
    /// Kinds that the controller under test implements.
    pub(crate) implemented: BTreeSet<ResourceName>,
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            workloads: true,
            garbage_collector: true,
            implemented: BTreeSet::new(),
        }
    }
}

/// Runs the actors.
pub(crate) async fn run(hub: Arc<Hub>, cast: Cast) {
    let work = |snapshot: &Snapshot| {
        if cast.workloads {
            workloads::acts(snapshot, &cast.implemented)
        } else {
            Vec::new()
        }
    };
    loop {
        hub.committed.notified().await;
        tokio::time::sleep(COLLECT).await;
        let snapshot = hub.snapshot().await;
        if cast.garbage_collector {
            perform(&hub, garbage::acts(&snapshot)).await;
        }
        perform(&hub, namespaces::acts(&snapshot, &cast.implemented)).await;
        if !work(&snapshot).is_empty() {
            tokio::time::sleep(WORK).await;
            perform(&hub, work(&hub.snapshot().await)).await;
        }
    }
}

async fn perform(hub: &Hub, acts: Vec<Act>) {
    for act in acts {
        // Conflicts and missing objects are normal: the actors run again after the next commit.
        let _ = hub
            .call(act.method, &act.path, act.content, act.body.as_ref())
            .await;
    }
}

#[cfg(test)]
mod tests;
