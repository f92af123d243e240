use serde_json::json;

use super::*;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pace(ready: u64, stop: u64) -> Pace {
    Pace {
        ready_after: seconds(ready),
        stop_after: seconds(stop),
    }
}

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "web-1", "namespace": "default", "uid": "pod" },
        "spec": { "nodeName": "node-0", "containers": [{ "name": "web", "image": "nginx:1" }] },
        "status": { "phase": "Pending", "qosClass": "BestEffort" },
    }))
    .unwrap()
}

fn node(name: &str, spec: &serde_json::Value) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "disk": name } },
        "spec": spec,
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "allocatable": { "pods": "3" },
        },
    }))
    .unwrap()
}

fn chosen(pod: &Pod, nodes: &[(&Node, usize)]) -> Option<String> {
    let candidates: Vec<_> = nodes
        .iter()
        .map(|(node, pods)| Candidate {
            node,
            pods: *pods,
            ports_free: true,
        })
        .collect();
    choose_node(pod, &candidates).and_then(|node| node.metadata.name.clone())
}

fn act(pod: &mut Pod, pace: Pace, now: i64) -> Step {
    let step = step(pod, HOST, || ADDRESS, pace, at(now));
    if let Step::Report { status, .. } = &step {
        pod.status = Some((**status).clone());
    }
    step
}

/// Proves pods/scheduling.
#[test]
fn a_pod_goes_to_the_least_loaded_node_that_fits() {
    let (a, b, c) = (
        node("a", &json!({})),
        node("b", &json!({})),
        node("c", &json!({})),
    );
    assert_eq!(
        chosen(&pod(), &[(&a, 2), (&b, 1), (&c, 1)]).as_deref(),
        Some("b")
    );
    assert_eq!(chosen(&pod(), &[(&a, 3)]), None, "full");

    let cordoned = node("b", &json!({ "unschedulable": true }));
    assert_eq!(
        chosen(&pod(), &[(&a, 2), (&cordoned, 0)]).as_deref(),
        Some("a")
    );

    let mut picky = pod();
    picky.spec.as_mut().unwrap().node_selector = Some([("disk".into(), "c".into())].into());
    assert_eq!(
        chosen(&picky, &[(&a, 0), (&b, 0), (&c, 2)]).as_deref(),
        Some("c")
    );

    let tainted = node(
        "b",
        &json!({ "taints": [{ "key": "gpu", "effect": "NoSchedule" }] }),
    );
    assert_eq!(chosen(&pod(), &[(&tainted, 0)]), None);
    let mut tolerant = pod();
    tolerant.spec.as_mut().unwrap().tolerations =
        Some(serde_json::from_value(json!([{ "key": "gpu", "operator": "Exists" }])).unwrap());
    assert_eq!(chosen(&tolerant, &[(&tainted, 0)]).as_deref(), Some("b"));

    let mut down = node("a", &json!({}));
    down.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".into();
    assert_eq!(chosen(&pod(), &[(&down, 0)]), None);
}

/// Proves pods/scheduling.
#[test]
fn a_pod_no_node_fits_says_so_once() {
    let mut pod = pod();
    pod.status = unschedulable(&pod, 2, at(0));
    let condition = state::condition(&pod, "PodScheduled").unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_deref()),
        ("False", Some("Unschedulable"))
    );
    assert_eq!(unschedulable(&pod, 2, at(9)), None);
}

/// Proves pods/lifecycle.
#[test]
fn a_bound_pod_starts_then_runs_and_is_ready_after_the_set_delay() {
    let mut pod = pod();
    let Step::Report { again_in, .. } = act(&mut pod, pace(5, 0), 0) else {
        panic!()
    };
    assert_eq!(again_in, Some(seconds(5)));
    assert_eq!(state::phase(&pod), "Pending");
    assert!(!state::is_ready(&pod));
    assert_eq!(act(&mut pod, pace(5, 0), 3), Step::Wait(seconds(2)));

    assert!(matches!(
        act(&mut pod, pace(5, 0), 5),
        Step::Report { again_in: None, .. }
    ));
    assert_eq!(state::phase(&pod), "Running");
    assert_eq!(state::ready_since(&pod), Some(at(5)));
    let status = pod.status.clone().unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("10.244.0.1"));
    assert_eq!(status.host_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.start_time, Some(Time(at(0))));
    assert_eq!(
        status.qos_class.as_deref(),
        Some("BestEffort"),
        "what others wrote stays"
    );
    assert!(
        status
            .container_statuses
            .unwrap()
            .iter()
            .all(|container| container.ready)
    );
    assert_eq!(
        state::condition(&pod, "Initialized")
            .unwrap()
            .last_transition_time,
        Some(Time(at(0)))
    );
    assert_eq!(act(&mut pod, pace(5, 0), 1000), Step::Leave);
}

/// Proves pods/lifecycle.
#[test]
fn without_a_delay_one_report_is_enough() {
    let mut pod = pod();
    assert!(matches!(
        act(&mut pod, pace(0, 0), 0),
        Step::Report { again_in: None, .. }
    ));
    assert!(state::is_ready(&pod));
}

/// Proves pods/lifecycle.
#[test]
fn a_pod_asked_to_stop_does_so_at_its_pace_but_within_its_grace_period() {
    let mut pod = pod();
    act(&mut pod, pace(0, 0), 0);
    pod.metadata.deletion_timestamp = Some(Time(at(130)));
    pod.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(act(&mut pod, pace(0, 0), 100), Step::Remove);
    assert_eq!(act(&mut pod, pace(0, 7), 100), Step::Wait(seconds(7)));
    assert_eq!(act(&mut pod, pace(0, 7), 107), Step::Remove);
    assert_eq!(act(&mut pod, pace(0, 900), 100), Step::Wait(seconds(30)));
    pod.metadata.deletion_grace_period_seconds = Some(0);
    pod.metadata.deletion_timestamp = Some(Time(at(100)));
    assert_eq!(act(&mut pod, pace(0, 900), 100), Step::Remove, "no grace");
}

#[test]
fn a_finished_pod_is_left_alone() {
    let mut pod = pod();
    pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
    assert_eq!(act(&mut pod, pace(0, 0), 0), Step::Leave);
}

/// Proves pods/lifecycle.
#[test]
fn every_pod_has_an_address_of_its_own() {
    let mut addresses = Addresses::default();
    addresses.note("old", "10.244.0.2");
    let a = addresses.of("a");
    let b = addresses.of("b");
    assert_ne!(a, b);
    assert_ne!(a.to_string(), "10.244.0.2");
    assert_eq!(addresses.of("a"), a);
    addresses.free("a");
    assert_ne!(addresses.of("c"), b);

    let mut seen = BTreeSet::new();
    let mut addresses = Addresses::default();
    for i in 0..2000 {
        assert!(seen.insert(addresses.of(&i.to_string())));
    }
}
