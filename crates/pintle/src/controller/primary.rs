//! The object that is being reconciled.

use std::{any::Any, sync::Arc};

use k8s_openapi::{
    api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::{Context, NotWatched};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey},
    object::Header,
    owner::OwnerError,
};

/// The cached object of a reconcile by key.
///
/// An object with a deletion timestamp still exists: it waits for its finalizers or, under
/// foreground deletion, until everything it owns is deleted. Creating a child for it works against
/// the garbage collector. The two cases are therefore two variants, and the usual first line of a
/// reconcile by key handles both:
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use pintle::controller::{Action, Context, ReconcileError};
/// # use pintle::cache::ObjectKey;
/// use pintle::controller::Primary;
///
/// async fn reconcile(_: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
///     let Primary::Live(map) = cx.primary::<ConfigMap>()? else {
///         return Ok(Action::await_change()); // gone, or being deleted with all it owns
///     };
///     println!("reconciling {}", map.key());
///     Ok(Action::await_change())
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "what to do depends on the variant"]
pub enum Primary<K> {
    /// The object exists and is not being deleted.
    Live(Object<K>),
    /// The object is being deleted: clean up, and create nothing for it.
    Deleting(Object<K>),
    /// The object does not exist.
    Gone,
}

impl<S> Context<S> {
    /// Returns the object of the reconciled key from the cache. `K` is the controller's own kind.
    ///
    /// # Errors
    ///
    /// Fails with [`NotWatched`] if the controller does not watch `K`.
    pub fn primary<K: Kind>(&self) -> Result<Primary<K>, NotWatched> {
        let shared = &self.inner.shared;
        let cached = match shared.primary.lister::<K>() {
            Some(own) => own.get(self.key()),
            None => shared.listers.of_type::<K>()?.get(self.key()),
        };
        Ok(match cached {
            None => Primary::Gone,
            Some(object) if object.is_being_deleted() => Primary::Deleting(object),
            Some(object) => Primary::Live(object),
        })
    }
}

/// The controller's own kind, with its type erased.
pub(super) struct PrimaryKind {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// The `Lister<K>`.
    lister: Box<dyn Any + Send + Sync>,
    cached: Box<Cached>,
}

type Cached = dyn Fn(&ObjectKey) -> Option<Arc<dyn Header>> + Send + Sync;

impl PrimaryKind {
    pub(super) fn new<K: Kind>(kind: &K::DynamicType, lister: Lister<K>) -> Self {
        Self {
            api_version: K::api_version(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
            lister: Box::new(lister.clone()),
            cached: Box::new(move |key| Some(Arc::new(lister.get(key)?))),
        }
    }

    /// Returns the lister of the controller's own kind, if `K` is its type.
    fn lister<K: Kind>(&self) -> Option<&Lister<K>> {
        self.lister.downcast_ref()
    }

    pub(super) fn cached(&self, key: &ObjectKey) -> Option<Arc<dyn Header>> {
        (self.cached)(key)
    }

    /// Returns the reference for an event about the object called `key`. If the object is gone, the
    /// reference has no UID.
    pub(super) fn object_reference(
        &self,
        key: &ObjectKey,
        object: Option<&dyn Header>,
    ) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
            uid: object.map(|object| object.uid().to_owned()),
            resource_version: object.map(|object| object.resource_version().to_owned()),
            field_path: None,
        }
    }

    /// Returns the reference that makes the object called `key` the controller of a child.
    pub(super) fn controller_reference(
        &self,
        key: &ObjectKey,
        object: Option<&dyn Header>,
    ) -> Result<OwnerReference, OwnerError> {
        let (kind, owner) = (self.kind.clone(), key.clone());
        let Some(object) = object.filter(|object| !object.uid().is_empty()) else {
            return Err(OwnerError::NotStored { kind, owner });
        };
        if object.is_being_deleted() {
            return Err(OwnerError::BeingDeleted { kind, owner });
        }
        Ok(OwnerReference {
            api_version: self.api_version.clone(),
            kind,
            name: key.name().to_owned(),
            uid: object.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        })
    }
}
