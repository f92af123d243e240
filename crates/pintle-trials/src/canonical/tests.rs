use serde_json::json;

use super::*;

fn state(objects: Vec<Value>) -> State {
    let mut snapshot = Snapshot::default();
    for object in objects {
        let plural = object["kind"].as_str().unwrap().to_lowercase() + "s";
        let resource = ResourceName {
            group: String::new(),
            plural,
        };
        Arc::make_mut(snapshot.lists.entry(resource).or_default()).push(object);
    }
    canonical(&snapshot, &Vec::new())
}

fn pod(name: &str, uid: &str, owner: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "d", "generateName": "web-", "uid": uid,
            "resourceVersion": "12", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "Web", "name": "a", "uid": owner}],
        },
        "status": {"startTime": "2026-01-01T00:00:00Z", "message": format!("{name} runs")},
    })
}

fn web(uid: &str, pods: &[&str]) -> Value {
    json!({"kind": "Web", "metadata": {"name": "a", "namespace": "d", "uid": uid}, "status": {"pods": pods}})
}

const UID: [&str; 3] = [
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "33333333-3333-4333-8333-333333333333",
];

#[test]
fn generated_names_and_uids_do_not_count() {
    let a = state(vec![
        web(UID[0], &["web-aaaaa", "web-zzzzz"]),
        pod("web-aaaaa", UID[1], UID[0]),
        pod("web-zzzzz", UID[2], UID[0]),
    ]);
    let b = state(vec![
        web(UID[2], &["web-bbbbb", "web-ccccc"]),
        pod("web-bbbbb", UID[0], UID[2]),
        pod("web-ccccc", UID[1], UID[2]),
    ]);
    assert_eq!(differences(&a, &b, Compare::Exact), []);
}

#[test]
fn missing_owner_counts_as_a_difference() {
    let a = state(vec![web(UID[0], &[]), pod("web-a", UID[1], UID[0])]);
    let b = state(vec![web(UID[0], &[]), pod("web-a", UID[1], UID[2])]);
    let found = differences(&a, &b, Compare::Exact);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "metadata.ownerReferences[0].uid");
}

#[test]
fn duplicate_children_differ() {
    let a = state(vec![pod("web-a", UID[1], UID[0])]);
    let b = state(vec![
        pod("web-a", UID[1], UID[0]),
        pod("web-b", UID[2], UID[0]),
    ]);
    let found = differences(&a, &b, Compare::Exact);
    assert_eq!(
        found[0].describe(),
        "Pod d/web-*  (number of objects): want 1, got 2"
    );
}

#[test]
fn retained_volumes_depend_on_the_path() {
    let claim =
        json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "d"}});
    let (a, b) = (state(vec![]), state(vec![claim]));
    assert_eq!(differences(&a, &b, Compare::PathFree), []);
    assert_eq!(differences(&a, &b, Compare::Exact).len(), 1);
}

#[test]
fn ignored_fields_match_wildcards() {
    let mut value = json!({"a": [{"b": 1, "c": 2}], "d": {"x": {"e": 1}}});
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    remove(&mut value, &path("a.*.b"));
    remove(&mut value, &path("d.*.e"));
    assert_eq!(value, json!({"a": [{"c": 2}], "d": {"x": {}}}));
}
