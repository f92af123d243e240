use jiff::Timestamp;
use serde_json::json;

use super::*;

fn shown(cells: fn(&Fields<'_>) -> Vec<Value>, object: &Value, at: usize) -> Value {
    let now = Timestamp::UNIX_EPOCH;
    cells(&Fields { object, now })[at].clone()
}

#[test]
fn ingress_row_shows_hosts_and_addresses() {
    let rule = |host: &str| json!({ "host": host });
    let rules = ["a", "b", "c", "d", "e"].map(rule);
    for (rules, text) in [
        (json!([]), "*"),
        (json!([{}]), "*"),
        (json!(rules[..3]), "a,b,c"),
        (json!(rules), "a,b,c + 2 more..."),
    ] {
        let object = json!({"spec": {"rules": rules}});
        assert_eq!(shown(ingress, &object, 2), text);
    }
    let reached = json!({"spec": {"tls": [{}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"hostname": "b"}]}}});
    assert_eq!(shown(ingress, &reached, 3), "10.0.0.2,b");
    assert_eq!(shown(ingress, &reached, 4), "80, 443");
}

#[test]
fn endpoint_slice_row_shows_ports_and_addresses() {
    let endpoints = json!([{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]);
    let slice = json!({"ports": [{"port": 443}, {"name": "any"}, {}], "endpoints": endpoints});
    assert_eq!(shown(endpoint_slice, &slice, 2), "443,any,*");
    assert_eq!(shown(endpoint_slice, &slice, 3), "10.0.0.1,10.0.0.2");
    assert_eq!(shown(endpoint_slice, &json!({}), 2), "<unset>");
}

#[test]
fn classes_and_addresses_show_their_references() {
    let class = json!({"metadata": {"name": "web",
            "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"parameters": {"apiGroup": "k8s.example.com", "kind": "P", "name": "x"}}});
    assert_eq!(shown(ingress_class, &class, 0), "web (default)");
    assert_eq!(shown(ingress_class, &class, 2), "P.k8s.example.com/x");
    let address = json!({"spec": {"parentRef": {"group": "", "resource": "services",
            "namespace": "default", "name": "kubernetes"}}});
    let cell = |fields: &Fields<'_>| vec![parent(fields)];
    assert_eq!(shown(cell, &address, 0), "services/default/kubernetes");
}
