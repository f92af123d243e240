use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::testing::{Cluster, node, pod},
    *,
};

fn cpu(amount: &str) -> Value {
    let requests = json!({ "requests": { "cpu": amount } });
    json!({ "spec": { "containers": [{ "name": "c", "resources": requests }] } })
}

const UNHELPFUL: &str = "no new claims to deallocate, preemption: 0/1 nodes are available: \
                         1 Preemption is not helpful for scheduling.";

/// Proves scheduler/reasons.
#[test]
fn message_counts_the_reasons_of_all_nodes() {
    let taint = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } });
    let cluster = Cluster::new(&[node("a", &json!({})), node("b", &taint), node("c", &taint)]);
    let cluster = cluster.with("a", pod("full", &cpu("4")));
    assert_eq!(
        cluster.refusal(&pod("p", &json!({}))),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). \
         no new claims to deallocate, preemption: 0/3 nodes are available: \
         1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
    );
    assert_eq!(
        Cluster::default().refusal(&pod("p", &json!({}))),
        "no nodes available to schedule pods"
    );
}

/// Proves scheduler/reasons.
#[test]
fn reasons_use_kubernetes_wording() {
    let port = json!({ "spec": { "containers": [
        { "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80 }] }] } });
    let by_name = |names: &[&str]| {
        json!({ "spec": { "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": names }] },
            ] } } } } })
    };
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let small = json!({ "status": { "allocatable": { "pods": "0" } } });
    let none = json!({});
    for (setup, wanted, why) in [
        (&cordoned, none.clone(), "1 node(s) were unschedulable"),
        (
            &none,
            json!({ "spec": { "nodeSelector": { "disk": "ssd" } } }),
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            &none,
            by_name(&["z"]),
            "1 node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ),
        (&none, cpu("5"), "1 Insufficient cpu"),
    ] {
        let cluster = Cluster::new(&[node("a", setup)]);
        let refusal = cluster.refusal(&pod("p", &wanted));
        let expected = format!("0/1 nodes are available: {why}. {UNHELPFUL}");
        assert_eq!(refusal, expected);
    }
    let first = |refusal: String| refusal.split(". ").next().unwrap().to_owned();
    let cluster = Cluster::new(&[node("a", &none)]).with("a", pod("q", &port));
    assert_eq!(
        first(cluster.refusal(&pod("p", &port))),
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports"
    );
    let cluster = Cluster::new(&[node("a", &small)]).with("a", pod("q", &cpu("4")));
    assert_eq!(
        first(cluster.refusal(&pod("p", &json!({})))),
        "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods"
    );
    let conflict = json!({ "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": ["a"] },
            { "key": "metadata.name", "operator": "In", "values": ["b"] },
        ] }] } } } } });
    assert_eq!(
        first(cluster.refusal(&pod("p", &conflict))),
        "0/1 nodes are available: pod affinity terms conflict"
    );
}

/// Proves pods/scheduling.
#[test]
fn requests_include_init_containers_sidecars_and_overhead() {
    let cluster = || Cluster::new(&[node("a", &json!({}))]);
    let with = |spec: Value| pod("p", &json!({ "spec": spec }));
    let container = |cpu: &str| json!({ "name": cpu, "resources": { "requests": { "cpu": cpu } } });
    let mut sidecar = container("2");
    sidecar["restartPolicy"] = "Always".into();
    for (spec, fits) in [
        (json!({ "initContainers": [container("4")] }), true),
        (json!({ "initContainers": [container("5")] }), false),
        (json!({ "initContainers": [sidecar, container("2")] }), true),
        (
            json!({ "initContainers": [sidecar, container("3")] }),
            false,
        ),
        (json!({ "overhead": { "cpu": "3" } }), true),
        (json!({ "overhead": { "cpu": "3001m" } }), false),
        (json!({ "resources": { "requests": { "cpu": "4" } } }), true),
        (
            json!({ "resources": { "requests": { "cpu": "4.1" } } }),
            false,
        ),
    ] {
        let decision = cluster().schedule(&with(spec.clone()));
        assert_eq!(matches!(decision, Decision::Bind(_)), fits, "{spec}");
    }
}

/// Proves pods/scheduling.
#[test]
fn better_nodes_win_and_ties_go_to_the_first() {
    let plain = || Cluster::new(&["c", "b", "a"].map(|name| node(name, &json!({}))));
    assert_eq!(plain().node_for(&pod("p", &json!({}))), "a");
    let mut cluster = plain();
    let nodes = cluster.fill(["x-1", "x-2", "x-3", "x-4"].map(|name| pod(name, &json!({}))));
    assert_eq!(nodes, ["a", "b", "c", "a"], "the least allocated node");

    let avoided = json!({ "spec": { "taints": [{ "key": "old", "effect": "PreferNoSchedule" }] } });
    let cluster = Cluster::new(&[node("a", &avoided), node("b", &json!({}))]);
    assert_eq!(cluster.node_for(&pod("p", &json!({}))), "b");

    let preference = json!({ "spec": { "affinity": { "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": {
            "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": ["c"] }] } }],
    } } } });
    assert_eq!(plain().node_for(&pod("p", &preference)), "c");
}

/// Proves scheduler/preemption.
#[test]
fn nominated_node_is_reserved_against_lower_priorities() {
    let high = json!({ "spec": { "priority": 5 } });
    let big = |priority: i32| {
        let mut big = cpu("4");
        big["spec"]["priority"] = priority.into();
        pod("big", &big)
    };
    let cluster = Cluster::new(&[node("a", &json!({}))]).nominate("a", big(3));
    assert!(
        cluster
            .refusal(&pod("p", &json!({})))
            .contains("1 Insufficient cpu")
    );
    assert_eq!(cluster.node_for(&pod("p", &high)), "a");
    let mut nominated = cpu("4");
    nominated["status"] = json!({ "nominatedNodeName": "b" });
    let cluster = Cluster::new(&["a", "b"].map(|name| node(name, &json!({}))));
    assert_eq!(cluster.node_for(&pod("big", &nominated)), "b");
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each wish is independent of the others"
)]
#[derive(Clone, Debug)]
struct Wish {
    cpu: u8,
    app: u8,
    apart: bool,
    together: bool,
    spread: bool,
    port: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    let flag = || prop::bool::weighted(0.3);
    (1..4_u8, 0..3_u8, flag(), flag(), flag(), flag()).prop_map(
        |(cpu, app, apart, together, spread, port)| Wish {
            cpu,
            app,
            apart,
            together,
            spread,
            port,
        },
    )
}

impl Wish {
    fn pod(&self, index: usize) -> Arc<PodInfo> {
        let app = format!("app{}", self.app);
        let selector = json!({ "matchLabels": { "app": app } });
        let term = |key: &str| json!([{ "topologyKey": key, "labelSelector": selector }]);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let mut container = json!({ "name": "c",
            "resources": { "requests": { "cpu": self.cpu.to_string() } } });
        if self.port {
            container["ports"] = json!([{ "containerPort": 1, "hostPort": 80 }]);
        }
        let mut spec = json!({ "containers": [container], "affinity": {} });
        if self.apart {
            spec["affinity"]["podAntiAffinity"][required] = term("kubernetes.io/hostname");
        }
        if self.together {
            spec["affinity"]["podAffinity"][required] = term("topology.kubernetes.io/zone");
        }
        if self.spread {
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "labelSelector": selector,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule" }]);
        }
        pod(&format!("{app}-{index}"), &json!({ "spec": spec }))
    }
}

proptest! {
    // Proves pods/scheduling.
    #[test]
    fn no_decision_breaks_a_rule(wishes in prop::collection::vec(wish(), 1..25)) {
        let mut cluster = Cluster::zones(4);
        let mut placed: Vec<(String, Wish)> = Vec::new();
        let zone = |node: &str| (node.as_bytes()[0] - b'a') % 2;
        for (index, wish) in wishes.into_iter().enumerate() {
            let pod = wish.pod(index);
            prop_assert_eq!(cluster.schedule(&pod), cluster.schedule(&pod));
            let Decision::Bind(node) = cluster.schedule(&pod) else { continue };
            let here: Vec<_> = placed.iter().filter(|(it, _)| *it == node).collect();
            let used: u8 = here.iter().map(|(_, it)| it.cpu).sum();
            prop_assert!(used + wish.cpu <= 4);
            prop_assert!(!(wish.port && here.iter().any(|(_, it)| it.port)));
            let alike = |it: &Wish| it.app == wish.app;
            prop_assert!(!here.iter().any(|(_, it)| alike(it) && (it.apart || wish.apart)));
            let (there, elsewhere): (Vec<_>, Vec<_>) = placed
                .iter()
                .filter(|(_, it)| alike(it))
                .partition(|(other, _)| zone(other) == zone(&node));
            prop_assert!(!wish.together || elsewhere.is_empty() || !there.is_empty());
            prop_assert!(!wish.spread || there.len() <= elsewhere.len());
            cluster.world.place(&node, pod);
            placed.push((node, wish));
        }
    }
}
