//! Faults between the steps of a story and after its end: stopped processes, drift, finalizers of
//! other users, upgrades of the CRD, a mutating webhook.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Driver, defaults};
use crate::{
    actors,
    canonical::State,
    hub::{Hub, Signal},
    plan::{Fault, Point},
    story::Desired,
};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// The finalizer of another user.
const HELD: &str = "trials.pintle.dev/held";
/// How long that user takes to remove it.
const HOLD: Duration = Duration::from_secs(30);
/// The version that an upgrade adds to a CRD.
const NEW_VERSION: &str = "v99";
/// The property that an upgrade adds to the spec, and that users set from then on.
const NEW_FIELD: &str = "trials";

impl Driver<'_> {
    /// Injects the faults that precede the next step. Returns those that took effect.
    pub(super) async fn before_step(&self) -> Vec<Fault> {
        let index = self.hub.record.lock().next_step();
        let Some(step) = self.hub.steps.get(index) else {
            return Vec::new();
        };
        // A shrunk story retains the step numbers of the original one.
        let number = self.plan.steps.get(index).copied().unwrap_or(index);
        let mut done = Vec::new();
        for (i, (fault, point)) in self.plan.faults.iter().enumerate() {
            if *point != Point::Step(number) {
                continue;
            }
            let fired = match fault {
                Fault::Stopped => {
                    let _ = self.hub.signals.send(Signal::Stop);
                    sleep(Duration::from_millis(10)).await;
                    true
                }
                Fault::HeldFinalizer => add_finalizer(&self.hub, &step.object().path()).await,
                Fault::CrdUpgrade => upgrade(&self.hub, step.object()).await,
                Fault::Defaulting => defaults::register(&self.hub),
                _ => false,
            };
            if fired {
                let mut record = self.hub.record.lock();
                record.mark(format!("{} (fault)", fault.name()));
                record.trace.fired[i] = true;
                done.push(*fault);
            }
        }
        done
    }

    /// Ends the faults of a step.
    pub(super) async fn after_step(&self, faults: &[Fault]) {
        for fault in faults {
            match fault {
                Fault::Stopped => {
                    sleep(Duration::from_secs(1)).await;
                    self.hub.record.lock().busy_for(Duration::from_secs(2));
                    let _ = self.hub.signals.send(Signal::Resume);
                }
                Fault::HeldFinalizer => self.release_later(),
                _ => {}
            }
        }
    }

    /// Removes the finalizer of the story's object after a while.
    fn release_later(&self) {
        let hub = Arc::clone(&self.hub);
        let mut record = hub.record.lock();
        record.busy_for(HOLD + Duration::from_secs(2));
        let Some(step) = self.hub.steps.get(record.step) else {
            return;
        };
        drop(record);
        let (path, title) = (step.object().path(), step.object().title());
        tokio::task::spawn_local(async move {
            sleep(HOLD).await;
            if !remove_finalizer(&hub, &path).await {
                let mut record = hub.record.lock();
                record.mark(format!("the finalizer {HELD} is gone"));
                record.trace.unheld.push(title);
            }
        });
    }

    /// Deletes or changes objects of the controller in the idle cluster, as another user.
    pub(super) async fn drift(&self) {
        for (i, (fault, point)) in self.plan.faults.iter().enumerate() {
            let Point::End(id) = point else {
                continue;
            };
            let snapshot = self.hub.snapshot().await;
            let found = snapshot.objects().find(|(resource, object)| {
                let meta = &object["metadata"];
                let namespace = meta["namespace"].as_str().unwrap_or_default();
                let name = meta["name"].as_str().unwrap_or_default();
                format!("{resource}/{namespace}/{name}") == *id
            });
            let Some((resource, object)) = found else {
                continue;
            };
            let path = actors::path_of(resource, object);
            let edit = self.expected.and_then(|expected| expected.edits.get(id));
            let done = match (fault, edit) {
                (Fault::DriftDelete, _) => delete(&self.hub, &path).await,
                (Fault::DriftHeld, _) => {
                    add_finalizer(&self.hub, &path).await && delete(&self.hub, &path).await
                }
                (Fault::DriftEdit, Some(edit)) => {
                    let response = self.hub.call(Method::PATCH, &path, MERGE, Some(edit));
                    response.await.0.is_success()
                }
                _ => false,
            };
            if done {
                {
                    let mut record = self.hub.record.lock();
                    record.mark(format!("{} {id} (fault)", fault.name()));
                    record.trace.fired[i] = true;
                }
                if *fault == Fault::DriftHeld {
                    sleep(HOLD).await;
                    if !remove_finalizer(&self.hub, &path).await {
                        self.hub.record.lock().trace.unheld.push(id.clone());
                    }
                }
                self.wait_until_idle(false).await;
                self.checkpoint().await;
            }
        }
    }
}

async fn delete(hub: &Hub, path: &str) -> bool {
    hub.call(Method::DELETE, path, JSON, None)
        .await
        .0
        .is_success()
}

/// Adds the finalizer of another user. Returns whether that succeeded.
async fn add_finalizer(hub: &Hub, path: &str) -> bool {
    edit_finalizers(hub, path, |finalizers| {
        finalizers.push(HELD.into());
        true
    })
    .await
}

/// Removes the finalizer of another user. Returns whether the object still had it.
async fn remove_finalizer(hub: &Hub, path: &str) -> bool {
    edit_finalizers(hub, path, |finalizers| {
        let before = finalizers.len();
        finalizers.retain(|it| it != HELD);
        finalizers.len() < before
    })
    .await
}

async fn edit_finalizers(hub: &Hub, path: &str, edit: impl Fn(&mut Vec<Value>) -> bool) -> bool {
    for _ in 0..8 {
        let (status, object) = hub.call(Method::GET, path, JSON, None).await;
        if !status.is_success() {
            return false;
        }
        let meta = &object["metadata"];
        let mut finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
        if !edit(&mut finalizers) {
            return false;
        }
        let patch = json!({"metadata": {
            "finalizers": finalizers, "resourceVersion": meta["resourceVersion"],
        }});
        let (status, _) = hub.call(Method::PATCH, path, MERGE, Some(&patch)).await;
        if status != StatusCode::CONFLICT {
            return status.is_success();
        }
    }
    false
}

/// Adds a version and a property to the CRD of an object.
async fn upgrade(hub: &Hub, object: &Desired) -> bool {
    let resource = &object.kind.resource;
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}",
        resource.plural, resource.group
    );
    let (status, mut crd) = hub.call(Method::GET, &path, JSON, None).await;
    let Some(versions) = crd["spec"]["versions"].as_array_mut() else {
        return false;
    };
    let Some(mut next) = versions.first().cloned() else {
        return false;
    };
    next["name"] = NEW_VERSION.into();
    next["storage"] = false.into();
    next["served"] = true.into();
    versions.push(next);
    for version in versions {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        if let Some(properties) = spec.as_object_mut() {
            properties.insert(NEW_FIELD.to_owned(), json!({"type": "string"}));
        }
    }
    let updated = hub.call(Method::PUT, &path, JSON, Some(&crd)).await.0;
    let done = status.is_success() && updated.is_success();
    if done {
        hub.record.lock().upgraded = Some(object.kind.kind.clone());
    }
    done
}

/// Sets the new property of an upgraded kind, as users who know about it do.
pub(crate) fn set_new_field(value: &mut Value) {
    if value["spec"].is_object() {
        value["spec"][NEW_FIELD] = "b".into();
    }
}

/// Removes the new property of an upgraded kind from a state. Returns the objects that lost it,
/// although users set it.
pub(super) fn take_new_field(kind: &str, state: &mut State) -> Vec<String> {
    let mut dropped = Vec::new();
    let prefix = format!("{kind} ");
    for (title, objects) in &mut state.objects {
        if !title.starts_with(&prefix) {
            continue;
        }
        let specs = objects.iter_mut().filter_map(|it| it.get_mut("spec"));
        for spec in specs.filter_map(Value::as_object_mut) {
            if spec.remove(NEW_FIELD).is_none() {
                dropped.push(title.clone());
            }
        }
    }
    dropped
}
