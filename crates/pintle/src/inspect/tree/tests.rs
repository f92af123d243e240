use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::object::Reader;

/// A cache of `ConfigMap`s that own each other.
struct Maps(Vec<Arc<dyn Header>>);

impl crate::informer::Cached for Maps {
    fn get(&self, key: &ObjectKey) -> Option<Arc<dyn Header>> {
        let mut found = self.0.iter().filter(|map| map.key() == key);
        found.next().cloned()
    }

    fn owned_by(&self, namespace: Option<&str>, uid: &str) -> Vec<Arc<dyn Header>> {
        let mut all = self.list(namespace);
        all.retain(|map| map.owners().iter().any(|owner| owner.uid() == uid));
        all
    }

    fn list(&self, _: Option<&str>) -> Vec<Arc<dyn Header>> {
        self.0.clone()
    }
}

fn map(name: &str, owner: &str) -> Arc<dyn Header> {
    let json = json!({"metadata": {
        "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "controller": true,
        }],
    }});
    let reader = Reader::<ConfigMap>::new();
    Arc::new(reader.read(json.to_string().as_bytes()).unwrap())
}

/// Returns the names below `root`, and whether there may be more.
fn below(maps: Vec<Arc<dyn Header>>) -> (Vec<String>, bool) {
    let caches = [Cache {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        cached: Arc::new(Maps(maps)),
    }];
    let mut tree = Tree {
        caches: &caches,
        now: jiff::Timestamp::UNIX_EPOCH,
        nodes: Vec::new(),
        seen: BTreeSet::new(),
        truncated: false,
    };
    tree.children(&map("root", "nothing"));
    let names = tree.nodes.into_iter().map(|node| node.uid);
    (names.collect(), tree.truncated)
}

#[test]
fn children_come_before_grandchildren() {
    let mut maps: Vec<_> = (0..100)
        .map(|number| map(&format!("grandchild-{number}"), "child-0"))
        .collect();
    maps.extend((0..3).map(|number| map(&format!("child-{number}"), "root")));
    let (names, truncated) = below(maps);
    assert_eq!(names[..3], ["child-0", "child-1", "child-2"]);
    assert_eq!((names.len(), truncated), (MAX_NODES, true));
}

#[test]
fn small_tree_is_not_truncated() {
    let maps = vec![map("child", "root"), map("grandchild", "child")];
    let (names, truncated) = below(maps);
    assert_eq!(names, ["child", "grandchild"]);
    assert!(!truncated);
}
