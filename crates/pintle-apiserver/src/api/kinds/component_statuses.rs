//! `ComponentStatus` objects: whether the parts of a control plane run, asked when the question comes.
//!
//! kube-apiserver probes the health ports of the scheduler, the controller manager and etcd. Here the
//! store is part of the server, and whoever runs the other two reports them with
//! [`ApiServer::report_component`](crate::ApiServer::report_component).

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::{
    Answer, Api, ApiError, Call, read::list::list_answer, request::selector::Selector, response,
};
use crate::store::{Content, Object};

/// The parts every control plane is expected to have, besides its store.
const EXPECTED: [&str; 2] = ["controller-manager", "scheduler"];
/// How the store is called: after the first of several members.
const STORE: &str = "etcd-0";
const NOT_REPORTED: &str = "not running with this server";

/// What was reported, by name.
#[derive(Debug, Default)]
pub(crate) struct Components(Mutex<BTreeMap<String, Result<(), String>>>);

impl Components {
    pub(crate) fn report(&self, name: &str, health: Result<(), String>) {
        self.0.lock().insert(name.to_owned(), health);
    }

    /// Every component and its health, by name.
    fn all(&self) -> BTreeMap<String, Result<(), String>> {
        let mut all = self.0.lock().clone();
        for name in EXPECTED {
            let missing = || Err(NOT_REPORTED.to_owned());
            all.entry(name.to_owned()).or_insert_with(missing);
        }
        all.insert(STORE.to_owned(), Ok(()));
        all
    }
}

fn status(name: &str, health: Result<(), String>) -> Arc<Object> {
    let condition = match health {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(why) => json!({"type": "Healthy", "status": "False", "message": why}),
    };
    let object = json!({"metadata": {"name": name}, "conditions": [condition]});
    let tree = match object {
        Value::Object(tree) => tree,
        _ => serde_json::Map::new(),
    };
    Arc::new(Object {
        key: name.into(),
        revision: 0,
        content: Arc::new(Content::encode(tree, Vec::new())),
    })
}

impl Api {
    /// Answers GET of one component, or of all.
    pub(crate) fn component_statuses(&self, call: &Call) -> Answer {
        let all = self.components.all();
        let view = call.view(&self.clock);
        if let Some(name) = &call.target.name {
            let health = all.get(name).cloned();
            let health = health.ok_or_else(|| ApiError::not_found("", "componentstatus", name))?;
            return Ok(response::object(200, &view, &status(name, health)));
        }
        let selector = Selector::read(&call.target, &call.query)?;
        let all = all
            .into_iter()
            .map(|(name, health)| status(&name, health))
            .filter(|object| selector.matches(&call.target.resource, object))
            .collect();
        Ok(list_answer(view, &json!({}), all))
    }
}
