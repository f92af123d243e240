//! Derives the expectations of scenarios from runs without faults: the states to reach and the
//! objects to restore.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use crate::{
    canonical::{Compare, differences},
    gateway::request::ResourceName,
    oracles::{Oracle, Violation},
    run::Expected,
    story::{Desired, Step},
    trace::Trace,
};

/// Reports the first checkpoint at which two runs without faults differ.
pub(super) fn different_ends(a: &Trace, b: &Trace, how: &str) -> Option<Violation> {
    a.checkpoints.iter().zip(&b.checkpoints).find_map(|(a, b)| {
        let found = differences(&a.state, &b.state, Compare::Exact);
        let first = found.first()?;
        let text = format!(
            "two runs without faults differ: {}; their requests differed first: {how}",
            first.describe()
        );
        Some(Violation {
            step: Some(a.step),
            differences: found.clone(),
            ..Violation::new(Oracle::Deterministic, text)
        })
    })
}

/// Returns the state after each step, and edits that undo what a later step changed.
pub(super) fn expected_of(trace: &Trace) -> Expected {
    let mut expected = Expected::default();
    for checkpoint in &trace.checkpoints {
        expected
            .steps
            .insert(checkpoint.step, Arc::clone(&checkpoint.state));
    }
    if let Some(end) = trace.end() {
        for checkpoint in &trace.checkpoints {
            for (title, id) in &end.state.ids {
                let now = end.state.objects.get(title).and_then(|it| it.first());
                let then = checkpoint
                    .state
                    .objects
                    .get(title)
                    .and_then(|it| it.first());
                if let (Some(now), Some(then)) = (now, then)
                    && let Some(edit) = edit(now, then)
                {
                    expected.edits.entry(id.clone()).or_insert(edit);
                }
            }
        }
    }
    expected
}

/// Returns a patch that restores earlier values of fields, except for status and metadata.
fn edit(now: &Value, then: &Value) -> Option<Value> {
    let mut patch = serde_json::Map::new();
    for (name, value) in now.as_object()? {
        if matches!(name.as_str(), "metadata" | "status" | "kind" | "apiVersion") {
            continue;
        }
        let before = then.get(name).unwrap_or(&Value::Null);
        if let Some(change) = merge_of(value, before) {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then(|| patch.into())
}

/// Returns the merge patch from one value to another, for fields that both have.
fn merge_of(now: &Value, then: &Value) -> Option<Value> {
    match (now, then) {
        _ if now == then => None,
        (Value::Object(a), Value::Object(b)) => {
            let changes = a
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), merge_of(value, b.get(name)?)?)));
            let changes: serde_json::Map<String, Value> = changes.collect();
            (!changes.is_empty()).then(|| changes.into())
        }
        // Lists may be merged by key, in which case only an element's owner can remove it.
        (Value::Array(_), _) | (_, Value::Array(_) | Value::Null) => None,
        _ => Some(then.clone()),
    }
}

/// Returns the objects that the controller created and is expected to restore.
pub(super) fn owned(trace: &Trace, steps: &[Step]) -> Vec<String> {
    let of_story = |resource: &ResourceName| {
        steps
            .iter()
            .any(|step| step.object().kind.resource == *resource)
    };
    let made: BTreeSet<String> = trace
        .requests
        .iter()
        .flat_map(|request| &request.commits)
        .filter(|commit| !of_story(&commit.resource) && !commit.removes)
        .map(|commit| {
            let slash = if commit.key.contains('/') { "" } else { "/" };
            format!("{}/{slash}{}", commit.resource, commit.key)
        })
        .collect();
    let Some(end) = trace.end() else {
        return Vec::new();
    };
    let restorable = |(title, id): &(&String, &String)| {
        let object = end.state.objects.get(*title).and_then(|it| it.first());
        let owner = object.is_some_and(|object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|it| it["controller"] == true))
        });
        let done = title.starts_with("Job ") || title.starts_with("External ");
        let precious = ["PersistentVolumeClaim ", "Secret "]
            .iter()
            .any(|it| title.starts_with(it));
        made.contains(*id) && owner && !done && !precious
    };
    let ids = end.state.ids.iter().filter(restorable);
    ids.map(|(_, id)| id.clone()).collect()
}

/// Returns the objects that users want after these steps.
pub(super) fn desired_at(steps: &[Step]) -> Vec<Step> {
    let mut desired: Vec<Step> = Vec::new();
    for step in steps {
        let path = step.object().path();
        desired.retain(|it| it.object().path() != path);
        if let Step::Apply(object, _) = step {
            desired.push(Step::Apply(object.clone(), String::new()));
        }
    }
    desired
}

/// Returns an object of another user that looks like this one.
pub(super) fn bystander(object: &Value, id: &str) -> Option<Desired> {
    let (resource, _) = id.split_once('/')?;
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let meta = &object["metadata"];
    let namespace = meta["namespace"].as_str()?;
    let name = format!("{}-bystander", meta["name"].as_str()?);
    let mut value = object.clone();
    value["metadata"] = serde_json::json!({"name": name, "namespace": namespace});
    value.as_object_mut()?.remove("status");
    let api_version = object["apiVersion"].as_str()?;
    let version = api_version.rsplit('/').next()?;
    Some(Desired {
        kind: crate::story::KindRef {
            resource: ResourceName {
                group: group.to_owned(),
                plural: plural.to_owned(),
            },
            version: version.to_owned(),
            kind: object["kind"].as_str()?.to_owned(),
            namespaced: true,
        },
        namespace: namespace.to_owned(),
        name,
        value,
    })
}
