use crate::{ApiServer, registry::Resource, store::Snapshot};

#[test]
fn seeds_are_encoded_like_writes() {
    let api = ApiServer::builder().seed(1).build().api;
    let catalog = api.registry.catalog();
    let snapshot = |resource: &Resource| -> Snapshot {
        api.store.snapshot(resource.collection.unwrap()).unwrap()
    };
    let mut count = 0;
    for (group, plural) in [
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("apiregistration.k8s.io", "apiservices"),
        ("networking.k8s.io", "servicecidrs"),
    ] {
        let resource = catalog.find(group, "v1", plural).unwrap();
        for object in snapshot(resource).objects.values() {
            let again = resource.encode(object.decode());
            assert!(again.same_as(&object.content), "{plural} {}", object.key);
            assert_eq!(again.header.uid, object.header().uid);
            assert_eq!(again.header.labels, object.header().labels);
            assert_eq!(again.header.fields, object.header().fields);
            count += 1;
        }
    }
    assert!(count > 100, "{count} seeds");
}
