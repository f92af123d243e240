//! `ComponentStatuses`: the health of the control plane, computed when it is read.
//!
//! kube-apiserver probes the health ports of the scheduler, the controller manager and etcd. Here
//! the store is part of the server, and the program that runs the other two reports them with
//! [`ApiServer::report_component`](crate::ApiServer::report_component).

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Kind;
use crate::{
    api::{
        Answer, Api, ApiError, Call, read::list::list_answer, request::selector::Selector, response,
    },
    store::{Content, Object},
};

/// The components every control plane is expected to have besides its store.
const EXPECTED: [&str; 2] = ["controller-manager", "scheduler"];
/// The name of the store, after the first member of an etcd cluster.
const STORE: &str = "etcd-0";
const NOT_REPORTED: &str = "not running with this server";

/// The reported health of components, by name.
#[derive(Debug, Default)]
pub(crate) struct Components(Mutex<BTreeMap<String, Result<(), String>>>);

impl Components {
    pub(crate) fn report(&self, name: &str, health: Result<(), String>) {
        self.0.lock().insert(name.to_owned(), health);
    }

    /// Returns the health of every component, reported or expected.
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

/// `componentstatuses`.
#[derive(Debug)]
pub(super) struct ComponentStatuses;

impl Kind for ComponentStatuses {
    fn deprecation(&self) -> Option<&'static str> {
        Some("v1 ComponentStatus is deprecated in v1.19+")
    }

    fn read(&self, api: &Api, call: &Call) -> Option<Answer> {
        Some(api.component_statuses(call))
    }
}

impl Api {
    fn component_statuses(&self, call: &Call) -> Answer {
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
