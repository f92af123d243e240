//! `HorizontalPodAutoscaler`s: the same sizes and conditions as kube-controller-manager. Neither
//! side has metrics, so only the bounds change a size.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use real_tests::eventually;
use serde_json::{Value, json};

use super::mask::masked;
use super::pair::{Pair, Side};
use super::web;

async fn snapshot(side: &Side) -> Value {
    let autoscalers = side.list::<HorizontalPodAutoscaler>().await;
    let mut autoscalers = masked(json!(autoscalers), &[]);
    for autoscaler in autoscalers.as_array_mut().unwrap() {
        if let Some(status) = autoscaler["status"].as_object_mut() {
            status.remove("lastScaleTime");
        }
        let conditions = autoscaler["status"]["conditions"].as_array_mut();
        for condition in conditions.into_iter().flatten() {
            // The metrics API is missing on one side and empty on the other.
            if condition["reason"] == "FailedGetResourceMetric" {
                condition["message"] = json!("MESSAGE");
            }
        }
    }
    let deployments = side.list::<Deployment>().await;
    let sizes = deployments.iter().map(|it| it.spec.as_ref()?.replicas);
    let sizes: Vec<_> = sizes.collect();
    json!({ "autoscalers": autoscalers, "sizes": sizes })
}

async fn compare(pair: &Pair, when: &str) {
    pair.agree(when, async |side| snapshot(side).await).await;
}

async fn until_size(side: &Side, replicas: i32) {
    eventually("the size", async || {
        let web = side.api::<Deployment>().get("web").await.unwrap();
        (web.spec?.replicas == Some(replicas)).then_some(())
    })
    .await;
}

async fn until_reason(side: &Side, reason: &str) {
    eventually(reason, async || {
        let autoscalers = side.api::<HorizontalPodAutoscaler>();
        let status = autoscalers.get("web").await.unwrap().status?;
        let mut conditions = status.conditions?.into_iter();
        conditions
            .any(|it| it.reason.as_deref() == Some(reason))
            .then_some(())
    })
    .await;
}

/// Proves autoscaler/limits, autoscaler/metrics, cluster/end-states.
#[tokio::test]
async fn bounds_apply_without_metrics() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Deployment>(web(1, &json!({}))).await;
        let target = json!({ "type": "Utilization", "averageUtilization": 50 });
        let cpu = json!({ "name": "cpu", "target": target });
        let reference = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        side.create::<HorizontalPodAutoscaler>(json!({
            "metadata": { "name": "web" },
            "spec": {
                "minReplicas": 3, "maxReplicas": 5, "scaleTargetRef": reference,
                "metrics": [{ "type": "Resource", "resource": cpu }],
            },
        }))
        .await;
        until_size(side, 3).await;
        until_reason(side, "FailedGetResourceMetric").await;
    })
    .await;
    compare(&pair, "at the minimum").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 0 })).await;
        until_reason(side, "ScalingDisabled").await;
    })
    .await;
    compare(&pair, "disabled").await;
    pair.stop().await;
}
