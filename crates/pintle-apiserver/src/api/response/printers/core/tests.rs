use jiff::Timestamp;
use serde_json::json;

use super::*;

fn shown(cells: fn(&Fields<'_>) -> Vec<Value>, object: &Value, at: usize) -> Value {
    let now = Timestamp::UNIX_EPOCH;
    cells(&Fields { object, now })[at].clone()
}

/// Proves wire/tables.
#[test]
fn service_row_shows_external_addresses() {
    let balanced = json!([{"ip": "10.0.0.2"}, {"hostname": "b"}, {"ip": "10.0.0.2"}]);
    for (kind, outside, ingress, word) in [
        ("ClusterIP", json!([]), json!(null), "<none>"),
        ("NodePort", json!(["10.0.0.1"]), json!(null), "10.0.0.1"),
        ("LoadBalancer", json!([]), json!(null), "<pending>"),
        (
            "LoadBalancer",
            json!(["10.0.0.1"]),
            balanced,
            "10.0.0.2,b,10.0.0.1",
        ),
    ] {
        let object = json!({"spec": {"type": kind, "externalIPs": outside},
                "status": {"loadBalancer": {"ingress": ingress}}});
        assert_eq!(shown(service, &object, 3), word);
    }
    let named = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    assert_eq!(shown(service, &named, 3), "example.com");
}

/// Proves wire/tables.
#[test]
fn endpoints_show_the_first_three() {
    let cell = |fields: &Fields<'_>| vec![endpoints(fields)];
    assert_eq!(shown(cell, &json!({}), 0), "<none>");
    let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "::1"}]);
    let bare = json!({"subsets": [{"addresses": addresses}]});
    assert_eq!(shown(cell, &bare, 0), "10.0.0.1,::1");
    let ports = json!([{"port": 1}, {"port": 2}]);
    let many = json!({"subsets": [{"addresses": addresses, "ports": ports}]});
    assert_eq!(
        shown(cell, &many, 0),
        "10.0.0.1:1,[::1]:1,10.0.0.1:2 + 1 more..."
    );
}

#[test]
fn quota_row_separates_requests_and_limits() {
    let object = json!({"status": {"hard": {"pods": "4", "limits.cpu": "2"},
            "used": {"pods": "1", "limits.cpu": "500m"}}});
    assert_eq!(shown(quota, &object, 1), "pods: 1/4");
    assert_eq!(shown(quota, &object, 2), "limits.cpu: 500m/2");
}

#[test]
fn node_row_shows_its_roles() {
    let labels = json!({"node-role.kubernetes.io/control-plane": "",
            "kubernetes.io/role": "builder", "x": "y"});
    let object = json!({"metadata": {"labels": labels}});
    assert_eq!(shown(node, &object, 2), "builder,control-plane");
    assert_eq!(shown(node, &json!({}), 2), "<none>");
}
