use serde_json::json;

use super::*;
use crate::{ApiServer, api::request::options::WriteOptions, registry::Resource, store::DECODED};

fn create(api: &Api, services: &Arc<Resource>, name: &str) -> Result<(), ApiError> {
    let Value::Object(service) = json!({"metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    else {
        panic!("expected an object")
    };
    let options = WriteOptions::default();
    api.create_unasked(services, Some("default"), service, &options)
        .map(|_| ())
}

/// Proves objects/linear-installs.
#[test]
fn allocation_decodes_each_service_once() {
    let api = Arc::clone(&ApiServer::builder().build().api);
    let catalog = api.registry.catalog();
    let services = catalog.find("", "v1", "services").unwrap();
    let mut work = Vec::new();
    for batch in 0..3 {
        DECODED.set(0);
        for i in 0..100 {
            create(&api, services, &format!("s{batch}-{i}")).unwrap();
        }
        work.push(DECODED.get());
    }
    // The first batch also reads the services that exist at the start.
    assert!(work[1] <= work[0] && work[2] == work[1], "{work:?}");
    assert!(work[2] <= 200, "{work:?}");
}
