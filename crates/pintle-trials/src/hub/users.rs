//! The actions of users and of a competing writer.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Hub;
use crate::{
    canonical::RIVAL,
    gateway::request::Target,
    run::interference::set_new_field,
    story::{Desired, Step, collection_path, merged},
    trace::Abort,
};

/// How often a user retries a step that has to wait for a deletion.
const STEP_RETRIES: usize = 240;

impl Hub {
    /// Applies the next step of the story. Returns whether there was one.
    pub(crate) async fn advance(self: &Arc<Self>) -> bool {
        let newest = self.newest();
        let step = {
            let mut record = self.record.lock();
            let index = record.next_step;
            let Some(step) = self.steps.get(index).filter(|_| !record.ended) else {
                return false;
            };
            record.next_step += 1;
            record.before_step = newest;
            record.step = index;
            let text = format!("user: {}", step.describe());
            record.mark(text);
            step.clone()
        };
        self.perform(step).await;
        self.lift(false);
        true
    }

    /// Retries a step in the background until the deletion it waits for is complete, or a later
    /// action on the same object replaces it.
    fn retry_step(self: &Arc<Self>, step: Step, action: u64) {
        self.record.lock().pending += 1;
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            for _ in 0..STEP_RETRIES {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let last = hub.record.lock().last_action(&step.object().path());
                if last != action {
                    break;
                }
                match hub.try_step(&step).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(why) => {
                        hub.give_up(Abort::Story(why));
                        break;
                    }
                }
            }
            let mut record = hub.record.lock();
            record.pending -= 1;
        });
    }

    /// Tries a step. Returns false if it has to wait for a deletion to complete.
    async fn try_step(&self, step: &Step) -> Result<bool, String> {
        let object = step.object();
        let path = object.path();
        match step {
            Step::Delete(_) => {
                self.record.lock().desired.remove(&path);
                let (status, response) = self
                    .call(Method::DELETE, &path, "application/json", None)
                    .await;
                check(step, status, &response, &[404])?;
                Ok(true)
            }
            Step::Apply(object, _) => self.apply(step, object, &path).await,
        }
    }

    /// Creates or updates an object, retrying conflicts.
    async fn apply(&self, step: &Step, object: &Desired, path: &str) -> Result<bool, String> {
        let mut object = object.clone();
        if self.record.lock().upgraded.as_ref() == Some(&object.kind.kind) {
            set_new_field(&mut object.value);
        }
        for _ in 0..8 {
            let (status, live) = self.call(Method::GET, path, "application/json", None).await;
            if status == StatusCode::NOT_FOUND {
                let collection = object.kind.path(&object.namespace);
                let (status, response) = self
                    .call(
                        Method::POST,
                        &collection,
                        "application/json",
                        Some(&object.value),
                    )
                    .await;
                if status == StatusCode::CONFLICT {
                    continue;
                }
                check(step, status, &response, &[])?;
            } else {
                check(step, status, &live, &[])?;
                if !live["metadata"]["deletionTimestamp"].is_null() {
                    return Ok(false);
                }
                let before = self.record.lock().desired.get(path).cloned();
                let next = merged(&live, before.as_ref().map(|it| &it.value), &object.value);
                let (status, response) = self
                    .call(Method::PUT, path, "application/json", Some(&next))
                    .await;
                if status == StatusCode::CONFLICT {
                    continue;
                }
                check(step, status, &response, &[])?;
            }
            let mut record = self.record.lock();
            record.desired.insert(path.to_owned(), object);
            return Ok(true);
        }
        Ok(false)
    }

    /// Deletes the object of the story and does not recreate it.
    pub(crate) async fn user_delete(self: &Arc<Self>) {
        let object = {
            let mut record = self.record.lock();
            record.ended = true;
            let step = self.steps.get(record.step);
            let Some(step) = step else { return };
            let object = step.object().clone();
            record.mark(format!("user: delete {} (fault)", object.title()));
            object
        };
        // Keep the other objects: the end state is compared with the paced reference.
        self.perform(Step::Delete(object)).await;
    }

    /// Deletes the namespace of the story's object and does not recreate it.
    pub(crate) async fn user_delete_namespace(self: &Arc<Self>) {
        let path = {
            let mut record = self.record.lock();
            record.ended = true;
            let Some(step) = self.steps.get(record.step) else {
                return;
            };
            let namespace = &step.object().namespace;
            record.mark(format!("user: delete namespace {namespace} (fault)"));
            format!("/api/v1/namespaces/{namespace}")
        };
        let json = "application/json";
        let (status, response) = self.call(Method::DELETE, &path, json, None).await;
        if !status.is_success() {
            self.give_up(Abort::Story(format!("cannot delete {path}: {response}")));
        }
    }

    /// Deletes the object of the story and creates it again.
    pub(crate) async fn user_recreate(self: &Arc<Self>) {
        let object = {
            let mut record = self.record.lock();
            let step = self.steps.get(record.step);
            let Some(Step::Apply(object, _)) = step else {
                return;
            };
            let object = object.clone();
            record.mark(format!(
                "user: delete and recreate {} (fault)",
                object.title()
            ));
            object
        };
        self.perform(Step::Delete(object)).await;
        // The story may have advanced in the meantime.
        let step = self.record.lock().step;
        if let Some(Step::Apply(object, _)) = self.steps.get(step) {
            self.perform(Step::Apply(object.clone(), String::new()))
                .await;
        }
    }

    /// Performs a step now, or in the background if it has to wait for a deletion.
    async fn perform(self: &Arc<Self>, step: Step) {
        let action = self.record.lock().new_action(&step.object().path());
        match self.try_step(&step).await {
            Ok(true) => {}
            Ok(false) => self.retry_step(step, action),
            Err(why) => self.give_up(Abort::Story(why)),
        }
    }

    /// Changes the object of a request, as a competing writer does. Returns whether it exists.
    pub(crate) async fn rival(&self, target: &Target) -> bool {
        let number = {
            let mut record = self.record.lock();
            record.rivals += 1;
            record.mark("rival: changes the object (fault)");
            record.rivals
        };
        let namespace = target.namespace.as_deref();
        let collection = collection_path(&target.resource, &target.version, namespace);
        let path = format!("{collection}/{}", target.name);
        let touch = json!({"metadata": {"annotations": {
            RIVAL: number.to_string(),
        }}});
        let content = "application/merge-patch+json";
        let (status, _) = self.call(Method::PATCH, &path, content, Some(&touch)).await;
        status.is_success()
    }
}

/// Returns an error unless the request succeeded or failed with one of the `fine` codes.
fn check(step: &Step, status: StatusCode, response: &Value, fine: &[u16]) -> Result<(), String> {
    if status.is_success() || fine.contains(&status.as_u16()) {
        return Ok(());
    }
    let why = response["message"].as_str().unwrap_or("no message");
    Err(format!("cannot {}: {status}: {why}", step.describe()))
}
