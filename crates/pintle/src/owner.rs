//! Who owns what: references that let a child follow its owner, and go when it goes.
//!
//! A reference is only ever made of the owner itself, as it was read from the server: kind, name and
//! UID belong together by construction, and an owner that was never stored cannot be one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::cache::ObjectKey;

/// Why one object cannot own another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no name or UID, so it was not read from a server.
    #[error("{kind} {owner} cannot own anything: it was never stored")]
    NotStored {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
    },
    /// An owner in a namespace can own only what is in the same namespace: the garbage collector
    /// would take the owner for missing and delete the child.
    #[error("{kind} {owner} cannot own {child}, which is not in its namespace")]
    OtherNamespace {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
        /// The child.
        child: ObjectKey,
    },
    /// An object has one controller at most, and this one has another.
    #[error("{child} is already controlled by {kind} {name}")]
    AlreadyControlled {
        /// The child.
        child: ObjectKey,
        /// The kind of its controller.
        kind: String,
        /// The name of its controller.
        name: String,
    },
}

/// Makes `owner` the controller of `child`, and says whether that changed anything.
///
/// The garbage collector deletes the child after its controller, and where asked to, the controller
/// waits for it (`blockOwnerDeletion`). Other owners of the child stay. The child is changed in
/// memory only.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// use pintle::owner::{is_controlled_by, set_controller};
/// # use serde_json::json;
///
/// let stored = json!({ "metadata": { "name": "web", "namespace": "shop", "uid": "b1" } });
/// let owner: Deployment = serde_json::from_value(stored)?;
/// let mut child = ConfigMap::default();
/// child.metadata.name = Some("web-config".into());
/// child.metadata.namespace = Some("shop".into());
///
/// assert!(set_controller(&owner, &mut child)?);
/// assert!(is_controlled_by(&child, &owner));
/// assert!(!set_controller(&owner, &mut child)?, "nothing left to change");
///
/// child.metadata.namespace = Some("elsewhere".into());
/// assert!(set_controller(&owner, &mut child).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_controller<O, C>(owner: &O, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource,
    O::DynamicType: Default,
    C: Resource,
{
    let reference = controller_reference(owner)?;
    same_namespace(owner, child)?;
    let child_key = ObjectKey::of(child);
    let references = child.meta_mut().owner_references.get_or_insert_default();
    let other =
        |known: &&OwnerReference| known.controller == Some(true) && known.uid != reference.uid;
    if let Some(other) = references.iter().find(other) {
        return Err(OwnerError::AlreadyControlled {
            child: child_key,
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    match references
        .iter_mut()
        .find(|known| known.uid == reference.uid)
    {
        Some(known) if *known == reference => return Ok(false),
        Some(known) => *known = reference,
        None => references.push(reference),
    }
    Ok(true)
}

/// Whether `owner`, this very object and not another of its name, is the controller of `child`.
pub fn is_controlled_by(child: &impl Resource, owner: &impl Resource) -> bool {
    let Some(uid) = owner.meta().uid.as_ref() else {
        return false;
    };
    let references = child.meta().owner_references.iter().flatten();
    references
        .into_iter()
        .any(|known| known.controller == Some(true) && known.uid == *uid)
}

/// The reference that names `owner` as a controller.
///
/// For a child of which only parts are sent, such as an apply patch; the caller then sees to it that
/// the child lives where the owner may own it. Otherwise [`set_controller`].
pub fn controller_reference<O>(owner: &O) -> Result<OwnerReference, OwnerError>
where
    O: Resource,
    O::DynamicType: Default,
{
    let kind = O::DynamicType::default();
    let stored = |part: &Option<String>| part.clone().filter(|part| !part.is_empty());
    let (Some(name), Some(uid)) = (stored(&owner.meta().name), stored(&owner.meta().uid)) else {
        let (kind, owner) = (O::kind(&kind).into_owned(), ObjectKey::of(owner));
        return Err(OwnerError::NotStored { kind, owner });
    };
    Ok(OwnerReference {
        api_version: O::api_version(&kind).into_owned(),
        kind: O::kind(&kind).into_owned(),
        name,
        uid,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

fn same_namespace<O>(owner: &O, child: &impl Resource) -> Result<(), OwnerError>
where
    O: Resource,
    O::DynamicType: Default,
{
    let (owner_key, child_key) = (ObjectKey::of(owner), ObjectKey::of(child));
    let cluster_wide = owner_key.namespace().is_none();
    if cluster_wide || owner_key.namespace() == child_key.namespace() {
        return Ok(());
    }
    let kind = O::kind(&O::DynamicType::default()).into_owned();
    Err(OwnerError::OtherNamespace {
        kind,
        owner: owner_key,
        child: child_key,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        apps::v1::ReplicaSet,
        core::v1::{Node, Pod},
    };
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn object<K: DeserializeOwned>(namespace: Option<&str>, name: &str, uid: &str) -> K {
        let metadata = json!({ "namespace": namespace, "name": name, "uid": uid });
        serde_json::from_value(json!({ "metadata": metadata })).expect("an object")
    }

    /// Proves owner/reference.
    #[test]
    fn a_child_names_its_controller_in_full_and_only_once() {
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
    fn a_plain_owner_becomes_the_controller_and_others_stay() {
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
    fn a_second_controller_is_refused_even_under_the_name_of_the_first() {
        let owner: ReplicaSet = object(Some("shop"), "web", "u1");
        let mut child: Pod = object(Some("shop"), "web-0", "u2");
        set_controller(&owner, &mut child).expect("the first");
        let before = child.clone();
        let namesake: ReplicaSet = object(Some("shop"), "web", "u9");
        assert_eq!(
            set_controller(&namesake, &mut child),
            Err(OwnerError::AlreadyControlled {
                child: ObjectKey::namespaced("shop", "web-0"),
                kind: "ReplicaSet".into(),
                name: "web".into(),
            })
        );
        assert_eq!(child, before);
        assert!(!is_controlled_by(&child, &namesake));
    }

    /// Proves owner/reference.
    #[test]
    fn nobody_owns_across_namespaces() {
        let owner: ReplicaSet = object(Some("shop"), "web", "u1");
        let mut elsewhere: Pod = object(Some("bank"), "web-0", "u2");
        let mut cluster_wide: Node = object(None, "node-1", "u3");
        let refused = |result| matches!(result, Err(OwnerError::OtherNamespace { .. }));
        assert!(refused(set_controller(&owner, &mut elsewhere)));
        assert!(refused(set_controller(&owner, &mut cluster_wide)));
        assert_eq!(elsewhere.metadata.owner_references, None);
        let node: Node = object(None, "node-1", "u3");
        assert_eq!(
            set_controller(&node, &mut elsewhere),
            Ok(true),
            "a node may own any Pod"
        );
    }

    /// Proves owner/reference.
    #[test]
    fn an_owner_that_was_never_stored_owns_nothing() {
        let owner: ReplicaSet = object(Some("shop"), "web", "");
        let mut child: Pod = object(Some("shop"), "web-0", "u2");
        let error = set_controller(&owner, &mut child).expect_err("no UID");
        assert_eq!(
            error.to_string(),
            "ReplicaSet shop/web cannot own anything: it was never stored"
        );
        assert!(!is_controlled_by(&child, &ReplicaSet::default()));
    }
}
