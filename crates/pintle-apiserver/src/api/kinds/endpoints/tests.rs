use std::{sync::Barrier, thread};

use super::*;
use crate::ApiServer;

fn announced(api: &Api, group: &str, plural: &str) -> Value {
    let catalog = api.registry.catalog();
    let collection = catalog
        .find(group, "v1", plural)
        .unwrap()
        .collection
        .unwrap();
    let object = api.store.get(collection, "default/kubernetes").unwrap();
    Value::Object(object.decode())
}

/// Proves bootstrap/objects.
#[test]
fn closed_listeners_leave_no_address() {
    let api = Arc::clone(&ApiServer::builder().build().api);
    for round in 0..20 {
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for port in 1..=4 {
                let (api, start) = (&api, &start);
                scope.spawn(move || {
                    let bound = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                    start.wait();
                    for _ in 0..25 {
                        drop(Announced::new(api, bound));
                    }
                });
            }
        });
        let endpoints = announced(&api, "", "endpoints");
        assert_eq!(endpoints["subsets"], Value::Null, "round {round}");
        let slice = announced(&api, "discovery.k8s.io", "endpointslices");
        assert_eq!(slice["endpoints"], json!([]), "round {round}");
    }
}
