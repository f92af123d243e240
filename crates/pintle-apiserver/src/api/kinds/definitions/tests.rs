use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    ApiServer,
    api::{
        discovery::openapi::{self, BUILT},
        write::Written,
    },
    registry::crd::DIGESTS,
    schema::structural::PARSED,
    store::{CollectionId, DECODED, Lost},
};

const NAME: &str = "foos.example.com";

/// A deleted definition with one instance that a finalizer holds, and the resource as a request saw
/// it before the delete.
struct Terminating {
    api: Arc<Api>,
    foos: Arc<Resource>,
    collection: CollectionId,
}

fn create(api: &Api, of: &Arc<Resource>, object: Value) -> Result<Written, ApiError> {
    let Value::Object(tree) = object else {
        panic!("expected an object")
    };
    api.create_unasked(of, None, tree, &WriteOptions::default())
}

fn terminating() -> Terminating {
    let api = Arc::clone(&ApiServer::builder().build().api);
    let definitions = api.definition_resource().unwrap();
    let definition = json!({"metadata": {"name": NAME}, "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    create(&api, &definitions, definition).unwrap();
    let catalog = api.registry.catalog();
    let foos = Arc::clone(catalog.find("example.com", "v1", "foos").unwrap());
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&api, &foos, held).unwrap();
    api.delete_unasked(&definitions, &key_of(None, NAME), &DeleteOptions::default())
        .unwrap();
    let collection = foos.collection.unwrap();
    Terminating {
        api,
        foos,
        collection,
    }
}

impl Terminating {
    /// Stores an instance, as a create does before it checks the definition again.
    fn store_late(&self) -> Arc<Object> {
        let Value::Object(tree) = json!({"metadata": {"name": "late", "uid": "u"}}) else {
            panic!("expected an object")
        };
        let put = Change::Put(Arc::new(self.foos.encode(tree)));
        let key = key_of(None, "late");
        self.api
            .store
            .commit(self.collection, &key, Expect::Absent, put)
            .unwrap()
    }

    fn remove(&self, collection: CollectionId, name: &str) {
        let object = self.api.store.get(collection, name).unwrap();
        let gone = Change::Delete(Arc::clone(&object.content));
        let expect = Expect::Revision(object.revision);
        self.api
            .store
            .commit(collection, &object.key, expect, gone)
            .unwrap();
    }

    fn definition(&self) -> Option<Arc<Object>> {
        self.api
            .store
            .get(self.api.registry.definitions().unwrap(), NAME)
    }
}

/// Proves crd/deletion.
#[test]
fn create_that_races_with_the_delete_is_undone() {
    let crd = terminating();
    let late = create(&crd.api, &crd.foos, json!({"metadata": {"name": "late"}}));
    assert_eq!(late.unwrap_err().code, 403);
    assert!(crd.api.store.get(crd.collection, "late").is_none());
    assert!(crd.api.store.get(crd.collection, "held").is_some());
}

/// Proves crd/deletion.
#[test]
fn definition_waits_for_an_undone_create() {
    let crd = terminating();
    let late = crd.store_late();
    crd.remove(crd.collection, "held");
    crd.api.finish_definition(NAME);
    assert!(crd.definition().is_some());
    assert!(!crd.api.keep_instance(&crd.foos, &late));
    assert!(crd.definition().is_none());
}

/// Proves crd/deletion.
#[test]
fn empty_collection_of_a_lost_definition_is_closed() {
    let crd = terminating();
    crd.remove(crd.collection, "held");
    let late = crd.store_late();
    crd.remove(crd.api.registry.definitions().unwrap(), NAME);
    crd.api.registry.refresh(NAME);
    assert!(crd.api.store.snapshot(crd.collection).is_ok());
    assert!(!crd.api.keep_instance(&crd.foos, &late));
    let closed = crd.api.store.snapshot(crd.collection).unwrap_err();
    assert_eq!(closed, Lost::NotServed);
}

/// Proves crd/names.
#[test]
fn name_freed_before_a_conflict_is_published_is_assigned() {
    let api = Arc::clone(&ApiServer::builder().build().api);
    let definitions = api.definition_resource().unwrap();
    let collection = definitions.collection.unwrap();
    let definition = |plural: &str, kind: &str| {
        json!({"metadata": {"name": format!("{plural}.example.com"), "uid": plural}, "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"plural": plural, "singular": plural, "kind": kind,
                    "listKind": format!("{kind}List"), "shortNames": ["s"]},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    create(&api, &definitions, definition("firsts", "First")).unwrap();
    let second = "seconds.example.com";
    let Value::Object(tree) = definition("seconds", "Second") else {
        panic!("expected an object")
    };
    let put = Change::Put(Arc::new(definitions.encode(tree)));
    api.store
        .commit(collection, &key_of(None, second), Expect::Absent, put)
        .unwrap();

    let refused = api.store_names(second);
    let first = key_of(None, "firsts.example.com");
    api.delete_unasked(&definitions, &first, &DeleteOptions::default())
        .unwrap();
    assert!(api.store.get(collection, &first).is_none());
    let again = api.publish_names(second, refused);
    api.settle_names(again.into());
    let stored = Value::Object(api.store.get(collection, second).unwrap().decode());
    assert_eq!(
        stored["status"]["acceptedNames"]["shortNames"],
        json!(["s"])
    );
    let catalog = api.registry.catalog();
    assert!(catalog.find("example.com", "v1", "seconds").is_some());
}

/// Proves objects/linear-installs.
#[test]
fn installing_a_definition_decodes_no_other() {
    let api = Arc::clone(&ApiServer::builder().build().api);
    let definitions = api.definition_resource().unwrap();
    let (parts, ()) = http::Request::new(()).into_parts();
    let (mut work, mut hashed) = (Vec::new(), Vec::new());
    PARSED.set(0);
    BUILT.set(0);
    DIGESTS.set(0);
    for batch in 0..3 {
        DECODED.set(0);
        for i in 0..100 {
            let name = format!("foo{batch}x{i}");
            let definition = json!({"metadata": {"name": format!("{name}s.example.com")},
                    "spec": {"group": "example.com", "scope": "Cluster",
                    "names": {"plural": format!("{name}s"), "singular": name,
                        "kind": format!("Foo{batch}x{i}"), "listKind": format!("{name}List")},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
            create(&api, &definitions, definition).unwrap();
        }
        work.push(DECODED.get());
        // The index of documents names each by a hash, and computes only those of new kinds.
        openapi::answer("", &api.registry.catalog(), &parts, Timestamp::UNIX_EPOCH);
        hashed.push(DIGESTS.take());
    }
    assert_eq!(hashed, [100; 3]);
    assert_eq!(BUILT.get(), 0);
    assert_eq!(
        api.registry
            .catalog()
            .of_version("example.com", "v1")
            .count(),
        300
    );
    assert!(work.iter().all(|count| *count == work[0]), "{work:?}");
    assert!(work[0] <= 500, "{work:?}");

    // A schema is checked when it is installed, and parsed again only if it is used.
    assert_eq!(PARSED.get(), 0);
    let catalog = api.registry.catalog();
    let foos = catalog.find("example.com", "v1", "foo0x0s").unwrap();
    for name in ["a", "b"] {
        create(&api, foos, json!({"metadata": {"name": name}})).unwrap();
    }
    assert_eq!(PARSED.get(), 1);
}
