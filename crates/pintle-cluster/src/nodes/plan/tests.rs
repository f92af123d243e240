use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// Proves nodes/simulated.
#[test]
fn node_reports_its_conditions_once() {
    let template = NodeTemplate::new("a").allocatable("cpu", "2");
    let mut node = node(&template);
    let mut says = |behavior: NodeBehavior, now| {
        let status = report(&node, &template, 3, &Ok(behavior), at(now))?;
        node.status = Some(status.clone());
        Some(status.conditions.unwrap())
    };
    let statuses = |conditions: &[NodeCondition]| -> Vec<String> {
        conditions.iter().map(|it| it.status.clone()).collect()
    };
    let healthy = says(NodeBehavior::healthy(), 0).unwrap();
    assert_eq!(statuses(&healthy), ["False", "False", "False", "True"]);
    assert_eq!(says(NodeBehavior::healthy(), 5), None);
    let full = says(NodeBehavior::healthy().disk_full(), 9).unwrap();
    assert_eq!(statuses(&full), ["False", "True", "False", "True"]);
    let since = |index: usize| full[index].last_transition_time.as_ref().unwrap().0;
    assert_eq!((since(0), since(1)), (at(0), at(9)));
    assert_eq!(address_of(&node), Some(Ipv4Addr::new(10, 0, 0, 4)));
    let allocatable = node.status.as_ref().unwrap().allocatable.as_ref().unwrap();
    assert_eq!(allocatable["cpu"].0, "2");
    let invalid = "on fire".parse::<NodeBehavior>();
    let status = report(&node, &template, 3, &invalid, at(9)).unwrap();
    let conditions = status.conditions.unwrap();
    assert_eq!(conditions[3].reason.as_deref(), Some("InvalidBehavior"));
}

/// Proves nodes/simulated.
#[test]
fn lease_is_owned_by_its_node_and_renewed_in_place() {
    let mut node = node(&NodeTemplate::new("a"));
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
