//! Owner references: a change to a child enqueues its owner, and the child is garbage collected
//! with it.
//!
//! The server accepts a wrong owner reference, and the damage shows later: the garbage collector
//! deletes the child, or never does. A reference is therefore built only from an owner that was
//! read from the server. Kind, name and UID always belong together, an owner that was never stored
//! cannot be referenced, and scopes are checked before anything is sent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::{cache::ObjectKey, source::KindScope};

/// Why one object cannot own another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no name or UID, so it was not read from a server.
    #[error("{kind} {owner} cannot be an owner: it was not read from the server")]
    NotStored {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
    },
    /// The owner is being deleted. A new child would be deleted with it or, under foreground
    /// deletion, hold up the deletion.
    #[error("{kind} {owner} cannot own new objects: it is being deleted")]
    BeingDeleted {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
    },
    /// The child is in a different namespace than its owner. The garbage collector would not find
    /// the owner there, and would delete the child.
    #[error("{kind} {owner} cannot own {child_kind} {child}: it is in another namespace")]
    OtherNamespace {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
        /// The child's kind.
        child_kind: String,
        /// The child.
        child: ObjectKey,
    },
    /// The child is cluster-scoped and the owner is namespaced. The garbage collector would not
    /// find the owner, and would delete the child.
    #[error(
        "{kind} {owner} is namespaced and cannot own {child_kind} {child}, which is cluster-scoped"
    )]
    ClusterScoped {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
        /// The child's kind.
        child_kind: String,
        /// The child.
        child: ObjectKey,
    },
    /// The child has no namespace, the owner has one, and the child's Rust type does not state its
    /// scope. The child is either cluster-scoped, and cannot be owned, or its namespace is missing.
    #[error(
        "{kind} {owner} is namespaced and cannot own {child_kind} {child}, which has no namespace: \
         set the owner's namespace unless the kind is cluster-scoped"
    )]
    NoNamespace {
        /// The owner's kind.
        kind: String,
        /// The owner.
        owner: ObjectKey,
        /// The child's kind.
        child_kind: String,
        /// The child.
        child: ObjectKey,
    },
    /// The child already has another controller; an object has at most one.
    #[error("{child_kind} {child} is already controlled by {kind} {name}")]
    AlreadyControlled {
        /// The child's kind.
        child_kind: String,
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
/// Only changes `child` in memory; its other owners are retained. Once it is written, the garbage
/// collector deletes the child after its controller, or before it under foreground deletion
/// (`blockOwnerDeletion`). In a reconcile,
/// [`Context::apply_owned`](crate::controller::Context::apply_owned) does this and the write.
///
/// # Errors
///
/// Fails if the owner is not stored, the child is out of its scope, or the child has another
/// controller. `child` is unchanged in that case.
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
    O: Resource<DynamicType: Default>,
    C: Resource<DynamicType: Default, Scope: 'static>,
{
    set_controller_of(owner, child, &C::DynamicType::default())
}

/// Like [`set_controller`], for a child of a kind that is known only at run time.
///
/// A [`DynamicObject`](kube::core::DynamicObject) does not say whether its kind is namespaced, so
/// only its own namespace counts: a child without one cannot belong to a namespaced owner.
///
/// # Errors
///
/// Same as [`set_controller`].
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
/// use pintle::owner::{OwnerError, set_controller_of};
/// # use serde_json::json;
///
/// let stored = json!({ "metadata": { "name": "web", "namespace": "shop", "uid": "b1" } });
/// let owner: Deployment = serde_json::from_value(stored)?;
/// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
/// let mut child = DynamicObject::new("one", &widgets);
///
/// let refused = set_controller_of(&owner, &mut child, &widgets);
/// assert!(matches!(refused, Err(OwnerError::NoNamespace { .. })));
///
/// child.metadata.namespace = Some("shop".into());
/// assert!(set_controller_of(&owner, &mut child, &widgets)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_controller_of<O, C>(
    owner: &O,
    child: &mut C,
    kind: &C::DynamicType,
) -> Result<bool, OwnerError>
where
    O: Resource<DynamicType: Default>,
    C: Resource<Scope: 'static>,
{
    let reference = controller_reference(owner)?;
    let (kind, scope) = (C::kind(kind), KindScope::of::<C>());
    set_reference(
        &ObjectKey::of(owner),
        reference,
        &kind,
        scope,
        child.meta_mut(),
    )
}

/// Makes the object called `owner` the controller of a child, and sets the child's namespace to the
/// owner's if its kind is known to be namespaced and it names none.
pub(crate) fn adopt(
    owner: &ObjectKey,
    reference: OwnerReference,
    child_kind: &str,
    scope: KindScope,
    child: &mut ObjectMeta,
) -> Result<bool, OwnerError> {
    if scope == KindScope::Namespaced && child.namespace.is_none() {
        child.namespace = owner.namespace().map(str::to_owned);
    }
    set_reference(owner, reference, child_kind, scope, child)
}

fn set_reference(
    owner: &ObjectKey,
    reference: OwnerReference,
    child_kind: &str,
    scope: KindScope,
    child: &mut ObjectMeta,
) -> Result<bool, OwnerError> {
    let name = child.name.as_deref().unwrap_or_default();
    let key = ObjectKey::new(child.namespace.as_deref(), name);
    check_scope(owner, &reference.kind, child_kind, scope, &key)?;
    let references = child.owner_references.as_deref().unwrap_or_default();
    let other =
        |known: &&OwnerReference| known.controller == Some(true) && known.uid != reference.uid;
    if let Some(other) = references.iter().find(other) {
        return Err(OwnerError::AlreadyControlled {
            child_kind: child_kind.to_owned(),
            child: key,
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    let references = child.owner_references.get_or_insert_default();
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

/// Returns whether `owner` is the controller of `child`, compared by UID and not only by name.
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
/// For children built by hand, such as an apply patch. The caller must ensure that the child is in
/// the owner's scope; [`set_controller`] checks that.
///
/// # Errors
///
/// Fails with [`OwnerError::NotStored`] if the owner has no name or UID.
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

/// Fails if a namespaced owner and the child are not in the same namespace. A cluster-scoped owner
/// can own any object.
fn check_scope(
    owner: &ObjectKey,
    kind: &str,
    child_kind: &str,
    scope: KindScope,
    child: &ObjectKey,
) -> Result<(), OwnerError> {
    let same_namespace = scope != KindScope::Cluster && owner.namespace() == child.namespace();
    if owner.namespace().is_none() || same_namespace {
        return Ok(());
    }
    let (kind, owner) = (kind.to_owned(), owner.clone());
    let (child_kind, child) = (child_kind.to_owned(), child.clone());
    Err(match scope {
        KindScope::Cluster => OwnerError::ClusterScoped {
            kind,
            owner,
            child_kind,
            child,
        },
        KindScope::Dynamic if child.namespace().is_none() => OwnerError::NoNamespace {
            kind,
            owner,
            child_kind,
            child,
        },
        KindScope::Namespaced | KindScope::Dynamic => OwnerError::OtherNamespace {
            kind,
            owner,
            child_kind,
            child,
        },
    })
}

#[cfg(test)]
mod tests;
