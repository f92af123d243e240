use serde_json::json;

use super::*;

const HOST: Host = Host {
    address: Ipv4Addr::new(10, 0, 0, 1),
    is_ready: true,
};
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

fn advance(pod: &mut Pod, pace: Pace, now: i64) -> Step {
    advance_as(pod, &Behavior::run(), pace, now)
}

fn advance_as(pod: &mut Pod, behavior: &Behavior, pace: Pace, now: i64) -> Step {
    let step = step(pod, HOST, || ADDRESS, behavior, pace, at(now));
    if let Step::Report { status, .. } = &step {
        pod.status = Some((**status).clone());
    }
    step
}

/// Proves pods/lifecycle.
#[test]
fn bound_pod_becomes_ready_after_the_delay() {
    let mut pod = pod();
    let Step::Report { requeue_after, .. } = advance(&mut pod, pace(5, 0), 0) else {
        panic!()
    };
    assert_eq!(requeue_after, Some(seconds(5)));
    assert_eq!(state::phase(&pod), "Pending");
    assert!(!state::is_ready(&pod));
    assert_eq!(advance(&mut pod, pace(5, 0), 3), Step::Wait(seconds(2)));

    assert!(matches!(
        advance(&mut pod, pace(5, 0), 5),
        Step::Report {
            requeue_after: None,
            ..
        }
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
        "foreign fields are retained"
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
    assert_eq!(advance(&mut pod, pace(5, 0), 1000), Step::None);
}

/// Proves pods/lifecycle.
#[test]
fn pod_without_delay_is_ready_immediately() {
    let mut pod = pod();
    assert!(matches!(
        advance(&mut pod, pace(0, 0), 0),
        Step::Report {
            requeue_after: None,
            ..
        }
    ));
    assert!(state::is_ready(&pod));
}

/// Proves pods/lifecycle.
#[test]
fn pod_stops_after_its_delay_within_its_grace_period() {
    let mut pod = pod();
    advance(&mut pod, pace(0, 0), 0);
    pod.metadata.deletion_timestamp = Some(Time(at(130)));
    pod.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(advance(&mut pod, pace(0, 0), 100), Step::Remove);
    assert_eq!(advance(&mut pod, pace(0, 7), 100), Step::Wait(seconds(7)));
    assert_eq!(advance(&mut pod, pace(0, 7), 107), Step::Remove);
    assert_eq!(
        advance(&mut pod, pace(0, 900), 100),
        Step::Wait(seconds(30))
    );
    pod.metadata.deletion_grace_period_seconds = Some(0);
    pod.metadata.deletion_timestamp = Some(Time(at(100)));
    assert_eq!(
        advance(&mut pod, pace(0, 900), 100),
        Step::Remove,
        "no grace"
    );
}

#[test]
fn finished_pod_is_left_alone() {
    let mut pod = pod();
    pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
    assert_eq!(advance(&mut pod, pace(0, 0), 0), Step::None);
}

/// Proves pods/lifecycle.
#[test]
fn pods_have_unique_addresses() {
    let mut addresses = Addresses::default();
    addresses.insert("old", "10.244.0.2");
    let a = addresses.get_or_allocate("a");
    let b = addresses.get_or_allocate("b");
    assert_ne!(a, b);
    assert_ne!(a.to_string(), "10.244.0.2");
    assert_eq!(addresses.get_or_allocate("a"), a);
    addresses.free("a");
    assert_ne!(addresses.get_or_allocate("c"), b);

    let mut seen = BTreeSet::new();
    let mut addresses = Addresses::default();
    for i in 0..2000 {
        assert!(seen.insert(addresses.get_or_allocate(&i.to_string())));
    }
}

fn with_policy(policy: &str) -> Pod {
    let mut pod = pod();
    pod.spec.as_mut().unwrap().restart_policy = Some(policy.into());
    pod
}

fn container(pod: &Pod) -> k8s_openapi::api::core::v1::ContainerStatus {
    state::container_statuses(pod).next().unwrap().clone()
}

fn waiting_for(pod: &Pod) -> Option<String> {
    container(pod).state?.waiting?.reason
}

fn requeue(step: &Step) -> Option<Duration> {
    match step {
        Step::Report { requeue_after, .. } => *requeue_after,
        _ => None,
    }
}

/// Proves pods/script.
#[test]
fn exited_pod_ends_or_restarts_by_its_policy() {
    for (policy, code, phase) in [
        ("Never", 0, "Succeeded"),
        ("Never", 3, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 3, "Running"),
        ("Always", 0, "Running"),
    ] {
        let mut pod = with_policy(policy);
        let behavior = Behavior::exit(code).after(seconds(4));
        assert_eq!(
            requeue(&advance_as(&mut pod, &behavior, pace(1, 0), 0)),
            Some(seconds(1))
        );
        assert_eq!(
            requeue(&advance_as(&mut pod, &behavior, pace(1, 0), 1)),
            Some(seconds(4))
        );
        assert!(state::is_ready(&pod));
        assert_eq!(
            advance_as(&mut pod, &behavior, pace(1, 0), 3),
            Step::Wait(seconds(2))
        );
        advance_as(&mut pod, &behavior, pace(1, 0), 5);
        assert_eq!(state::phase(&pod), phase, "{policy} {code}");
        let status = container(&pod);
        let (restarts, state) = match phase {
            "Running" => (1, status.last_state),
            _ => (0, status.state),
        };
        assert_eq!(status.restart_count, restarts, "{policy} {code}");
        let exited = state.unwrap().terminated.unwrap();
        let reason = if code == 0 { "Completed" } else { "Error" };
        assert_eq!(
            (exited.exit_code, exited.reason.as_deref()),
            (code, Some(reason))
        );
        assert_eq!(
            (exited.started_at, exited.finished_at),
            (Some(Time(at(1))), Some(Time(at(5))))
        );
        if phase != "Running" {
            assert!(!state::is_ready(&pod));
            assert_eq!(advance_as(&mut pod, &behavior, pace(1, 0), 99), Step::None);
        }
    }
}

/// Proves pods/script.
#[test]
fn crash_loop_backs_off_up_to_five_minutes() {
    let mut pod = pod();
    let behavior = Behavior::crash_loop();
    let mut now = 0;
    let mut delays = Vec::new();
    for _ in 0..40 {
        let before = waiting_for_crash(&pod);
        let step = advance_as(&mut pod, &behavior, pace(0, 0), now);
        let wait = requeue(&step).unwrap();
        if waiting_for_crash(&pod) && !before {
            delays.push(wait.as_secs());
        }
        now += i64::try_from(wait.as_secs()).unwrap().max(1);
    }
    assert_eq!(delays[..7], [10, 20, 40, 80, 160, 300, 300]);
    let status = container(&pod);
    assert!(status.restart_count > 7);
    // It recovers when its behavior changes, after the back-off.
    while requeue(&advance_as(&mut pod, &Behavior::run(), pace(0, 0), now)).is_some() {}
    advance_as(&mut pod, &Behavior::run(), pace(0, 0), now + 300);
    assert!(state::is_ready(&pod));
    assert_eq!(
        advance_as(&mut pod, &Behavior::run(), pace(0, 0), now + 9000),
        Step::None
    );
}

fn waiting_for_crash(pod: &Pod) -> bool {
    state::container_statuses(pod).next().is_some()
        && waiting_for(pod).as_deref() == Some("CrashLoopBackOff")
}

/// Proves pods/script.
#[test]
fn containers_that_cannot_start_report_the_reason_once() {
    for (behavior, reason, message) in [
        (
            Behavior::fail_image_pull(),
            "ImagePullBackOff",
            "Back-off pulling image \"nginx:1\"",
        ),
        (
            {
                let mut pod = pod();
                let annotations = pod.metadata.annotations.get_or_insert_default();
                annotations.insert(Behavior::ANNOTATION.into(), "explode".into());
                Behavior::of(&pod)
            },
            "CreateContainerConfigError",
            "invalid behavior \"explode\": unknown verb \"explode\"",
        ),
    ] {
        let mut pod = pod();
        advance_as(&mut pod, &behavior, pace(1, 0), 0);
        assert_eq!(waiting_for(&pod).as_deref(), Some("ContainerCreating"));
        advance_as(&mut pod, &behavior, pace(1, 0), 1);
        let waiting = container(&pod).state.unwrap().waiting.unwrap();
        assert_eq!(
            (waiting.reason.as_deref(), waiting.message.as_deref()),
            (Some(reason), Some(message))
        );
        assert_eq!(state::phase(&pod), "Pending");
        assert_eq!(advance_as(&mut pod, &behavior, pace(1, 0), 50), Step::None);
        // The container starts once the behavior no longer prevents it.
        advance(&mut pod, pace(1, 0), 60);
        assert!(state::is_ready(&pod));
        assert_eq!(container(&pod).restart_count, 0);
    }
}

/// Proves pods/script.
#[test]
fn readiness_follows_the_behavior() {
    let mut pod = pod();
    advance_as(&mut pod, &Behavior::never_ready(), pace(0, 0), 0);
    assert_eq!(
        (state::phase(&pod), state::is_ready(&pod)),
        ("Running", false)
    );
    assert_eq!(
        advance_as(&mut pod, &Behavior::never_ready(), pace(0, 0), 9),
        Step::None
    );
    advance(&mut pod, pace(0, 0), 10);
    assert_eq!(state::ready_since(&pod), Some(at(10)));
    advance_as(&mut pod, &Behavior::never_ready(), pace(0, 0), 20);
    assert!(!state::is_ready(&pod));
    let running = container(&pod).state.unwrap().running.unwrap();
    assert_eq!(running.started_at, Some(Time(at(0))));
    let slow = Behavior::run().ready_after(seconds(60));
    let mut pod = with_policy("Always");
    assert_eq!(
        requeue(&advance_as(&mut pod, &slow, pace(1, 0), 0)),
        Some(seconds(60))
    );
}

/// Proves pods/lifecycle.
#[test]
fn deleted_pod_with_a_finalizer_reports_its_end() {
    let mut pod = pod();
    pod.metadata.finalizers = Some(vec!["example.com/held".into()]);
    advance(&mut pod, pace(0, 0), 0);
    pod.metadata.deletion_timestamp = Some(Time(at(30)));
    pod.metadata.deletion_grace_period_seconds = Some(30);
    advance(&mut pod, pace(0, 0), 5);
    assert_eq!(state::phase(&pod), "Failed");
    let exited = container(&pod).state.unwrap().terminated.unwrap();
    assert_eq!(exited.exit_code, 143);
    assert_eq!(advance(&mut pod, pace(0, 0), 5), Step::Remove);
    pod.metadata.deletion_grace_period_seconds = Some(0);
    pod.metadata.deletion_timestamp = Some(Time(at(5)));
    assert_eq!(advance(&mut pod, pace(0, 0), 5), Step::None);
}

/// Proves pods/script.
#[test]
fn pod_becomes_unready_or_is_evicted_after_a_delay() {
    let mut web = pod();
    let unready = Behavior::run().unready_after(seconds(9));
    let pace = pace(0, 0);
    assert_eq!(
        requeue(&advance_as(&mut web, &unready, pace, 0)),
        Some(seconds(9))
    );
    assert!(state::is_ready(&web));
    assert_eq!(
        advance_as(&mut web, &unready, pace, 4),
        Step::Wait(seconds(5))
    );
    advance_as(&mut web, &unready, pace, 9);
    assert!(!state::is_ready(&web));
    assert_eq!(advance_as(&mut web, &unready, pace, 99), Step::None);

    let mut web = pod();
    let evict = Behavior::evict().after(seconds(9));
    advance_as(&mut web, &evict, pace, 0);
    assert!(state::is_ready(&web));
    advance_as(&mut web, &evict, pace, 9);
    let status = web.status.as_ref().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let target = state::condition(&web, "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
    assert_eq!(
        container(&web).state.unwrap().terminated.unwrap().exit_code,
        143
    );
}

/// Proves nodes/eviction.
#[test]
fn pods_on_unready_nodes_are_unready() {
    let mut web = pod();
    let on = |pod: &mut Pod, is_ready| {
        let host = Host { is_ready, ..HOST };
        let step = step(pod, host, || ADDRESS, &Behavior::run(), pace(0, 0), at(0));
        if let Step::Report { status, .. } = step {
            pod.status = Some(*status);
        }
        state::is_ready(pod)
    };
    assert!(!on(&mut web, false));
    assert!(on(&mut web, true));
    assert!(!on(&mut web, false));
}

/// Proves nodes/script.
#[test]
fn least_important_pod_is_evicted_first() {
    let pod = |name: &str, priority: i32, created: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": name, "creationTimestamp": created },
            "spec": { "priority": priority, "containers": [] },
        }))
        .unwrap()
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let pods = [
        pod("critical", 2_000_000_000, late),
        pod("high", 5, late),
        pod("old", 0, early),
        pod("new", 0, late),
    ];
    let next = |count: usize| next_evicted(pods.iter().take(count));
    assert_eq!(next(4), Some("new"));
    assert_eq!(next(3), Some("old"));
    assert_eq!(next(2), Some("high"));
    assert_eq!(next(1), None);
}
