//! Simulates kubelets and workload controllers, as far as the controller under test can observe
//! them: Pods run, claims are bound and protected while a Pod uses them, Deployments become
//! available, `StatefulSet`s get Pods, and Jobs complete.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Act, path_of, text};
use crate::{canonical::Snapshot, gateway::request::ResourceName};

/// Returns the writes of kubelets and workload controllers in this state.
pub(super) fn acts(snapshot: &Snapshot, implemented: &BTreeSet<ResourceName>) -> Vec<Act> {
    let mut acts = Vec::new();
    let lists = snapshot.lists.iter();
    for (resource, list) in lists.filter(|(resource, _)| !implemented.contains(resource)) {
        let act: fn(&Snapshot, &ResourceName, &Value, &mut Vec<Act>) =
            match (resource.group.as_str(), resource.plural.as_str()) {
                ("", "pods") => pod,
                ("", "persistentvolumeclaims") => claim,
                ("", "persistentvolumes") => volume,
                ("", "services") => service,
                ("apps", "deployments" | "replicasets") => deployment,
                ("apps", "statefulsets") => stateful_set,
                ("batch", "jobs") => job,
                _ => continue,
            };
        for object in list.iter() {
            act(snapshot, resource, object, &mut acts);
        }
    }
    acts
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

#[allow(clippy::needless_pass_by_value, reason = "callers build it in place")]
fn status(resource: &ResourceName, object: &Value, status: Value, acts: &mut Vec<Act>) {
    let current = &object["status"];
    let same = status
        .as_object()
        .is_some_and(|fields| fields.iter().all(|(name, value)| current[name] == *value));
    if !same {
        let path = path_of(resource, object) + "/status";
        acts.push(Act::patch(path, json!({ "status": status })));
    }
}

fn pod(snapshot: &Snapshot, resource: &ResourceName, pod: &Value, acts: &mut Vec<Act>) {
    let path = path_of(resource, pod);
    if is_deleting(pod) {
        let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod["metadata"]["uid"]}});
        acts.push(Act::delete(path, now));
        return;
    }
    let phase = text(&pod["status"], "phase");
    // Containers that are not restarted when they exit, such as those of Jobs, exit with code 0.
    let exits = matches!(text(&pod["spec"], "restartPolicy"), "Never" | "OnFailure");
    if matches!(phase, "Succeeded" | "Failed") || (phase == "Running" && !exits) {
        return;
    }
    if phase == "Running" {
        let done = json!({"phase": "Succeeded", "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Initialized", "status": "True", "reason": "PodCompleted"},
            {"type": "ContainersReady", "status": "False", "reason": "PodCompleted"},
            {"type": "Ready", "status": "False", "reason": "PodCompleted"},
        ]});
        let path = format!("{path}/status");
        acts.push(Act::patch(path, json!({ "status": done })));
        return;
    }
    if pod["spec"]["nodeName"].is_null() {
        let namespace = text(&pod["metadata"], "namespace");
        let kind = core("persistentvolumeclaims");
        let claims = named(snapshot, &kind, namespace);
        let mut own = claims_of(pod).filter_map(|name| claims.get(name.as_str()?));
        if own.any(|claim| is_deleting(claim)) {
            // The scheduler waits for the next claim of this name.
            return;
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"kind": "Node", "name": "node-1"}});
        acts.push(Act::post(format!("{path}/binding"), binding));
    }
    let ready: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True"}))
        .collect();
    let running = json!({"phase": "Running", "conditions": ready, "podIP": "10.0.0.1"});
    acts.push(Act::patch(
        format!("{path}/status"),
        json!({ "status": running }),
    ));
}

fn claim(snapshot: &Snapshot, resource: &ResourceName, claim: &Value, acts: &mut Vec<Act>) {
    if !is_deleting(claim) {
        status(resource, claim, json!({"phase": "Bound"}), acts);
        return;
    }
    let meta = &claim["metadata"];
    let pods = named(snapshot, &core("pods"), text(meta, "namespace"));
    let is_used = pods.values().any(|pod| {
        let ended = matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed");
        let is_scheduled = !pod["spec"]["nodeName"].is_null();
        is_scheduled && !ended && claims_of(pod).any(|name| *name == meta["name"])
    });
    if !is_used {
        unprotect(resource, claim, "kubernetes.io/pvc-protection", acts);
    }
}

/// Returns the names of the claims that a Pod uses.
fn claims_of(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.map(|volume| &volume["persistentVolumeClaim"]["claimName"])
}

fn volume(_: &Snapshot, resource: &ResourceName, volume: &Value, acts: &mut Vec<Act>) {
    if is_deleting(volume) && text(&volume["status"], "phase") != "Bound" {
        unprotect(resource, volume, "kubernetes.io/pv-protection", acts);
    }
}

/// Removes a finalizer of the volume controllers.
fn unprotect(resource: &ResourceName, object: &Value, finalizer: &str, acts: &mut Vec<Act>) {
    let meta = &object["metadata"];
    let all = meta["finalizers"].as_array().into_iter().flatten();
    let (own, rest): (Vec<_>, Vec<_>) = all.partition(|it| *it == finalizer);
    if !own.is_empty() {
        let version = &meta["resourceVersion"];
        let body = json!({"metadata": {"finalizers": rest, "resourceVersion": version}});
        acts.push(Act::patch(path_of(resource, object), body));
    }
}

fn service(_: &Snapshot, resource: &ResourceName, service: &Value, acts: &mut Vec<Act>) {
    if text(&service["spec"], "type") == "LoadBalancer" && !is_deleting(service) {
        let address = json!({"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]});
        status(resource, service, json!({ "loadBalancer": address }), acts);
    }
}

fn deployment(_: &Snapshot, resource: &ResourceName, object: &Value, acts: &mut Vec<Act>) {
    if is_deleting(object) {
        return;
    }
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let mut next = json!({"observedGeneration": object["metadata"]["generation"]});
    let zero = object["status"].get("replicas").is_none();
    if replicas > 0 || !zero {
        for field in ["replicas", "readyReplicas", "availableReplicas"] {
            next[field] = replicas.into();
        }
        if resource.plural == "deployments" {
            next["updatedReplicas"] = replicas.into();
        }
    }
    let generation = &object["metadata"]["generation"];
    if object["status"]["observedGeneration"] != *generation {
        status(resource, object, next, acts);
    }
}

fn job(_: &Snapshot, resource: &ResourceName, job: &Value, acts: &mut Vec<Act>) {
    if is_deleting(job) || !job["status"]["succeeded"].is_null() {
        return;
    }
    let completions = job["spec"]["completions"].as_i64().unwrap_or(1);
    let time = &job["metadata"]["creationTimestamp"];
    let conditions = json!([
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": time},
        {"type": "Complete", "status": "True", "lastTransitionTime": time},
    ]);
    let done = json!({"succeeded": completions, "startTime": time, "completionTime": time,
        "conditions": conditions});
    status(resource, job, done, acts);
}

fn stateful_set(snapshot: &Snapshot, resource: &ResourceName, set: &Value, acts: &mut Vec<Act>) {
    if is_deleting(set) {
        return;
    }
    let meta = &set["metadata"];
    let (namespace, name) = (text(meta, "namespace"), text(meta, "name"));
    let replicas = set["spec"]["replicas"].as_i64().unwrap_or(1);
    let (pods, claims) = (
        named(snapshot, &core("pods"), namespace),
        named(snapshot, &core("persistentvolumeclaims"), namespace),
    );
    let root = format!("/api/v1/namespaces/{namespace}");
    let mut ready = 0;
    for ordinal in 0..replicas {
        for template in set["spec"]["volumeClaimTemplates"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let claim_name = format!("{}-{name}-{ordinal}", text(&template["metadata"], "name"));
            if !claims.contains_key(claim_name.as_str()) {
                let labels = &set["spec"]["selector"]["matchLabels"];
                let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": claim_name, "namespace": namespace, "labels": labels},
                    "spec": template["spec"]});
                acts.push(Act::post(format!("{root}/persistentvolumeclaims"), claim));
            }
        }
        let pod_name = format!("{name}-{ordinal}");
        match pods.get(pod_name.as_str()) {
            None => {
                let template = &set["spec"]["template"];
                let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name,
                    "uid": meta["uid"], "controller": true, "blockOwnerDeletion": true});
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
                    "name": pod_name, "namespace": namespace, "ownerReferences": [owner],
                    "labels": template["metadata"]["labels"],
                    "annotations": template["metadata"]["annotations"],
                }, "spec": template["spec"]});
                acts.push(Act::post(format!("{root}/pods"), pod));
            }
            Some(pod) if text(&pod["status"], "phase") == "Running" => ready += 1,
            Some(_) => {}
        }
    }
    for (pod_name, pod) in &pods {
        let ordinal = pod_name.strip_prefix(&format!("{name}-"));
        let ordinal = ordinal.and_then(|rest| rest.parse::<i64>().ok());
        if ordinal.is_some_and(|ordinal| ordinal >= replicas) && !is_deleting(pod) {
            let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
            if *owner == meta["uid"] {
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
                    "preconditions": {"uid": pod["metadata"]["uid"]}});
                acts.push(Act::delete(format!("{root}/pods/{pod_name}"), options));
            }
        }
    }
    let mut next = json!({"observedGeneration": meta["generation"], "replicas": replicas});
    for field in [
        "readyReplicas",
        "availableReplicas",
        "currentReplicas",
        "updatedReplicas",
    ] {
        if ready > 0 || set["status"].get(field).is_some() {
            next[field] = ready.into();
        }
    }
    status(resource, set, next, acts);
}

fn core(plural: &str) -> ResourceName {
    ResourceName {
        group: String::new(),
        plural: plural.to_owned(),
    }
}

fn named<'a>(
    snapshot: &'a Snapshot,
    resource: &ResourceName,
    namespace: &str,
) -> BTreeMap<&'a str, &'a Value> {
    let list = snapshot.lists.get(resource);
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter(|object| text(&object["metadata"], "namespace") == namespace)
        .map(|object| (text(&object["metadata"], "name"), object))
        .collect()
}
