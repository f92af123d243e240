//! Services: allocation of cluster IPs and node ports.

use std::{collections::BTreeSet, sync::Arc};

use crate::support::*;
use futures::FutureExt;
use parking_lot::Mutex;
use pintle_apiserver::{ApiServer, Points, Write};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Returns the field and message of each cause.
fn field_errors(answer: &Value) -> Vec<(String, String)> {
    let causes = answer["details"]["causes"].as_array().unwrap();
    let part = |cause: &Value, part: &str| cause[part].as_str().unwrap().to_owned();
    let error = |cause| (part(cause, "field"), part(cause, "message"));
    causes.iter().map(error).collect()
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn allocations_are_exclusive_until_released() {
    let server = server();
    let http = http(&server);
    let wanted = json!({"type": "NodePort", "clusterIP": "10.96.0.77",
        "ports": [{"port": 80, "nodePort": 30077}]});
    let (code, _) = http.post(SERVICES, &service("a", &wanted)).await;
    assert_eq!(code, 201);
    let (code, answer) = http.post(SERVICES, &service("b", &wanted)).await;
    assert_eq!(code, 422);
    let why = "Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: \
               provided IP is already allocated";
    assert_eq!(
        field_errors(&answer),
        [("spec.clusterIPs".into(), why.into())]
    );
    let mut ports = wanted.clone();
    ports.as_object_mut().unwrap().remove("clusterIP");
    let (code, answer) = http.post(SERVICES, &service("b", &ports)).await;
    assert_eq!(code, 422);
    let why = "Invalid value: 30077: provided port is already allocated";
    let at = "spec.ports[0].nodePort";
    assert_eq!(field_errors(&answer), [(at.into(), why.into())]);
    assert_eq!(http.delete(&format!("{SERVICES}/a")).await.0, 200);
    let (code, _) = http.post(SERVICES, &service("b", &wanted)).await;
    assert_eq!(code, 201);
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn invalid_ips_ports_and_families_are_rejected() {
    let server = server();
    let http = http(&server);
    let port = |port: u64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let address = |address: &str| json!({"clusterIP": address, "ports": [{"port": 80}]});
    let cases = [
        (port(80), "spec.ports[0].nodePort"),
        (port(32_768), "spec.ports[0].nodePort"),
        (address("10.97.0.1"), "spec.clusterIPs"),
        (address("10.96.0.0"), "spec.clusterIPs"),
        (address("10.96.255.255"), "spec.clusterIPs"),
        (address("fd00::1"), "spec.clusterIPs[0]"),
        (
            json!({"ipFamilies": ["IPv6"], "ports": [{"port": 80}]}),
            "spec.ipFamilies[0]",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}),
            "spec.ipFamilyPolicy",
        ),
    ];
    for (spec, field) in cases {
        let (code, answer) = http.post(SERVICES, &service("s", &spec)).await;
        assert_eq!(code, 422, "{spec}");
        assert_eq!(field_errors(&answer)[0].0, field, "{spec}");
    }
    let (code, _) = http.post(SERVICES, &service("s", &port(32_767))).await;
    assert_eq!(code, 201, "the last port is valid");
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn type_change_allocates_and_releases_ports() {
    let server = server();
    let http = http(&server);
    let one = format!("{SERVICES}/s");
    let spec = json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
    let (_, made) = http.post(SERVICES, &service("s", &spec)).await;
    let to = |kind: &str| json!({"spec": {"type": kind}});
    let (code, public) = http.merge(&one, &to("NodePort")).await;
    assert_eq!(code, 200, "{public}");
    let ports = |service: &Value| -> Vec<Option<u64>> {
        let ports = service["spec"]["ports"].as_array().unwrap();
        ports.iter().map(|port| port["nodePort"].as_u64()).collect()
    };
    let given: BTreeSet<u64> = ports(&public).into_iter().flatten().collect();
    assert_eq!(given.len(), 2);
    assert_eq!(public["spec"]["clusterIP"], made["spec"]["clusterIP"]);

    // An update that omits the allocations keeps them.
    let mut again = service("s", &spec);
    again["spec"]["type"] = json!("NodePort");
    let (code, replaced) = http.put(&one, &again).await;
    assert_eq!((code, ports(&replaced)), (200, ports(&public)));
    assert_eq!(replaced["spec"], public["spec"]);

    let (code, inside) = http.merge(&one, &to("ClusterIP")).await;
    assert_eq!((code, ports(&inside)), (200, vec![None, None]));
    assert_eq!(inside["spec"]["externalTrafficPolicy"], Value::Null);
    let taken = *given.first().unwrap();
    let next = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": taken}]});
    assert_eq!(http.post(SERVICES, &service("t", &next)).await.0, 201);

    let outside = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let (code, outside) = http.merge(&one, &outside).await;
    assert_eq!(code, 200, "{outside}");
    assert_eq!(outside["spec"]["clusterIP"], Value::Null);
    let (code, back) = http.merge(&one, &to("ClusterIP")).await;
    assert_eq!(code, 200, "{back}");
    assert!(back["spec"]["clusterIP"].is_string());
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn addresses_match_their_ip_families() {
    let server = server();
    let http = http(&server);
    let with = |mut spec: Value, more: &Value| {
        let more = more.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(more);
        spec
    };
    let two = json!({"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "10.96.0.6"]});
    let prefer = json!({"ipFamilyPolicy": "PreferDualStack"});
    let none = json!({"clusterIP": "None", "clusterIPs": ["None", "10.96.0.6"]});
    let cases = [
        (two.clone(), "spec.clusterIPs"),
        (with(two, &prefer), "spec.clusterIPs"),
        (with(none, &prefer), "spec.clusterIPs"),
        (
            json!({"clusterIP": "fd00::1", "ipFamilies": ["IPv4"]}),
            "spec.clusterIPs[0]",
        ),
        (
            json!({"clusterIP": "10.96.0.5", "ipFamilies": ["IPv6"]}),
            "spec.clusterIPs[0]",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv4"]}),
            "spec.ipFamilies[1]",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy",
        ),
    ];
    for (spec, field) in cases {
        let spec = with(spec, &json!({"ports": [{"port": 80}]}));
        let (code, answer) = http.post(SERVICES, &service("s", &spec)).await;
        assert_eq!(code, 422, "{spec}");
        assert_eq!(field_errors(&answer)[0].0, field, "{spec}");
    }
    let (code, made) = http
        .post(SERVICES, &service("s", &json!({"clusterIP": "None"})))
        .await;
    assert_eq!(
        (code, &made["spec"]["ipFamilies"]),
        (201, &json!(["IPv4", "IPv6"]))
    );
    let one = format!("{SERVICES}/s");
    let fewer = json!({"spec": {"ipFamilies": ["IPv4"]}});
    assert_eq!(
        http.merge(&one, &fewer).await.0,
        422,
        "the policy requires both families"
    );
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let (code, changed) = http.merge(&one, &single).await;
    assert_eq!(
        (code, &changed["spec"]["ipFamilies"]),
        (200, &json!(["IPv4"]))
    );
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn node_ports_of_a_load_balancer_can_be_dropped() {
    let server = server();
    let http = http(&server);
    let one = format!("{SERVICES}/s");
    let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    let (_, made) = http.post(SERVICES, &service("s", &spec)).await;
    assert!(made["spec"]["ports"][0]["nodePort"].is_u64());
    spec["allocateLoadBalancerNodePorts"] = json!(false);
    let (code, bare) = http.put(&one, &service("s", &spec)).await;
    assert_eq!(
        (code, &bare["spec"]["ports"][0]["nodePort"]),
        (200, &Value::Null)
    );
    let outside = json!({"spec": {"type": "ExternalName", "externalName": "example.com",
        "clusterIP": "10.96.0.6"}});
    let (code, answer) = http.merge(&one, &outside).await;
    assert_eq!(code, 422);
    assert_eq!(field_errors(&answer)[0].0, "spec.clusterIPs");
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn exhausted_node_ports_are_reported() {
    let server = server();
    let http = http(&server);
    // One Service with two thousand ports is cheaper than two thousand Services.
    let ports = |from: u64, count: u64| -> Value {
        let port = |n: u64| json!({"name": format!("p{n}"), "port": n});
        json!({"type": "NodePort", "ports": (from..from + count).map(port).collect::<Vec<_>>()})
    };
    let (code, _) = http.post(SERVICES, &service("a", &ports(1, 2_682))).await;
    assert_eq!(code, 201);
    let asked_for = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_085}]});
    let (code, _) = http.post(SERVICES, &service("b", &asked_for)).await;
    assert_eq!(code, 201, "the static band is used last");
    let (code, _) = http.post(SERVICES, &service("c", &ports(1, 85))).await;
    assert_eq!(code, 201);
    let (code, answer) = http.post(SERVICES, &service("d", &ports(1, 1))).await;
    assert_eq!(code, 500, "{answer}");
    let why = "Internal error occurred: failed to allocate a nodePort: range is full";
    assert_eq!(answer["message"], why);
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn same_port_of_two_protocols_shares_a_node_port() {
    let server = server();
    let http = http(&server);
    let spec = json!({"type": "NodePort", "ports": [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30053},
        {"name": "other", "port": 54},
    ]});
    let (code, made) = http.post(SERVICES, &service("dns", &spec)).await;
    assert_eq!(code, 201, "{made}");
    let port = |i: usize| made["spec"]["ports"][i]["nodePort"].as_u64().unwrap();
    assert_eq!((port(0), port(1)), (30053, 30053));
    assert_ne!(port(2), 30053);
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn local_traffic_policy_allocates_a_health_port() {
    let server = server();
    let http = http(&server);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "ports": [{"port": 80}]});
    let (code, made) = http.post(SERVICES, &service("s", &spec)).await;
    assert_eq!(code, 201, "{made}");
    let checked = made["spec"]["healthCheckNodePort"].as_u64().unwrap();
    let next = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": checked}]});
    assert_eq!(http.post(SERVICES, &service("t", &next)).await.0, 422);
    let one = format!("{SERVICES}/s");
    let policy = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    let (code, changed) = http.merge(&one, &policy).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["spec"]["healthCheckNodePort"], Value::Null);
}

/// A hook that creates a Service while another one is about to be committed.
#[derive(Clone, Default)]
struct Between(Arc<Mutex<Option<(ApiServer, Value)>>>, Arc<Mutex<Vec<u16>>>);

impl Points for Between {
    fn before_commit(&self, _: &Write<'_>) {
        let Some((server, service)) = self.0.lock().take() else {
            return;
        };
        let made = http(&server).post(SERVICES, &service).now_or_never();
        self.1.lock().push(made.unwrap().0);
    }
}

/// Proves objects/service-allocation.
#[tokio::test]
async fn uncommitted_allocations_are_reserved() {
    let between = Between::default();
    let server = ApiServer::builder().points(between.clone()).build();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30078}]});
    *between.0.lock() = Some((server.clone(), service("b", &spec)));
    let (code, _) = http(&server).post(SERVICES, &service("a", &spec)).await;
    assert_eq!((code, between.1.lock().as_slice()), (201, &[422][..]));
}
