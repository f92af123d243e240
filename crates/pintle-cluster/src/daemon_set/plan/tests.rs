use serde_json::{Value, json};

use super::*;

/// A set on the nodes `a`, `b` and `c`, whose current template has the hash `new`.
struct World {
    set: DaemonSet,
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    backoff: Backoff,
}

fn set(strategy: &Value) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": { "name": "agent", "namespace": "default", "uid": "set", "generation": 2 },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "updateStrategy": strategy,
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "main", "image": "agent:2" }] },
            },
        },
    }))
    .unwrap()
}

fn rolling(unavailable: &Value, surge: &Value) -> Value {
    let limits = json!({ "maxUnavailable": unavailable, "maxSurge": surge });
    json!({ "type": "RollingUpdate", "rollingUpdate": limits })
}

fn world(strategy: &Value) -> World {
    World {
        set: set(strategy),
        nodes: ["a", "b", "c"].map(|name| node(name, &json!([]))).into(),
        pods: Vec::new(),
        backoff: Backoff::default(),
    }
}

fn node(name: &str, taints: &Value) -> Arc<Node> {
    let node = json!({ "metadata": { "name": name }, "spec": { "taints": taints } });
    Arc::new(serde_json::from_value(node).unwrap())
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

#[derive(Clone, Copy, PartialEq)]
enum Health {
    Ready,
    Pending,
    Failed,
    Succeeded,
    Terminating,
}
use Health::{Failed, Pending, Ready, Succeeded, Terminating};

/// Returns a Pod bound to `node`, named after it and its revision.
fn pod(node: &str, revision: &str, health: Health) -> Arc<Pod> {
    named(&format!("{node}-{revision}"), node, revision, health)
}

fn named(name: &str, node: &str, revision: &str, health: Health) -> Arc<Pod> {
    let phase = match health {
        Ready | Terminating => "Running",
        Pending => "Pending",
        Failed => "Failed",
        Succeeded => "Succeeded",
    };
    let is_ready = matches!(health, Ready | Terminating);
    let ready = if is_ready { "True" } else { "False" };
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "labels": { "app": "agent", "controller-revision-hash": revision },
        },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": phase, "conditions": [{
            "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    if health == Terminating {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn unbound(node: &str, revision: &str) -> Arc<Pod> {
    let mut pod = (*pod(node, revision, Pending)).clone();
    pod.spec = place::pod(&set(&json!({})), node, revision).spec;
    Arc::new(pod)
}

impl World {
    fn plan(&self) -> Plan {
        plan(&Observed {
            set: &self.set,
            nodes: &self.nodes,
            pods: &self.pods,
            hash: "new",
            backoff: &self.backoff,
            now: now(),
        })
    }

    /// Returns the nodes that get a Pod and the names of the Pods to delete.
    fn steps(&self) -> (Vec<String>, Vec<String>) {
        let plan = self.plan();
        let name = |pod: &Arc<Pod>| meta::name(&pod.metadata).to_owned();
        (plan.create, plan.delete.iter().map(name).collect())
    }

    /// Plans with these Pods instead of the current ones.
    fn with(&mut self, pods: impl IntoIterator<Item = Arc<Pod>>) -> (Vec<String>, Vec<String>) {
        self.pods = pods.into_iter().collect();
        self.steps()
    }
}

fn steps(create: &[&str], delete: &[&str]) -> (Vec<String>, Vec<String>) {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    (owned(create), owned(delete))
}

/// Proves daemonset/nodes.
#[test]
fn every_node_gets_one_pod() {
    let mut world = world(&rolling(&json!(1), &json!(0)));
    assert_eq!(world.steps(), steps(&["a", "b", "c"], &[]));
    let pods = [pod("a", "new", Ready), unbound("b", "new")];
    assert_eq!(world.with(pods), steps(&["c"], &[]));
    let pods = ["a", "b", "c"].map(|it| pod(it, "new", Ready));
    let surplus = named("z", "b", "new", Ready);
    assert_eq!(
        world.with(pods.into_iter().chain([surplus])),
        steps(&[], &["z"])
    );
    let pods = [
        pod("a", "new", Terminating),
        pod("b", "new", Ready),
        pod("c", "new", Ready),
    ];
    assert_eq!(world.with(pods), steps(&[], &[]), "the old Pod is not gone");
}

/// Proves daemonset/nodes.
#[test]
fn pods_leave_nodes_that_do_not_fit() {
    let mut world = world(&rolling(&json!(1), &json!(0)));
    let taint = |effect: &str| json!([{ "key": "gpu", "effect": effect }]);
    world.nodes = vec![
        node("a", &taint("NoExecute")),
        node("b", &taint("NoSchedule")),
    ];
    let pods = [
        pod("a", "new", Ready),
        pod("b", "new", Ready),
        pod("gone", "new", Ready),
        unbound("lost", "new"),
    ];
    // A Pod bound to a node that is gone is left to the Pod garbage collector.
    assert_eq!(world.with(pods), steps(&[], &["a-new", "lost-new"]));
    let status = world.plan().status;
    assert_eq!(
        (status.desired_number_scheduled, status.number_misscheduled),
        (0, 2)
    );
}

/// Proves daemonset/failures.
#[test]
fn finished_pods_are_deleted_with_back_off() {
    let mut world = world(&rolling(&json!(1), &json!(0)));
    world.pods = vec![
        pod("a", "new", Failed),
        pod("b", "new", Succeeded),
        pod("c", "new", Ready),
    ];
    let plan = world.plan();
    assert_eq!(world.steps(), steps(&[], &["a-new", "b-new"]));
    let nodes: Vec<_> = plan.finished.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(nodes, ["a", "b"]);
    let failed = plan.finished[0].backoff.clone().unwrap();
    assert_eq!(plan.finished[1].backoff, None);

    world.backoff.record(failed.clone(), now());
    world.backoff.record(failed, now());
    let plan = world.plan();
    assert_eq!(world.steps(), steps(&[], &["b-new"]));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(2)));
}

/// Proves daemonset/update.
#[test]
fn rolling_update_keeps_within_max_unavailable() {
    let mut world = world(&rolling(&json!(1), &json!(0)));
    let old = ["a", "b", "c"].map(|it| pod(it, "old", Ready));
    assert_eq!(world.with(old.clone()), steps(&[], &["a-old"]));
    let [_, b, c] = old.clone();
    let terminating = [pod("a", "old", Terminating), b.clone(), c.clone()];
    assert_eq!(world.with(terminating), steps(&[], &[]));
    let pending = [pod("a", "new", Pending), b.clone(), c.clone()];
    assert_eq!(world.with(pending), steps(&[], &[]));
    let next = [pod("a", "new", Ready), b, c];
    assert_eq!(world.with(next), steps(&[], &["b-old"]));
    // Replacing an old Pod that is unavailable anyway does not count against the limit.
    let broken = [old[0].clone(), old[1].clone(), pod("c", "old", Pending)];
    assert_eq!(world.with(broken), steps(&[], &["c-old"]));

    world.set = set(&rolling(&json!("34%"), &json!(0)));
    assert_eq!(
        world.with(old.clone()),
        steps(&[], &["a-old", "b-old"]),
        "percentages round up"
    );
    world.set = set(&json!({ "type": "OnDelete" }));
    assert_eq!(world.with(old), steps(&[], &[]));
}

/// Proves daemonset/update.
#[test]
fn surge_starts_new_pods_before_old_ones_stop() {
    let mut world = world(&rolling(&json!(0), &json!(2)));
    let [a, b, c] = ["a", "b", "c"].map(|it| pod(it, "old", Ready));
    let all = [a.clone(), b.clone(), c.clone()];
    assert_eq!(world.with(all), steps(&["a", "b"], &[]));
    let pods = [
        a.clone(),
        b.clone(),
        c.clone(),
        pod("a", "new", Ready),
        pod("b", "new", Pending),
    ];
    assert_eq!(world.with(pods), steps(&[], &["a-old"]));
    let pods = [pod("a", "new", Ready), b, c, pod("b", "new", Pending)];
    assert_eq!(world.with(pods), steps(&["c"], &[]));
    // An old Pod that is not ready is deleted as soon as there is a new one.
    let pods = [
        pod("a", "old", Pending),
        pod("a", "new", Pending),
        pod("b", "new", Ready),
        pod("c", "new", Ready),
    ];
    assert_eq!(world.with(pods), steps(&[], &["a-old"]));
    // A terminating Pod does not delay its replacement.
    let pods = [
        pod("a", "new", Terminating),
        pod("b", "new", Ready),
        pod("c", "new", Ready),
    ];
    assert_eq!(world.with(pods), steps(&["a"], &[]));
}

/// Proves daemonset/update.
#[test]
fn surge_frees_a_node_once_others_are_available() {
    let mut world = world(&rolling(&json!(0), &json!(1)));
    // A Pod may stay on node a, but none would be created there.
    let taints = json!([{ "key": "gpu", "effect": "NoSchedule" }]);
    world.nodes = vec![node("a", &taints), node("b", &json!([]))];
    let pods = [pod("a", "old", Ready), pod("b", "new", Pending)];
    assert_eq!(world.with(pods), steps(&[], &[]));
    let pods = [pod("a", "old", Ready), pod("b", "new", Ready)];
    assert_eq!(world.with(pods), steps(&[], &["a-old"]));
}

/// Proves daemonset/status.
#[test]
fn status_counts_nodes() {
    let mut world = world(&rolling(&json!(1), &json!(0)));
    world.set.spec.as_mut().unwrap().min_ready_seconds = Some(90);
    world.pods = vec![pod("a", "new", Ready), pod("b", "old", Pending)];
    let plan = world.plan();
    assert_eq!(
        json!(plan.status),
        json!({
            "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 0,
            "numberReady": 1, "numberUnavailable": 3, "updatedNumberScheduled": 1,
            "observedGeneration": 2,
        })
    );
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(30)));
    world.set.spec.as_mut().unwrap().min_ready_seconds = Some(60);
    let status = world.plan().status;
    assert_eq!(status.number_available, Some(1));
    assert_eq!(status.number_unavailable, Some(2));
}

/// Proves workloads/revisions.
#[test]
fn history_limit_spares_revisions_with_pods() {
    let revision = |hash: &str, number: i64| {
        let revision = json!({
            "metadata": { "name": hash, "labels": { "controller-revision-hash": hash } },
            "revision": number,
        });
        Arc::new(serde_json::from_value::<ControllerRevision>(revision).unwrap())
    };
    let history = [
        revision("a", 1),
        revision("b", 2),
        revision("c", 3),
        revision("new", 4),
    ];
    let mut set = set(&json!({}));
    let pods = [pod("x", "a", Ready)];
    let mut deleted = |limit: i32| -> Vec<String> {
        set.spec.as_mut().unwrap().revision_history_limit = Some(limit);
        let surplus = surplus(&set, &history, &pods, "new");
        surplus.iter().map(|it| hash(it).to_owned()).collect()
    };
    assert_eq!(deleted(3), Vec::<String>::new());
    assert_eq!(deleted(2), ["b"]);
    assert_eq!(deleted(0), ["b", "c"]);
}
