use serde_json::{Value, json};

use super::*;
use crate::autoscaler::Load;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn autoscaler(metrics: &Value) -> HorizontalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "minReplicas": 1, "maxReplicas": 9,
            "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "metrics": metrics,
        },
    }))
    .unwrap()
}

fn cpu(percent: i32) -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": percent });
    json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } })
}

fn queue(target: &Value) -> Value {
    let metric = json!({ "name": "queue" });
    json!({ "type": "External", "external": { "metric": metric, "target": target } })
}

fn pods() -> Vec<Arc<Pod>> {
    let pod = |number: i32| {
        let pod = json!({
            "metadata": {
                "name": format!("web-{number}"), "namespace": "default",
                "labels": { "app": "web" },
            },
            "spec": { "containers": [{
                "name": "main", "resources": { "requests": { "cpu": "100m" } },
            }] },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    (0..2).map(pod).collect()
}

fn planned(autoscaler: &HorizontalPodAutoscaler, current: i32, loads: &Loads) -> Plan {
    let scale = Scale {
        desired: current,
        observed: 2,
        selector: "app=web".into(),
    };
    let pods = pods();
    let world = World {
        scale: &scale,
        pods: &pods,
        loads,
        rivals: &[],
        now: now(),
    };
    plan(autoscaler, &world, &mut History::default())
}

fn reason<'a>(plan: &'a Plan, type_: &str) -> &'a str {
    let mut findings = plan.findings.iter();
    findings
        .find(|it| it.type_ == type_)
        .map_or("", |it| it.reason)
}

/// Proves autoscaler/metrics.
#[test]
fn highest_proposal_wins() {
    let loads = Loads::default();
    let load = Load::new(loads.clone());
    load.matching("app=web").uses("cpu", "60m").unwrap();
    Load::new(loads.clone()).value("queue", "35").unwrap();
    let value = json!({ "type": "AverageValue", "averageValue": "10" });
    let plan = planned(&autoscaler(&json!([cpu(50), queue(&value)])), 2, &loads);
    assert_eq!(plan.rescale.as_ref().unwrap().0, 4);
    assert_eq!(reason(&plan, "ScalingActive"), "ValidMetricFound");
    let external = json!({ "name": "queue" });
    let expected = json!([
        { "type": "Resource", "resource": { "name": "cpu", "current": {
            "averageUtilization": 60, "averageValue": "60m",
        } } },
        { "type": "External", "external": {
            "metric": external, "current": { "averageValue": "17500m" },
        } },
    ]);
    assert_eq!(json!(plan.metrics), expected);
}

/// Proves autoscaler/metrics.
#[test]
fn missing_metrics_only_add_replicas() {
    let loads = Loads::default();
    Load::new(loads.clone()).value("queue", "35").unwrap();
    let high = json!({ "type": "AverageValue", "averageValue": "10" });
    let low = json!({ "type": "AverageValue", "averageValue": "40" });
    let up = planned(&autoscaler(&json!([cpu(50), queue(&high)])), 2, &loads);
    assert_eq!(up.rescale.unwrap().0, 4);
    let down = planned(&autoscaler(&json!([cpu(50), queue(&low)])), 2, &loads);
    assert_eq!(down.rescale, None);
    assert_eq!(reason(&down, "ScalingActive"), "FailedGetResourceMetric");
    let message = "invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource \
                   metric value: failed to get cpu utilization: unable to get metrics for resource \
                   cpu: no metrics returned from resource metrics API";
    assert_eq!(
        down.failure,
        Some(("FailedComputeMetricsReplicas", message.to_owned()))
    );
}

/// Proves autoscaler/limits.
#[test]
fn bounds_apply_without_metrics() {
    let loads = Loads::default();
    let of = |current| planned(&autoscaler(&json!([cpu(50)])), current, &loads);
    assert_eq!(of(12).rescale.unwrap().0, 9);
    assert_eq!(reason(&of(0), "ScalingActive"), "ScalingDisabled");
    let mut more = autoscaler(&json!([cpu(50)]));
    more.spec.min_replicas = Some(4);
    assert_eq!(planned(&more, 2, &loads).rescale.unwrap().0, 4);
}

/// Proves autoscaler/metrics.
#[test]
fn status_changes_only_with_the_decision() {
    let loads = Loads::default();
    Load::new(loads.clone()).uses("cpu", "50m").unwrap();
    let mut autoscaler = autoscaler(&json!([cpu(50)]));
    let plan = planned(&autoscaler, 2, &loads);
    assert_eq!(plan.rescale, None);
    autoscaler.status = status(&autoscaler, Some(2), plan.clone(), now());
    let conditions = autoscaler
        .status
        .as_ref()
        .unwrap()
        .conditions
        .as_ref()
        .unwrap();
    assert_eq!(conditions.len(), 3);
    assert_eq!(status(&autoscaler, Some(2), plan, now()), None);
}

/// Proves autoscaler/metrics.
#[test]
fn amounts_are_formatted_like_quantities() {
    let decimals = [0, 250, 1000, 17_500, 12_000_000].map(|amount| decimal(amount).0);
    assert_eq!(decimals, ["0", "250m", "1", "17500m", "12k"]);
    let bytes = [104_857_600_000, 1_024_000, 1_500].map(|amount| binary(amount).0);
    assert_eq!(bytes, ["100Mi", "1Ki", "1500m"]);
}
