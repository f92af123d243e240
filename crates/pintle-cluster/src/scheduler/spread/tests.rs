use serde_json::{Value, json};

use super::super::testing::{Cluster, merge, node, pod};

const ZONE: &str = "topology.kubernetes.io/zone";

fn constraint(when: &str, more: &Value) -> Value {
    let mut constraint = json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when,
        "labelSelector": { "matchLabels": { "app": "web" } } });
    merge(&mut constraint, more);
    json!({ "spec": { "topologySpreadConstraints": [constraint] } })
}

/// Proves pods/scheduling.
#[test]
fn required_spread_keeps_zones_level() {
    let web = |name: &str, more: &Value| pod(name, &constraint("DoNotSchedule", more));
    let mut cluster = Cluster::zones(4);
    let names = ["web-1", "web-2", "web-3", "web-4"];
    let nodes = cluster.fill(names.map(|name| web(name, &json!({}))));
    assert_eq!(nodes, ["a", "b", "c", "d"]);

    let cluster = Cluster::zones(2).with("a", web("web-1", &json!({})));
    let full = json!({ "spec": { "containers": [
        { "name": "c", "resources": { "requests": { "cpu": "4" } } }] } });
    let cluster = cluster.with("b", pod("full", &full));
    let refusal = cluster.refusal(&web("web-2", &json!({})));
    let why = "1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints.";
    assert!(refusal.contains(why), "{refusal}");
    assert_eq!(
        cluster.node_for(&web("web-2", &json!({ "maxSkew": 2 }))),
        "a"
    );

    let bare = Cluster::new(&[node("a", &json!({}))]);
    let refusal = bare.refusal(&web("web-1", &json!({})));
    let why = "1 node(s) didn't match pod topology spread constraints (missing required label).";
    assert!(refusal.contains(why), "{refusal}");
}

/// Proves pods/scheduling.
#[test]
fn spread_respects_min_domains_and_node_policies() {
    let web = |more: &Value| pod("web-2", &constraint("DoNotSchedule", more));
    let one = || Cluster::zones(1).with("a", pod("web-1", &json!({})));
    assert_eq!(one().node_for(&web(&json!({}))), "a");
    let refusal = one().refusal(&web(&json!({ "minDomains": 2 })));
    assert!(refusal.contains("topology spread constraints"), "{refusal}");

    // Zone b has no node for the Pod. By default, the zone counts if only a taint excludes its
    // node, but not if the Pod's selector does.
    let tainted = json!({ "metadata": { "labels": { ZONE: "b" } },
        "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let zone_a = json!({ "metadata": { "labels": { ZONE: "a", "disk": "ssd" } } });
    let cluster = || {
        Cluster::new(&[node("a", &zone_a), node("b", &tainted)]).with("a", pod("web-1", &json!({})))
    };
    let refusal = cluster().refusal(&web(&json!({})));
    assert!(refusal.contains("topology spread constraints"), "{refusal}");
    let honor = json!({ "nodeTaintsPolicy": "Honor" });
    assert_eq!(cluster().node_for(&web(&honor)), "a");
    let mut selective = constraint("DoNotSchedule", &json!({}));
    selective["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    assert_eq!(cluster().node_for(&pod("web-2", &selective)), "a");
    selective["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = "Ignore".into();
    let refusal = cluster().refusal(&pod("web-2", &selective));
    assert!(refusal.contains("topology spread constraints"), "{refusal}");
}

/// Proves pods/scheduling.
#[test]
fn preferred_and_default_spread_are_not_required() {
    let web = |name: &str| pod(name, &constraint("ScheduleAnyway", &json!({})));
    let mut cluster = Cluster::zones(3)
        .with("b", pod("web-0", &json!({})))
        .with("c", pod("x-1", &json!({})));
    let nodes = cluster.fill(["web-1", "web-2", "web-3"].map(web));
    assert_eq!(nodes, ["a", "a", "b"], "zone b has one already");

    // Pods of one controller are spread, although node a is freer.
    let owned = |name: &str| {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r",
            "uid": "r", "controller": true }]);
        pod(name, &json!({ "metadata": { "ownerReferences": owner } }))
    };
    let cluster = Cluster::zones(2)
        .with("a", owned("r-1"))
        .with("b", pod("x-1", &json!({})))
        .with("b", pod("x-2", &json!({})));
    assert_eq!(cluster.node_for(&owned("r-2")), "b");
}
