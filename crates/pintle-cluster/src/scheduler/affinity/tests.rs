use serde_json::{Value, json};

use super::super::testing::{Cluster, merge, pod};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn term(key: &str, app: &str) -> Value {
    json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } })
}

fn required(kind: &str, term: &Value) -> Value {
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
    json!({ "spec": { "affinity": { kind: required } } })
}

fn preferred(kind: &str, term: &Value) -> Value {
    let weighted = json!([{ "weight": 100, "podAffinityTerm": term }]);
    let preferred = json!({ "preferredDuringSchedulingIgnoredDuringExecution": weighted });
    json!({ "spec": { "affinity": { kind: preferred } } })
}

/// Proves pods/scheduling.
#[test]
fn affinity_follows_other_pods_and_the_first_follows_itself() {
    let near = |app: &str| pod("web-1", &required("podAffinity", &term(ZONE, app)));
    let cluster = Cluster::zones(4);
    assert_eq!(cluster.node_for(&near("web")), "a", "it matches itself");
    let why = "4 node(s) didn't match pod affinity rules";
    assert!(cluster.refusal(&near("db")).contains(why));
    let cluster = cluster.with("b", pod("db-1", &json!({})));
    assert_eq!(
        cluster.node_for(&near("db")),
        "d",
        "the freer node of zone b"
    );
}

/// Proves pods/scheduling.
#[test]
fn anti_affinity_holds_in_both_directions() {
    let apart = || required("podAntiAffinity", &term(HOST, "web"));
    let cluster = Cluster::zones(2).with("a", pod("web-1", &json!({})));
    assert_eq!(cluster.node_for(&pod("x-1", &apart())), "b");
    let cluster = cluster.with("b", pod("web-2", &json!({})));
    let why = "2 node(s) didn't match pod anti-affinity rules";
    assert!(cluster.refusal(&pod("x-1", &apart())).contains(why));

    let cluster = Cluster::zones(2)
        .with("a", pod("x-1", &apart()))
        .with("b", pod("x-2", &apart()));
    let why = "2 node(s) didn't satisfy existing pods anti-affinity rules";
    assert!(cluster.refusal(&pod("web-1", &json!({}))).contains(why));
    assert_eq!(cluster.node_for(&pod("db-1", &json!({}))), "a");
}

/// Proves pods/scheduling.
#[test]
fn namespaces_and_label_keys_limit_a_term() {
    let elsewhere = json!({ "metadata": { "namespace": "other" } });
    let cluster = || Cluster::zones(2).with("a", pod("web-1", &elsewhere));
    let apart = |more: &Value| {
        let mut term = term(HOST, "web");
        merge(&mut term, more);
        pod("x-1", &required("podAntiAffinity", &term))
    };
    let none = cluster().node_for(&apart(&json!({})));
    let named = cluster().node_for(&apart(&json!({ "namespaces": ["other"] })));
    let all = cluster().node_for(&apart(&json!({ "namespaceSelector": {} })));
    let team = json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } });
    let mut labelled = cluster();
    labelled
        .world
        .set_namespace("other", Some([("team".into(), "b".into())].into()));
    // A Pod in another namespace does not count, but uses resources.
    assert_eq!(none, "b");
    let busy = |cluster: Cluster| {
        cluster
            .with("b", pod("y-1", &json!({})))
            .with("b", pod("y-2", &json!({})))
    };
    assert_eq!(busy(cluster()).node_for(&apart(&json!({}))), "a");
    assert_eq!((named.as_str(), all.as_str()), ("b", "b"));
    assert_eq!(busy(labelled).node_for(&apart(&team)), "b");
    assert_eq!(busy(cluster()).node_for(&apart(&team)), "a");

    let version = |name: &str, version: &str, more: Value| {
        let mut spec = json!({ "metadata": { "labels": { "app": "web", "version": version } } });
        merge(&mut spec, &more);
        pod(name, &spec)
    };
    let mut keyed = term(HOST, "web");
    keyed["matchLabelKeys"] = json!(["version"]);
    let apart = required("podAntiAffinity", &keyed);
    let cluster = busy(Cluster::zones(2)).with("a", version("web-1", "1", json!({})));
    assert_eq!(cluster.node_for(&version("web-2", "2", apart.clone())), "a");
    assert_eq!(cluster.node_for(&version("web-2", "1", apart)), "b");
}

/// Proves pods/scheduling.
#[test]
fn preferences_of_both_pods_count() {
    let cluster = || Cluster::zones(2).with("b", pod("db-1", &json!({})));
    let near = preferred("podAffinity", &term(HOST, "db"));
    assert_eq!(cluster().node_for(&pod("web-1", &near)), "b");
    assert_eq!(cluster().node_for(&pod("web-1", &json!({}))), "a");
    let far = preferred("podAntiAffinity", &term(HOST, "db"));
    assert_eq!(cluster().node_for(&pod("web-1", &far)), "a");
    let likes_web = preferred("podAffinity", &term(HOST, "web"));
    let cluster = Cluster::zones(2).with("b", pod("db-1", &likes_web));
    assert_eq!(cluster.node_for(&pod("web-1", &json!({}))), "b");
}
