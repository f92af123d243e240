use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// Proves nodes/simulated.
#[test]
fn node_reports_readiness_and_address() {
    let registered = node(3);
    assert!(!is_healthy(&registered));
    let node = Node {
        status: Some(status(3, at(0))),
        ..registered
    };
    assert!(is_healthy(&node));
    assert_eq!(address_of(&node), Some(Ipv4Addr::new(10, 0, 0, 4)));

    assert_eq!(without_not_ready_taint(&node), None);
    let taints = serde_json::json!({ "taints": [
        { "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" },
        { "key": "gpu", "effect": "NoSchedule" },
    ]});
    let tainted = Node {
        spec: serde_json::from_value(taints).unwrap(),
        ..node
    };
    let untainted = without_not_ready_taint(&tainted).unwrap();
    assert_eq!(
        untainted.spec.unwrap().taints.unwrap().len(),
        1,
        "other taints stay"
    );
}

/// Proves nodes/simulated.
#[test]
fn lease_is_owned_by_its_node_and_renewed_in_place() {
    let mut node = node(0);
    node.metadata.uid = Some("uid-of-node".into());
    let acquired = lease(&node, None, at(0));
    assert_eq!(
        acquired.metadata.owner_references.as_ref().unwrap()[0].uid,
        "uid-of-node"
    );
    let renewed = lease(&node, Some(&acquired), at(10));
    assert_eq!(renewed.metadata, acquired.metadata);
    assert_eq!(renewed.spec.unwrap().renew_time, Some(MicroTime(at(10))));
}
