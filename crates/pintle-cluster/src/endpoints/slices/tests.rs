use serde_json::{Value, json};

use super::*;

fn service(spec: &Value) -> Service {
    let mut service = json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "service", "labels": { "team": "red" },
        },
        "spec": {
            "clusterIP": "10.96.0.7",
            "ipFamilies": ["IPv4"],
            "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    serde_json::from_value(service).unwrap()
}

fn pod(number: usize, status: &Value) -> Value {
    let address = format!("10.244.{}.{}", number / 250, number % 250 + 1);
    let mut pod = json!({
        "metadata": { "name": format!("web-{number:04}"), "namespace": "default" },
        "spec": {
            "nodeName": "node-0",
            "containers": [{ "name": "main", "ports": [{ "name": "http", "containerPort": 8080 }] }],
        },
        "status": {
            "phase": "Running",
            "podIPs": [{ "ip": address }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    for (key, value) in status.as_object().unwrap() {
        pod["status"][key] = value.clone();
    }
    pod
}

fn decoded(pod: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn pods(numbers: impl IntoIterator<Item = usize>) -> Vec<Arc<Pod>> {
    let numbers = numbers.into_iter();
    numbers
        .map(|number| decoded(pod(number, &json!({}))))
        .collect()
}

fn zones() -> Zones {
    [("node-0".to_owned(), Some("a".to_owned()))].into()
}

/// Applies changes as a server would. Created slices are named by their number.
fn apply(slices: &mut Vec<Arc<EndpointSlice>>, changes: Changes) {
    slices.retain(|slice| {
        !changes
            .delete
            .contains(&meta::name(&slice.metadata).to_owned())
    });
    for update in changes.update {
        let at = slices
            .iter()
            .position(|it| it.metadata.name == update.metadata.name);
        slices[at.unwrap()] = Arc::new(update);
    }
    for mut create in changes.create {
        create.metadata.name = Some(format!("web-{}", slices.len()));
        slices.push(Arc::new(create));
    }
}

/// Reconciles once, asserts that nothing is left to change, and returns the changes.
fn converged(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: &mut Vec<Arc<EndpointSlice>>,
) -> Changes {
    let changes = plan(service, pods, &zones(), slices);
    apply(slices, changes.clone());
    assert_eq!(plan(service, pods, &zones(), slices), Changes::default());
    changes
}

fn lengths(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    slices.iter().map(|slice| len(slice)).collect()
}

fn conditions(endpoint: &Endpoint) -> (bool, bool, bool) {
    let conditions = endpoint.conditions.as_ref().unwrap();
    (
        conditions.ready.unwrap(),
        conditions.serving.unwrap(),
        conditions.terminating.unwrap(),
    )
}

/// Proves endpoints/slices.
#[test]
fn slice_describes_its_service_and_pods() {
    let mut slices = Vec::new();
    let service = service(&json!({ "trafficDistribution": "PreferSameNode" }));
    converged(&service, &pods([1]), &mut slices);
    assert_eq!(
        serde_json::to_value(&*slices[0]).unwrap(),
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "web-0",
                "generateName": "web-",
                "namespace": "default",
                "labels": {
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                    "kubernetes.io/service-name": "web",
                    "team": "red",
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{
                "addresses": ["10.244.0.2"],
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "hints": { "forNodes": [{ "name": "node-0" }], "forZones": [{ "name": "a" }] },
                "nodeName": "node-0",
                "targetRef": { "kind": "Pod", "namespace": "default", "name": "web-0001" },
                "zone": "a",
            }],
        })
    );
}

/// Proves endpoints/slices.
#[test]
fn slices_hold_a_hundred_endpoints_and_change_little() {
    let (service, mut slices) = (service(&json!({})), Vec::new());
    converged(&service, &pods(0..250), &mut slices);
    assert_eq!(lengths(&slices), [100, 100, 50]);
    // The slice that loses ten endpoints also receives the new ones.
    let some = || (10..250).chain(300..303);
    let changes = converged(&service, &pods(some()), &mut slices);
    assert_eq!((changes.update.len(), changes.create.len()), (1, 0));
    assert_eq!(lengths(&slices), [93, 100, 50]);
    // The fullest slice with enough room receives new endpoints.
    let changes = converged(&service, &pods(some().chain(400..404)), &mut slices);
    assert_eq!((changes.update.len(), changes.create.len()), (1, 0));
    assert_eq!(lengths(&slices), [97, 100, 50]);
    converged(&service, &pods(240..250), &mut slices);
    assert_eq!(lengths(&slices), [10]);
    // The empty slice remains as a placeholder.
    converged(&service, &[], &mut slices);
    assert_eq!(
        (lengths(&slices), slices[0].ports.clone()),
        (vec![0], Some(vec![]))
    );
}

/// Proves endpoints/slices.
#[test]
fn conditions_follow_the_pod() {
    let not_ready = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
    let finished = json!({ "phase": "Succeeded" });
    let no_address = json!({ "podIPs": null });
    let mut terminating = pod(3, &json!({}));
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let pods = [
        pod(1, &json!({})),
        pod(2, &not_ready),
        terminating,
        pod(4, &finished),
        pod(5, &no_address),
    ];
    let pods = pods.map(decoded);
    let seen = |spec: &Value| {
        let mut slices = Vec::new();
        converged(&service(spec), &pods, &mut slices);
        let endpoints = slices[0].endpoints.iter().flatten();
        endpoints.map(conditions).collect::<Vec<_>>()
    };
    let expected = [
        (true, true, false),
        (false, false, false),
        (false, true, true),
    ];
    assert_eq!(seen(&json!({})), expected);
    let published = [
        (true, true, false),
        (true, false, false),
        (true, true, true),
    ];
    assert_eq!(
        seen(&json!({ "publishNotReadyAddresses": true })),
        published
    );
}

/// Proves endpoints/slices.
#[test]
fn pods_with_other_ports_or_families_get_other_slices() {
    let mut other = pod(
        2,
        &json!({ "podIPs": [{ "ip": "10.244.0.9" }, { "ip": "fd00::9" }] }),
    );
    other["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9090);
    let pods = [decoded(pod(1, &json!({}))), decoded(other)];
    let dual = service(&json!({ "ipFamilies": ["IPv4", "IPv6"] }));
    let mut slices = Vec::new();
    converged(&dual, &pods, &mut slices);
    let mut found: Vec<_> = slices
        .iter()
        .map(|slice| {
            let port = slice.ports.as_ref().and_then(|ports| ports.first()?.port);
            (slice.address_type.as_str(), port, len(slice))
        })
        .collect();
    found.sort_unstable();
    let expected = [
        ("IPv4", Some(8080), 1),
        ("IPv4", Some(9090), 1),
        ("IPv6", Some(9090), 1),
    ];
    assert_eq!(found, expected);
    // The Service drops a family.
    converged(&service(&json!({})), &pods, &mut slices);
    assert!(slices.iter().all(|slice| slice.address_type == "IPv4"));
}

/// Proves endpoints/slices.
#[test]
fn slices_of_an_earlier_service_are_replaced() {
    let mut slices = Vec::new();
    let mut earlier = service(&json!({}));
    earlier.metadata.uid = Some("earlier".into());
    converged(&earlier, &pods([1]), &mut slices);
    let changes = converged(&service(&json!({})), &pods([1]), &mut slices);
    assert_eq!((changes.delete.len(), changes.create.len()), (1, 1));
    // Changed ports reuse the slice.
    let ports = json!([{ "name": "http", "port": 80, "targetPort": 81, "protocol": "TCP" }]);
    let changes = converged(
        &service(&json!({ "ports": ports })),
        &pods([1]),
        &mut slices,
    );
    assert_eq!((changes.update.len(), changes.create.len()), (1, 0));
}

/// Proves endpoints/slices.
#[test]
fn pods_on_unknown_nodes_and_of_deleted_services_are_left_out() {
    let none = Zones::new();
    let changes = plan(&service(&json!({})), &pods([1]), &none, &[]);
    assert_eq!(len(&changes.create[0]), 0);
    let publishing = service(&json!({ "publishNotReadyAddresses": true }));
    assert_eq!(len(&plan(&publishing, &pods([1]), &none, &[]).create[0]), 1);
    let mut deleted = service(&json!({}));
    let time = meta::time("2026-01-01T00:00:00Z".parse().unwrap());
    deleted.metadata.deletion_timestamp = Some(time);
    assert_eq!(
        plan(&deleted, &pods([1]), &zones(), &[]),
        Changes::default()
    );
}
