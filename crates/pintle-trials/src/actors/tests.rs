use serde_json::json;

use super::*;
use crate::gateway::request::ResourceName;

fn snapshot(objects: &[Value]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for object in objects {
        let api = object["apiVersion"].as_str().unwrap();
        let resource = ResourceName {
            group: api
                .split_once('/')
                .map_or("", |(group, _)| group)
                .to_owned(),
            plural: object["kind"].as_str().unwrap().to_lowercase() + "s",
        };
        Arc::make_mut(snapshot.lists.entry(resource).or_default()).push(object.clone());
    }
    snapshot
}

fn child(kind: &str, uid: &str) -> Value {
    let owner = json!({"apiVersion": "e.com/v1", "kind": kind, "name": "a", "uid": uid});
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "d", "uid": "u2", "ownerReferences": [owner]}})
}

fn owner() -> Value {
    json!({"apiVersion": "e.com/v1", "kind": "Web", "metadata": {"name": "a", "namespace": "d", "uid": "u1"}})
}

#[test]
fn object_without_its_owner_is_collected() {
    assert_eq!(garbage::acts(&snapshot(&[owner(), child("Web", "u1")])), []);
    for orphan in [child("Web", "u9"), child("Wrong", "u1")] {
        let acts = garbage::acts(&snapshot(&[owner(), orphan]));
        assert_eq!(acts.len(), 1);
        assert_eq!(acts[0].path, "/api/v1/namespaces/d/configmaps/c");
    }
}

#[test]
fn foreground_deletion_waits_for_dependents() {
    let mut web = owner();
    web["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    web["metadata"]["finalizers"] = json!(["foregroundDeletion", "mine"]);
    let acts = garbage::acts(&snapshot(&[web.clone(), child("Web", "u1")]));
    assert_eq!(acts.len(), 1, "only the dependent is deleted");
    assert_eq!(acts[0].method, Method::DELETE);
    let acts = garbage::acts(&snapshot(&[web]));
    assert_eq!(
        acts[0].body,
        Some(json!({"metadata": {"finalizers": ["mine"]}}))
    );
}

#[test]
fn stateful_set_gets_pods_and_loses_the_highest() {
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "d", "uid": "u1", "generation": 1},
        "spec": {"replicas": 1, "template": {"spec": {}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}});
    let none = BTreeSet::new();
    let acts = workloads::acts(&snapshot(std::slice::from_ref(&set)), &none);
    let made: Vec<&str> = acts.iter().map(|act| act.path.as_str()).collect();
    assert_eq!(
        made[..2],
        [
            "/api/v1/namespaces/d/persistentvolumeclaims",
            "/api/v1/namespaces/d/pods",
        ]
    );
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
        "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": [{"uid": "u1"}]}})
    };
    let acts = workloads::acts(&snapshot(&[set, pod("s-0"), pod("s-1")]), &none);
    let deleted: Vec<&str> = acts
        .iter()
        .filter(|act| act.method == Method::DELETE)
        .map(|act| act.path.as_str())
        .collect();
    assert_eq!(deleted, ["/api/v1/namespaces/d/pods/s-1"]);
}

#[test]
fn terminating_namespace_is_emptied_then_finalized() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "d", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"finalizers": ["kubernetes"]}});
    let none = BTreeSet::new();
    let objects = [namespace.clone(), owner(), child("Web", "u1")];
    let acts = namespaces::acts(&snapshot(&objects), &none);
    let paths: Vec<&str> = acts.iter().map(|act| act.path.as_str()).collect();
    let web = "/apis/e.com/v1/namespaces/d/webs/a";
    assert_eq!(paths, ["/api/v1/namespaces/d/configmaps/c", web]);
    let acts = namespaces::acts(&snapshot(&[namespace]), &none);
    assert_eq!(acts[0].path, "/api/v1/namespaces/d/finalize");
    assert_eq!(
        acts[0].body.as_ref().unwrap()["spec"]["finalizers"],
        json!([])
    );
}

#[test]
fn pods_of_jobs_succeed() {
    let pod = |phase: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "node-1", "restartPolicy": "Never"}, "status": {"phase": phase}})
    };
    let none = BTreeSet::new();
    let phases = ["Pending", "Running"].map(|phase| {
        let acts = workloads::acts(&snapshot(&[pod(phase)]), &none);
        acts[0].body.as_ref().unwrap()["status"]["phase"].clone()
    });
    assert_eq!(phases, ["Running", "Succeeded"]);
    assert_eq!(workloads::acts(&snapshot(&[pod("Succeeded")]), &none), []);
}

#[test]
fn claim_is_deleted_once_no_pod_uses_it() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
        "name": "data", "namespace": "d", "uid": "u1", "resourceVersion": "7",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["mine", "kubernetes.io/pvc-protection"],
    }});
    let pod = |phase: &str, claim: &str| {
        let node = (phase != "Pending").then_some("n");
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "d", "uid": "u2"},
            "spec": {"nodeName": node,
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
            "status": {"phase": phase}})
    };
    let acts = |pod: Value| workloads::acts(&snapshot(&[claim.clone(), pod]), &BTreeSet::new());
    assert_eq!(acts(pod("Running", "data")), []);
    let freed = Some(json!({"metadata": {"finalizers": ["mine"], "resourceVersion": "7"}}));
    assert_eq!(acts(pod("Running", "other"))[0].body, freed);
    assert_eq!(acts(pod("Succeeded", "data"))[0].body, freed);
    // A Pod that is not scheduled yet waits for the next claim.
    let waiting = acts(pod("Pending", "data"));
    assert_eq!((waiting.len(), &waiting[0].body), (1, &freed));
}
