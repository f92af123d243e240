//! Deletes the contents of terminating namespaces, then the namespaces.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::{Act, path_of, text};
use crate::{canonical::Snapshot, gateway::request::ResourceName};

/// Returns the writes of the namespace controller in this state.
pub(super) fn acts(snapshot: &Snapshot, implemented: &BTreeSet<ResourceName>) -> Vec<Act> {
    let mut acts = Vec::new();
    let is_namespace = |it: &ResourceName| it.group.is_empty() && it.plural == "namespaces";
    let lists = snapshot.lists.iter();
    let namespaces = lists.filter(|(it, _)| is_namespace(it) && !implemented.contains(it));
    for (resource, list) in namespaces {
        for namespace in list.iter().filter(|it| is_deleting(it)) {
            empty(snapshot, resource, namespace, &mut acts);
        }
    }
    acts
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn empty(snapshot: &Snapshot, resource: &ResourceName, namespace: &Value, acts: &mut Vec<Act>) {
    let name = text(&namespace["metadata"], "name");
    let mut contents = snapshot
        .objects()
        .filter(|(_, object)| text(&object["metadata"], "namespace") == name)
        .peekable();
    if contents.peek().is_none() {
        let mut last = namespace.clone();
        last["spec"]["finalizers"] = json!([]);
        acts.push(Act {
            method: Method::PUT,
            path: path_of(resource, namespace) + "/finalize",
            content: "application/json",
            body: Some(last),
        });
    }
    for (resource, object) in contents.filter(|(_, object)| !is_deleting(object)) {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": object["metadata"]["uid"]}});
        acts.push(Act::delete(path_of(resource, object), options));
    }
}
