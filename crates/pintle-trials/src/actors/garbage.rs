//! The garbage collector.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Act, path_of, text};
use crate::canonical::Snapshot;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// An owner, as named by an owner reference: group, kind, name, UID.
type Owner<'a> = (&'a str, &'a str, &'a str, &'a str);

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the writes of the garbage collector in this state.
pub(super) fn acts(snapshot: &Snapshot) -> Vec<Act> {
    let owned = |(_, object): &(_, &Value)| object["metadata"]["ownerReferences"].is_array();
    let waits = |object: &Value| {
        let finalizers = object["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|it| it == FOREGROUND || it == ORPHAN))
            && !object["metadata"]["deletionTimestamp"].is_null()
    };
    if !snapshot.objects().any(|it| owned(&it) || waits(it.1)) {
        return Vec::new();
    }
    let mut live: BTreeMap<Owner<'_>, &str> = BTreeMap::new();
    let mut deleting: BTreeSet<&str> = BTreeSet::new();
    let mut dependents: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (resource, object) in snapshot.objects() {
        let meta = &object["metadata"];
        let owner = (
            group(text(object, "apiVersion")),
            text(object, "kind"),
            text(meta, "name"),
            text(meta, "uid"),
        );
        live.insert(owner, text(meta, "namespace"));
        if waits(object)
            && meta["finalizers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it == FOREGROUND))
        {
            deleting.insert(text(meta, "uid"));
        }
        for reference in meta["ownerReferences"].as_array().into_iter().flatten() {
            let path = path_of(resource, object);
            dependents
                .entry(text(reference, "uid"))
                .or_default()
                .push(path);
        }
    }
    let mut acts = Vec::new();
    for (resource, object) in snapshot.objects() {
        let meta = &object["metadata"];
        let path = path_of(resource, object);
        if waits(object) {
            let children = dependents
                .get(text(meta, "uid"))
                .map_or(&[][..], Vec::as_slice);
            let finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
            if finalizers.iter().any(|it| it == ORPHAN) {
                for child in children {
                    let none = json!({"metadata": {"ownerReferences": null}});
                    acts.push(Act::patch(child.clone(), none));
                }
            }
            if children.is_empty() || finalizers.iter().any(|it| it == ORPHAN) {
                let rest: Vec<&Value> = finalizers
                    .iter()
                    .filter(|it| *it != FOREGROUND && *it != ORPHAN)
                    .collect();
                acts.push(Act::patch(
                    path.clone(),
                    json!({"metadata": {"finalizers": rest}}),
                ));
            }
        }
        let Some(references) = meta["ownerReferences"].as_array() else {
            continue;
        };
        if references.is_empty() || !meta["deletionTimestamp"].is_null() {
            continue;
        }
        let namespace = text(meta, "namespace");
        let is_gone = |reference: &Value| {
            let owner = (
                group(text(reference, "apiVersion")),
                text(reference, "kind"),
                text(reference, "name"),
                text(reference, "uid"),
            );
            let at = live.get(&owner);
            !at.is_some_and(|at| at.is_empty() || *at == namespace)
                || deleting.contains(text(reference, "uid"))
        };
        if references.iter().all(is_gone) {
            let options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
                "preconditions": {"uid": meta["uid"]},
            });
            acts.push(Act::delete(path, options));
        }
    }
    acts
}
