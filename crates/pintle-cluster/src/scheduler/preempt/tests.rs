use serde_json::{Value, json};

use super::{
    super::{
        plan::Decision,
        testing::{Cluster, merge, node, pod},
    },
    *,
};

fn spec(priority: i32, cpu: &str) -> Value {
    json!({ "spec": { "priority": priority, "containers": [
        { "name": "c", "resources": { "requests": { "cpu": cpu } } }] } })
}

fn sized(name: &str, priority: i32, cpu: &str) -> Arc<PodInfo> {
    pod(name, &spec(priority, cpu))
}

fn nodes(names: &[&str]) -> Cluster {
    let nodes = names.iter().map(|name| node(name, &json!({})));
    Cluster::new(&nodes.collect::<Vec<_>>())
}

/// Returns the node and the Pods evicted from it.
fn victims(cluster: &Cluster, pod: &Arc<PodInfo>) -> (String, Vec<String>) {
    match cluster.schedule(pod) {
        Decision::Refuse {
            nomination: Nomination::Set(it),
            message,
        } => {
            assert!(!message.contains("preemption"), "{message}");
            let names = it.victims.iter().map(|pod| pod.uid.clone());
            (it.node, names.collect())
        }
        other => panic!("{other:?}"),
    }
}

/// Proves scheduler/preemption.
#[test]
fn fewest_and_least_important_pods_are_preempted() {
    let cluster = nodes(&["a"])
        .with("a", sized("low-1", 1, "1"))
        .with("a", sized("low-2", 1, "1"))
        .with("a", sized("mid-1", 2, "1"))
        .with("a", sized("peer-1", 9, "1"));
    let all = |pod| victims(&cluster, &pod);
    let (node, names) = all(sized("p", 9, "1"));
    assert_eq!((node.as_str(), names.len()), ("a", 1));
    assert!(names[0].starts_with("low"));
    let (_, names) = all(sized("p", 9, "2"));
    assert_eq!(names, ["low-1", "low-2"]);
    let refusal = cluster.refusal(&sized("p", 9, "4"));
    let why = "preemption: 0/1 nodes are available: 1 Insufficient cpu.";
    assert!(refusal.ends_with(why), "{refusal}");
    let refusal = cluster.refusal(&sized("p", 1, "1"));
    assert!(
        refusal.ends_with("1 No preemption victims found for incoming pod."),
        "{refusal}"
    );
}

/// Proves scheduler/preemption.
#[test]
fn preemption_chooses_the_least_harmful_node() {
    let started = |name: &str, priority, at: &str| {
        let mut spec = spec(priority, "4");
        merge(&mut spec, &json!({ "status": { "startTime": at } }));
        pod(name, &spec)
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let incoming = sized("p", 9, "4");
    let cluster = nodes(&["a", "b"])
        .with("a", sized("x-1", 2, "4"))
        .with("b", sized("x-2", 1, "4"));
    assert_eq!(victims(&cluster, &incoming).0, "b", "lower priority");
    let cluster = nodes(&["a", "b"])
        .with("a", sized("x-1", 1, "2"))
        .with("a", sized("x-2", 1, "2"))
        .with("b", sized("x-3", 1, "4"));
    assert_eq!(victims(&cluster, &incoming).0, "b", "fewer Pods");
    let cluster = nodes(&["a", "b"])
        .with("a", started("x-1", 1, old))
        .with("b", started("x-2", 1, new));
    assert_eq!(victims(&cluster, &incoming).0, "b", "started later");
    let cluster = nodes(&["a", "b"])
        .with("a", sized("guarded-1", 1, "4"))
        .with("b", sized("x-1", 2, "4"))
        .with_budget(&json!({ "app": "guarded" }), 0);
    assert_eq!(victims(&cluster, &incoming).0, "b", "no budget is violated");
    let cluster = nodes(&["a"])
        .with("a", sized("guarded-1", 1, "2"))
        .with("a", sized("x-1", 1, "2"))
        .with_budget(&json!({ "app": "guarded" }), 0);
    assert_eq!(victims(&cluster, &sized("p", 9, "2")).1, ["x-1"]);
}

/// Proves scheduler/preemption.
#[test]
fn never_or_already_preempting_pod_does_not_preempt() {
    let mut never = spec(9, "4");
    never["spec"]["preemptionPolicy"] = "Never".into();
    let cluster = nodes(&["a"]).with("a", sized("low-1", 1, "4"));
    let refusal = cluster.refusal(&pod("p", &never));
    let why = "preemption: not eligible due to preemptionPolicy=Never.";
    assert!(refusal.ends_with(why), "{refusal}");

    let mut leaving = spec(1, "4");
    merge(
        &mut leaving,
        &json!({
            "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "conditions": [
                { "type": "DisruptionTarget", "status": "True", "reason": REASON }] },
        }),
    );
    let mut waiting = spec(9, "4");
    waiting["status"] = json!({ "nominatedNodeName": "a" });
    let cluster = nodes(&["a"]).with("a", pod("low-1", &leaving));
    let refusal = cluster.refusal(&pod("p", &waiting));
    let why = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert!(refusal.ends_with(why), "{refusal}");
}

/// Proves scheduler/preemption.
#[test]
fn preemption_resolves_anti_affinity_and_ports() {
    let term = json!([{ "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": { "app": "web" } } }]);
    let mut apart = spec(9, "1");
    apart["spec"]["affinity"]["podAntiAffinity"] =
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": term });
    let cluster = nodes(&["a"])
        .with("a", sized("web-1", 1, "1"))
        .with("a", sized("x-1", 1, "1"));
    assert_eq!(victims(&cluster, &pod("p", &apart)).1, ["web-1"]);
    let mut port = spec(9, "1");
    port["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 1, "hostPort": 80 }]);
    let mut low = port.clone();
    low["spec"]["priority"] = 1.into();
    let cluster = nodes(&["a"]).with("a", pod("low-1", &low));
    assert_eq!(victims(&cluster, &pod("p", &port)).1, ["low-1"]);
}
