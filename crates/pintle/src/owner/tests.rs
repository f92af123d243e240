use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Node, Pod},
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;

fn object<K: DeserializeOwned>(namespace: Option<&str>, name: &str, uid: &str) -> K {
    let metadata = json!({ "namespace": namespace, "name": name, "uid": uid });
    serde_json::from_value(json!({ "metadata": metadata })).expect("an object")
}

/// Proves owner/reference.
#[test]
fn controller_reference_is_complete_and_set_once() {
    let owner: ReplicaSet = object(Some("shop"), "web", "u1");
    let mut child: Pod = object(Some("shop"), "web-0", "u2");
    assert_eq!(set_controller(&owner, &mut child), Ok(true));
    assert_eq!(set_controller(&owner, &mut child), Ok(false));
    let reference = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "web".into(),
        uid: "u1".into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    assert_eq!(child.metadata.owner_references, Some(vec![reference]));
}

/// Proves owner/reference.
#[test]
fn plain_owner_becomes_controller_and_others_stay() {
    let (owner, friend): (ReplicaSet, ReplicaSet) = (
        object(Some("shop"), "web", "u1"),
        object(Some("shop"), "friend", "u3"),
    );
    let mut child: Pod = object(Some("shop"), "web-0", "u2");
    let plain = |owner: &ReplicaSet| OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..controller_reference(owner).expect("stored")
    };
    child.metadata.owner_references = Some(vec![plain(&friend), plain(&owner)]);
    assert!(!is_controlled_by(&child, &owner));
    assert_eq!(set_controller(&owner, &mut child), Ok(true));
    let expected = vec![
        plain(&friend),
        controller_reference(&owner).expect("stored"),
    ];
    assert_eq!(child.metadata.owner_references, Some(expected));
}

/// Proves owner/reference.
#[test]
fn second_controller_is_rejected_even_with_the_same_name() {
    let owner: ReplicaSet = object(Some("shop"), "web", "u1");
    let mut child: Pod = object(Some("shop"), "web-0", "u2");
    set_controller(&owner, &mut child).expect("the first");
    let before = child.clone();
    let namesake: ReplicaSet = object(Some("shop"), "web", "u9");
    assert_eq!(
        set_controller(&namesake, &mut child),
        Err(OwnerError::AlreadyControlled {
            child_kind: "Pod".into(),
            child: ObjectKey::namespaced("shop", "web-0"),
            kind: "ReplicaSet".into(),
            name: "web".into(),
        })
    );
    assert_eq!(child, before);
    assert!(!is_controlled_by(&child, &namesake));
}

/// Proves owner/scopes.
#[test]
fn owner_out_of_scope_is_rejected() {
    let owner: ReplicaSet = object(Some("shop"), "web", "u1");
    let mut elsewhere: Pod = object(Some("bank"), "web-0", "u2");
    let mut cluster_wide: Node = object(None, "node-1", "u3");
    let refused = set_controller(&owner, &mut elsewhere).expect_err("another namespace");
    assert!(matches!(refused, OwnerError::OtherNamespace { .. }));
    assert_eq!(
        refused.to_string(),
        "ReplicaSet shop/web cannot own Pod bank/web-0: it is in another namespace"
    );
    let refused = set_controller(&owner, &mut cluster_wide).expect_err("cluster-scoped");
    assert!(matches!(refused, OwnerError::ClusterScoped { .. }));
    assert_eq!(
        refused.to_string(),
        "ReplicaSet shop/web is namespaced and cannot own Node node-1, which is cluster-scoped"
    );
    assert_eq!(elsewhere.metadata.owner_references, None);
    assert_eq!(cluster_wide.metadata.owner_references, None);
    let node: Node = object(None, "node-1", "u3");
    assert_eq!(
        set_controller(&node, &mut elsewhere),
        Ok(true),
        "a cluster-scoped owner may own any object"
    );
}

/// Proves owner/reference.
#[test]
fn owner_without_uid_is_rejected() {
    let owner: ReplicaSet = object(Some("shop"), "web", "");
    let mut child: Pod = object(Some("shop"), "web-0", "u2");
    let error = set_controller(&owner, &mut child).expect_err("no UID");
    assert_eq!(
        error.to_string(),
        "ReplicaSet shop/web cannot be an owner: it was not read from the server"
    );
    assert!(!is_controlled_by(&child, &ReplicaSet::default()));
}

/// Proves owner/reference.
#[test]
fn adopted_child_lands_in_its_owners_namespace() {
    let owner: ReplicaSet = object(Some("shop"), "web", "u1");
    let key = ObjectKey::of(&owner);
    let reference = controller_reference(&owner).expect("stored");
    let adopt = |kind: &str, scope, meta: &mut ObjectMeta| {
        adopt(&key, reference.clone(), kind, scope, meta)
    };
    let mut child: Pod = object(None, "web-0", "u2");
    adopt("Pod", KindScope::Namespaced, &mut child.metadata).expect("in scope");
    assert_eq!(child.metadata.namespace.as_deref(), Some("shop"));
    let mut node: Node = object(None, "node-1", "u3");
    let refused = adopt("Node", KindScope::Cluster, &mut node.metadata);
    assert!(matches!(refused, Err(OwnerError::ClusterScoped { .. })));
    assert_eq!(node.metadata.namespace, None);
}

/// Proves owner/scopes.
#[test]
fn scope_of_dynamic_child_is_judged_by_its_namespace() {
    let owner: ReplicaSet = object(Some("shop"), "web", "u1");
    let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let child = |namespace: Option<&str>| {
        let mut child = DynamicObject::new("one", &widgets);
        child.metadata.namespace = namespace.map(str::to_owned);
        child
    };
    let mut without = child(None);
    let refused = set_controller_of(&owner, &mut without, &widgets).expect_err("no namespace");
    assert!(matches!(refused, OwnerError::NoNamespace { .. }));
    let text = refused.to_string();
    assert!(text.contains("ReplicaSet shop/web") && text.contains("Widget one"));
    assert_eq!(without.metadata.owner_references, None);
    let refused = set_controller_of(&owner, &mut child(Some("bank")), &widgets);
    assert!(matches!(refused, Err(OwnerError::OtherNamespace { .. })));
    assert_eq!(
        set_controller_of(&owner, &mut child(Some("shop")), &widgets),
        Ok(true)
    );
    let node: Node = object(None, "node-1", "u3");
    assert_eq!(
        set_controller_of(&node, &mut child(None), &widgets),
        Ok(true)
    );
}
