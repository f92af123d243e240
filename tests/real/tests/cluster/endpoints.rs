//! Endpoints of Services: the same `EndpointSlice`s and Endpoints as kube-controller-manager
//! writes.

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, from_value, json};

use super::mask::masked;
use super::pair::{Pair, Side};

fn node(side: &Side) -> String {
    format!("{}-node", side.namespace)
}

async fn create_node(side: &Side) {
    let labels = json!({ "topology.kubernetes.io/zone": "a" });
    let node = json!({ "metadata": { "name": node(side), "labels": labels } });
    Api::<Node>::all(side.client.clone())
        .create(&PostParams::default(), &from_value(node).unwrap())
        .await
        .unwrap();
}

async fn delete_node(side: &Side) {
    let nodes = Api::<Node>::all(side.client.clone());
    nodes
        .delete(&node(side), &DeleteParams::default())
        .await
        .unwrap();
}

/// Creates a Pod on the node, or updates the readiness of an existing one.
async fn pod(side: &Side, name: &str, address: &str, ready: bool) {
    let api = side.api::<Pod>();
    let pod = if let Some(pod) = api.get_opt(name).await.unwrap() {
        pod
    } else {
        let container = json!({
            "name": "main", "image": "nginx:1",
            "ports": [{ "name": "web", "containerPort": 8080 }],
        });
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "nodeName": node(side), "containers": [container] },
        });
        side.create::<Pod>(pod).await
    };
    let condition = json!({
        "type": "Ready", "status": if ready { "True" } else { "False" },
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
        "conditions": [condition],
    });
    side.set_status(&pod, status).await;
}

async fn delete_pod(side: &Side, name: &str) {
    let at_once = DeleteParams::default().grace_period(0);
    side.api::<Pod>().delete(name, &at_once).await.unwrap();
}

/// Sorts lists, because the server chooses their order. Removes empty values, and the time of the
/// change that caused a write, which Pintle does not record.
fn normalized(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter();
            let fields = fields.filter(|(key, _)| !key.ends_with("/last-change-trigger-time"));
            let fields = fields.map(|(key, value)| (key, normalized(value)));
            fields.filter(|(_, value)| !is_empty(value)).collect()
        }
        Value::Array(values) => {
            let mut values: Vec<Value> = values.into_iter().map(normalized).collect();
            values.sort_by_key(Value::to_string);
            values.into()
        }
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

async fn snapshot(side: &Side) -> Value {
    let names = [side.namespace.clone()];
    let mut slices = masked(json!(side.list::<EndpointSlice>().await), &names);
    let mut endpoints = masked(json!(side.list::<Endpoints>().await), &names);
    for list in [&mut slices, &mut endpoints] {
        // The default namespace of the embedded cluster also has the API server's endpoints.
        let list = list.as_array_mut().unwrap();
        list.retain(|object| object["metadata"]["name"] != "kubernetes");
    }
    json!({ "slices": normalized(slices), "endpoints": normalized(endpoints) })
}

async fn compare(pair: &Pair, when: &str) {
    pair.agree(when, async |side| snapshot(side).await).await;
}

/// Proves endpoints/slices, endpoints/legacy, cluster/end-states.
#[tokio::test]
async fn endpoints_follow_the_pods_of_a_service() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        create_node(side).await;
        let ports = json!([
            { "name": "http", "port": 80, "targetPort": "web", "appProtocol": "http" },
            { "name": "plain", "port": 81, "targetPort": 9090 },
            { "name": "other", "port": 82, "targetPort": "unknown" },
        ]);
        side.create::<Service>(json!({
            "metadata": { "name": "web", "labels": { "team": "red" } },
            "spec": { "selector": { "app": "web" }, "ports": ports },
        }))
        .await;
    })
    .await;
    compare(&pair, "no Pods").await;
    pair.both(async |side| {
        pod(side, "a", "10.9.0.1", true).await;
        pod(side, "b", "10.9.0.2", false).await;
    })
    .await;
    compare(&pair, "one of two Pods is ready").await;
    pair.both(async |side| pod(side, "b", "10.9.0.2", true).await)
        .await;
    compare(&pair, "both are ready").await;
    for spec in [
        json!({ "trafficDistribution": "PreferSameZone" }),
        json!({ "trafficDistribution": "PreferSameNode" }),
        json!({ "trafficDistribution": null, "publishNotReadyAddresses": true }),
    ] {
        pair.both(async |side| {
            side.patch::<Service>("web", json!({ "spec": spec })).await;
            pod(side, "b", "10.9.0.2", false).await;
        })
        .await;
        compare(&pair, &spec.to_string()).await;
    }
    pair.both(async |side| {
        let labels = json!({ "metadata": { "labels": { "team": "blue" } } });
        side.patch::<Service>("web", labels).await;
        delete_pod(side, "a").await;
    })
    .await;
    compare(&pair, "one Pod is left, and the labels changed").await;
    pair.both(async |side| delete_pod(side, "b").await).await;
    compare(&pair, "none is left").await;
    pair.both(async |side| {
        let services = side.api::<Service>();
        let params = DeleteParams::default();
        services.delete("web", &params).await.unwrap();
    })
    .await;
    compare(&pair, "deleted").await;
    pair.both(async |side| delete_node(side).await).await;
    pair.stop().await;
}

/// Proves endpoints/slices, endpoints/mirrored, cluster/end-states.
#[tokio::test]
async fn headless_and_user_defined_endpoints_are_listed() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        create_node(side).await;
        side.create::<Service>(json!({
            "metadata": { "name": "web" },
            "spec": { "selector": { "app": "web" }, "clusterIP": "None" },
        }))
        .await;
        pod(side, "a", "10.9.0.1", true).await;
        let subset = json!({
            "addresses": [{ "ip": "192.0.2.1" }, { "ip": "192.0.2.2", "hostname": "two" }],
            "notReadyAddresses": [{ "ip": "2001:db8::1" }],
            "ports": [{ "name": "sql", "port": 5432 }, { "name": "admin", "port": 80 }],
        });
        side.create::<Endpoints>(json!({
            "metadata": {
                "name": "db", "labels": { "team": "red" }, "annotations": { "note": "x" },
            },
            "subsets": [subset],
        }))
        .await;
        let spec =
            json!({ "ports": [{ "name": "sql", "port": 5432 }, { "name": "admin", "port": 80 }] });
        side.create::<Service>(json!({ "metadata": { "name": "db" }, "spec": spec }))
            .await;
    })
    .await;
    compare(&pair, "created").await;
    pair.both(async |side| {
        let subset = json!({
            "addresses": [{ "ip": "192.0.2.3" }], "ports": [{ "name": "sql", "port": 5432 }],
        });
        side.patch::<Endpoints>("db", json!({ "subsets": [subset] }))
            .await;
    })
    .await;
    compare(&pair, "moved").await;
    pair.both(async |side| {
        let label = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
        side.patch::<Endpoints>("db", json!({ "metadata": { "labels": label } }))
            .await;
    })
    .await;
    compare(&pair, "not mirrored").await;
    // Unlike upstream, the endpoints of a Pod whose node is gone are removed immediately.
    pair.both(async |side| delete_node(side).await).await;
    pair.stop().await;
}
