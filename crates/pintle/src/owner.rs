//! Owner references: a child wakes its owner, and is garbage collected with it.
//!
//! A reference is built only from an owner that was read from the server. Kind, name and UID
//! therefore always belong together, and an owner that was never stored cannot be referenced.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::{cache::ObjectKey, source::KindScope};

/// Why one object cannot own another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no name or UID, so it was not read from a server.
    #[error("{kind} {owner} cannot own anything: it is not stored")]
    NotStored {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
    },
    /// The owner is being deleted. A new child would be deleted with it or, under foreground
    /// deletion, hold up the deletion.
    #[error("{kind} {owner} cannot own anything new: it is being deleted")]
    BeingDeleted {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
    },
    /// The child is in another namespace than its owner. The garbage collector would not find the
    /// owner there, and delete the child.
    #[error("{kind} {owner} cannot own {child}: it is in another namespace")]
    OtherNamespace {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
        /// The child.
        child: ObjectKey,
    },
    /// The child is cluster-scoped and the owner is namespaced. The garbage collector would not find
    /// the owner, and delete the child.
    #[error("{kind} {owner} is namespaced and cannot own {child}, which is cluster-scoped")]
    ClusterScoped {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
        /// The child.
        child: ObjectKey,
    },
    /// The child has another controller already; an object has at most one.
    #[error("{child} is already controlled by {kind} {name}")]
    AlreadyControlled {
        /// The child.
        child: ObjectKey,
        /// The kind of its controller.
        kind: String,
        /// The name of its controller.
        name: String,
    },
    /// The child exists and has no controller. It is not adopted: its creator may not expect
    /// that.
    #[error("{child_kind} {child} already exists and is not controlled by {kind} {name}")]
    NotControlled {
        /// The child's kind.
        child_kind: String,
        /// The child.
        child: ObjectKey,
        /// The kind of the owner that wants it.
        kind: String,
        /// The name of the owner that wants it.
        name: String,
    },
}

/// Makes `owner` the controller of `child`. Returns whether that changed anything.
///
/// Only changes `child` in memory; its other owners stay. Once it is written, the garbage collector
/// deletes the child after its controller, or before it under foreground deletion
/// (`blockOwnerDeletion`). In a reconcile,
/// [`Context::apply_owned`](crate::controller::Context::apply_owned) does this and the write.
///
/// # Errors
///
/// The owner is not stored, the child is out of its scope, or the child has another controller.
/// `child` is unchanged then.
///
/// # Examples
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
/// assert!(!set_controller(&owner, &mut child)?, "already set");
///
/// child.metadata.namespace = Some("elsewhere".into());
/// assert!(set_controller(&owner, &mut child).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_controller<O, C>(owner: &O, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource,
    O::DynamicType: Default,
    C: Resource<Scope: 'static>,
{
    set_reference(&ObjectKey::of(owner), controller_reference(owner)?, child)
}

/// Makes the object called `owner` the controller of `child`, which lands in the owner's namespace
/// unless it names one.
pub(crate) fn adopt<C: Resource<Scope: 'static>>(
    owner: &ObjectKey,
    reference: OwnerReference,
    child: &mut C,
) -> Result<bool, OwnerError> {
    let namespaced = KindScope::of::<C>() == KindScope::Namespaced;
    if namespaced && child.meta().namespace.is_none() {
        child.meta_mut().namespace = owner.namespace().map(str::to_owned);
    }
    set_reference(owner, reference, child)
}

fn set_reference<C: Resource<Scope: 'static>>(
    owner: &ObjectKey,
    reference: OwnerReference,
    child: &mut C,
) -> Result<bool, OwnerError> {
    let child_key = ObjectKey::of(child);
    check_scope::<C>(owner, &reference.kind, &child_key)?;
    let references = child.meta().owner_references.as_deref().unwrap_or_default();
    let other =
        |known: &&OwnerReference| known.controller == Some(true) && known.uid != reference.uid;
    if let Some(other) = references.iter().find(other) {
        return Err(OwnerError::AlreadyControlled {
            child: child_key,
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    let references = child.meta_mut().owner_references.get_or_insert_default();
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

/// Returns whether `owner` is the controller of `child`: this very object, not another of its name.
pub fn is_controlled_by(child: &impl Resource, owner: &impl Resource) -> bool {
    let Some(uid) = owner.meta().uid.as_ref() else {
        return false;
    };
    let references = child.meta().owner_references.iter().flatten();
    references
        .into_iter()
        .any(|known| known.controller == Some(true) && known.uid == *uid)
}

/// Returns the reference that names `owner` as a controller.
///
/// For children built by hand, such as an apply patch. The caller makes sure that the child is in
/// the owner's scope; [`set_controller`] checks that.
///
/// # Errors
///
/// [`OwnerError::NotStored`] if the owner has no name or UID.
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

/// A namespaced owner owns objects in its namespace, a cluster-scoped one any object.
fn check_scope<C: Resource<Scope: 'static>>(
    owner: &ObjectKey,
    kind: &str,
    child: &ObjectKey,
) -> Result<(), OwnerError> {
    let cluster_scoped = KindScope::of::<C>() == KindScope::Cluster;
    let same_namespace = !cluster_scoped && owner.namespace() == child.namespace();
    if owner.namespace().is_none() || same_namespace {
        return Ok(());
    }
    let (kind, owner, child) = (kind.to_owned(), owner.clone(), child.clone());
    Err(if cluster_scoped {
        OwnerError::ClusterScoped { kind, owner, child }
    } else {
        OwnerError::OtherNamespace { kind, owner, child }
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
    fn second_controller_is_refused_even_with_the_same_name() {
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
    fn owner_out_of_scope_is_refused() {
        let owner: ReplicaSet = object(Some("shop"), "web", "u1");
        let mut elsewhere: Pod = object(Some("bank"), "web-0", "u2");
        let mut cluster_wide: Node = object(None, "node-1", "u3");
        let refused = set_controller(&owner, &mut elsewhere);
        assert!(matches!(refused, Err(OwnerError::OtherNamespace { .. })));
        let refused = set_controller(&owner, &mut cluster_wide);
        assert!(matches!(refused, Err(OwnerError::ClusterScoped { .. })));
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
    fn owner_without_uid_is_refused() {
        let owner: ReplicaSet = object(Some("shop"), "web", "");
        let mut child: Pod = object(Some("shop"), "web-0", "u2");
        let error = set_controller(&owner, &mut child).expect_err("no UID");
        assert_eq!(
            error.to_string(),
            "ReplicaSet shop/web cannot own anything: it is not stored"
        );
        assert!(!is_controlled_by(&child, &ReplicaSet::default()));
    }

    /// Proves owner/reference.
    #[test]
    fn adopted_child_lands_in_its_owners_namespace() {
        let owner: ReplicaSet = object(Some("shop"), "web", "u1");
        let reference = controller_reference(&owner).expect("stored");
        let mut child: Pod = object(None, "web-0", "u2");
        adopt(&ObjectKey::of(&owner), reference.clone(), &mut child).expect("in scope");
        assert_eq!(child.metadata.namespace.as_deref(), Some("shop"));
        let mut node: Node = object(None, "node-1", "u3");
        let refused = adopt(&ObjectKey::of(&owner), reference, &mut node);
        assert!(matches!(refused, Err(OwnerError::ClusterScoped { .. })));
        assert_eq!(node.metadata.namespace, None);
    }
}
