use serde_json::{Value, json};

use super::*;

fn endpoints(subsets: &Value) -> Endpoints {
    serde_json::from_value(json!({
        "metadata": {
            "name": "db", "namespace": "default", "uid": "endpoints",
            "labels": { "team": "red" },
            "annotations": { "note": "x", LAST_APPLIED: "{}" },
        },
        "subsets": subsets,
    }))
    .unwrap()
}

fn service(spec: &Value) -> Service {
    serde_json::from_value(json!({ "metadata": { "name": "db" }, "spec": spec })).unwrap()
}

/// Returns the slices as stored.
fn stored(changes: Changes) -> Vec<Arc<EndpointSlice>> {
    let slices = changes.create.into_iter().enumerate();
    slices
        .map(|(number, mut slice)| {
            slice.metadata.name = Some(format!("db-{number}"));
            Arc::new(slice)
        })
        .collect()
}

/// Proves endpoints/mirrored.
#[test]
fn each_family_gets_a_slice() {
    let both = endpoints(&json!([{
        "addresses": [{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }],
        "notReadyAddresses": [{ "ip": "192.0.2.2" }],
        "ports": [{ "port": 5432, "protocol": "TCP" }],
    }]));
    let slices = stored(plan(&both, &[]).changes);
    let seen: Vec<(&str, Vec<bool>)> = slices
        .iter()
        .map(|slice| {
            let endpoints = slice.endpoints.iter().flatten();
            let ready = endpoints.map(|it| it.conditions.as_ref().unwrap().ready.unwrap());
            (slice.address_type.as_str(), ready.collect())
        })
        .collect();
    assert_eq!(seen, [("IPv4", vec![true, false]), ("IPv6", vec![true])]);
    assert_eq!(
        json!(slices[0].metadata.annotations),
        json!({ "note": "x" })
    );
    let labels = json!({ "team": "red", SERVICE_NAME: "db", MANAGED_BY: MANAGER });
    assert_eq!(json!(slices[0].metadata.labels), labels);
    assert_eq!(plan(&both, &slices), Mirror::default());

    let none = plan(&endpoints(&json!([])), &slices).changes;
    assert_eq!(none.delete, ["db-0", "db-1"]);
    let moved = json!([{ "addresses": [{ "ip": "192.0.2.1" }], "ports": [{ "port": 1 }] }]);
    let changes = plan(&endpoints(&moved), &slices).changes;
    assert_eq!(changes.update[0].metadata.name.as_deref(), Some("db-0"));
    assert_eq!(
        (changes.create.len(), changes.delete),
        (0, vec!["db-1".to_owned()])
    );
}

/// Proves endpoints/mirrored.
#[test]
fn large_subsets_are_truncated() {
    let addresses: Vec<Value> = (0..1003)
        .map(|number| json!({ "ip": format!("10.1.{}.{}", number / 250, number % 250) }))
        .collect();
    let large = endpoints(&json!([{ "addresses": addresses, "ports": [{ "port": 1 }] }]));
    let mirror = plan(&large, &[]);
    assert_eq!(mirror.skipped, 3);
    assert_eq!(
        mirror.changes.create[0].endpoints.as_ref().unwrap().len(),
        CAPACITY
    );
}

/// Proves endpoints/mirrored.
#[test]
fn only_endpoints_of_services_without_selector_are_mirrored() {
    let plain = endpoints(&json!([]));
    assert!(is_mirrored(&plain, Some(&service(&json!({})))));
    assert!(!is_mirrored(&plain, None));
    let selecting = service(&json!({ "selector": { "app": "db" } }));
    assert!(!is_mirrored(&plain, Some(&selecting)));
    let mut skipped = plain.clone();
    let labels = [(SKIP.to_owned(), "true".to_owned())];
    skipped.metadata.labels = Some(labels.into());
    assert!(!is_mirrored(&skipped, Some(&service(&json!({})))));
}
