use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn pod(number: usize, status: &Value) -> Arc<Pod> {
    let pod = json!({
        "metadata": { "name": format!("web-{number}") },
        "spec": { "containers": [{
            "name": "main", "resources": { "requests": { "cpu": "200m" } },
        }] },
        "status": status,
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn running(started: &str, ready: &str) -> Value {
    json!({
        "phase": "Running", "startTime": started,
        "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": started }],
    })
}

fn ready(count: usize) -> Vec<Arc<Pod>> {
    let status = running("2026-01-01T00:00:00Z", "True");
    (0..count).map(|number| pod(number, &status)).collect()
}

fn fleet(pods: &[Arc<Pod>], current: i32) -> Fleet<'_> {
    Fleet {
        pods,
        current,
        tolerances: Tolerances { down: 0.1, up: 0.1 },
        now: now(),
    }
}

fn samples(usages: &[i64]) -> Samples {
    let usages = usages.iter().enumerate();
    usages
        .map(|(number, usage)| (format!("web-{number}"), *usage))
        .collect()
}

fn utilization(pods: &[Arc<Pod>], current: i32, usages: &[i64], percent: i32) -> i32 {
    let target = Target::Utilization {
        percent,
        container: None,
    };
    let proposal = from_pods(&fleet(pods, current), "cpu", samples(usages), target);
    proposal.unwrap().replicas
}

/// Proves autoscaler/metrics.
#[test]
fn replicas_follow_utilization_beyond_the_tolerance() {
    let pods = ready(3);
    assert_eq!(utilization(&pods, 3, &[300, 500, 700], 30), 25);
    assert_eq!(utilization(&pods, 3, &[100, 100, 100], 50), 3);
    assert_eq!(
        utilization(&pods, 3, &[109, 109, 109], 50),
        3,
        "within the tolerance"
    );
    assert_eq!(utilization(&pods, 3, &[10, 10, 10], 50), 1);
    let target = Target::Utilization {
        percent: 30,
        container: None,
    };
    let proposal = from_pods(&fleet(&pods, 3), "cpu", samples(&[300, 500, 700]), target).unwrap();
    assert_eq!((proposal.usage, proposal.utilization), (500, Some(250)));
}

/// Proves autoscaler/metrics.
#[test]
fn pods_without_samples_dampen_the_change() {
    let pods = ready(4);
    // Pods without samples count as 0 % when scaling up and 100 % when scaling down.
    assert_eq!(utilization(&pods, 4, &[400, 400], 50), 8);
    assert_eq!(utilization(&pods, 4, &[20, 20], 100), 3);
    // They never flip the scaling direction.
    assert_eq!(utilization(&pods, 4, &[120, 120], 50), 4);
}

/// Proves autoscaler/metrics.
#[test]
fn unready_pods_count_as_idle_when_scaling_up() {
    let starting = running("2026-01-01T00:59:00Z", "False");
    let mut pods = ready(2);
    pods.push(pod(2, &starting));
    pods.push(pod(3, &json!({ "phase": "Pending" })));
    assert_eq!(utilization(&pods, 4, &[400, 400, 400], 50), 8);
    assert_eq!(utilization(&pods, 4, &[20, 20, 400], 50), 1);
    let none = from_pods(&fleet(&[], 1), "cpu", samples(&[1]), Target::Average(1));
    assert!(none.unwrap_err().contains("no pods returned"));
}

/// Proves autoscaler/metrics.
#[test]
fn average_and_object_metrics_scale_proportionally() {
    let pods = ready(2);
    let average = |usages: &[i64], target: i64| {
        let target = Target::Average(target);
        from_pods(&fleet(&pods, 2), "requests", samples(usages), target).unwrap()
    };
    assert_eq!(average(&[20_000, 40_000], 10_000).replicas, 6);
    assert_eq!(average(&[20_000, 40_000], 10_000).usage, 30_000);
    assert_eq!(
        from_value(&fleet(&pods, 2), 30_000, 10_000)
            .unwrap()
            .replicas,
        6
    );
    assert_eq!(
        from_value(&fleet(&pods, 2), 10_500, 10_000)
            .unwrap()
            .replicas,
        2
    );
    let share = from_share(&fleet(&pods, 2), 2, 35_000, 10_000);
    assert_eq!((share.replicas, share.usage), (4, 17_500));
}

/// Proves autoscaler/metrics.
#[test]
fn utilization_needs_requests() {
    let mut bare = (*ready(1)[0]).clone();
    bare.spec.as_mut().unwrap().containers[0].resources = None;
    let pods = [Arc::new(bare)];
    let of = |container| {
        let target = Target::Utilization {
            percent: 50,
            container,
        };
        from_pods(&fleet(&pods, 1), "cpu", samples(&[100]), target).unwrap_err()
    };
    assert_eq!(
        of(None),
        "missing request for cpu in container main of Pod web-0"
    );
    assert_eq!(of(Some("other")), "container other not found in Pod web-0");
}
