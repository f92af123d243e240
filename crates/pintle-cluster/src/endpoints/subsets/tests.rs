use serde_json::{Value, json};

use super::*;

fn service(spec: &Value) -> Service {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "labels": { "team": "red" } },
        "spec": spec,
    }))
    .unwrap()
}

fn ports() -> Value {
    json!([{ "name": "a", "port": 80, "targetPort": 8080 }, { "name": "b", "port": 81 }])
}

fn pods(ready: usize, unready: usize) -> Vec<Arc<Pod>> {
    let pod = |number: usize| {
        let address = format!("10.244.{}.{}", number / 250, number % 250 + 1);
        let status = if number < ready { "True" } else { "False" };
        let pod = json!({
            "metadata": { "name": format!("web-{number:04}"), "uid": format!("uid-{number}") },
            "spec": { "nodeName": "node-0", "containers": [] },
            "status": {
                "phase": "Running", "podIPs": [{ "ip": address }],
                "conditions": [{ "type": "Ready", "status": status }],
            },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    (0..ready + unready).map(pod).collect()
}

/// Returns (ready, not ready, ports) of each subset.
fn shape(endpoints: &Endpoints) -> Vec<(usize, usize, usize)> {
    let subsets = endpoints.subsets.iter().flatten();
    subsets
        .map(|subset| {
            let len = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
            let ports = subset.ports.as_ref().map_or(0, Vec::len);
            (
                len(&subset.addresses),
                len(&subset.not_ready_addresses),
                ports,
            )
        })
        .collect()
}

/// Proves endpoints/legacy.
#[test]
fn addresses_with_the_same_ports_share_a_subset() {
    let service = service(&json!({ "clusterIP": "10.96.0.7", "selector": {}, "ports": ports() }));
    let endpoints = plan(&service, &pods(2, 1), None).unwrap();
    assert_eq!(shape(&endpoints), [(2, 1, 2)]);
    let labels =
        json!({ "team": "red", "endpoints.kubernetes.io/managed-by": "endpoint-controller" });
    assert_eq!(json!(endpoints.metadata.labels), labels);
    assert_eq!(plan(&service, &pods(2, 1), Some(&endpoints)), None);
    let emptied = plan(&service, &[], Some(&endpoints)).unwrap();
    assert_eq!(emptied.subsets, None);
    assert_eq!(plan(&service, &[], Some(&emptied)), None);
}

/// Proves endpoints/legacy.
#[test]
fn headless_service_needs_no_ports() {
    let headless = service(&json!({ "clusterIP": "None", "selector": {} }));
    let endpoints = plan(&headless, &pods(1, 1), None).unwrap();
    assert_eq!(shape(&endpoints), [(1, 1, 0)]);
    assert_eq!(meta::labels(&endpoints.metadata)[HEADLESS], "");
    let publishing = json!({ "clusterIP": "None", "publishNotReadyAddresses": true });
    let endpoints = plan(&service(&publishing), &pods(1, 1), None).unwrap();
    assert_eq!(shape(&endpoints), [(2, 0, 0)]);
}

/// Proves endpoints/legacy.
#[test]
fn addresses_are_limited_to_a_thousand() {
    let service = service(&json!({ "clusterIP": "10.96.0.7", "ports": [{ "port": 80 }] }));
    let over = |endpoints: &Endpoints| {
        meta::annotation(&endpoints.metadata, OVER_CAPACITY).map(str::to_owned)
    };
    let endpoints = plan(&service, &pods(900, 200), None).unwrap();
    assert_eq!(shape(&endpoints), [(900, 100, 1)]);
    assert_eq!(over(&endpoints).as_deref(), Some("truncated"));
    assert_eq!(plan(&service, &pods(900, 200), Some(&endpoints)), None);
    let endpoints = plan(&service, &pods(1100, 5), Some(&endpoints)).unwrap();
    assert_eq!(shape(&endpoints), [(1000, 0, 1)]);
    let endpoints = plan(&service, &pods(10, 0), Some(&endpoints)).unwrap();
    assert_eq!(
        (shape(&endpoints), over(&endpoints)),
        (vec![(10, 0, 1)], None)
    );
}

/// Proves endpoints/legacy.
#[test]
fn subsets_are_packed_by_addresses() {
    let subsets = json!([
        { "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 80 }] },
        { "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 81 }] },
        { "notReadyAddresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 82 }] },
        { "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 82 }] },
    ]);
    let subsets: Vec<EndpointSubset> = serde_json::from_value(subsets).unwrap();
    let packed = json!([
        { "notReadyAddresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 82 }] },
        { "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 80 }, { "port": 81 }] },
    ]);
    assert_eq!(json!(repack(&subsets)), packed);
}
