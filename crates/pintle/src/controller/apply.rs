//! Server-side apply, and children that are written only when they differ.
//!
//! # The problem
//!
//! A reconcile states what a child should look like and must not write if it already does.
//! Comparing the desired with the cached object field by field does not work: the server adds
//! defaults and normalizes values, and other controllers own fields of the same object. Applying
//! every time is correct but costs a request per reconcile.
//!
//! The module `applied_configurations` explains how the controller detects that applying would
//! change nothing.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::GetParams;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    NotWatched, Writes,
    applied_configurations::{Record, digest},
    children::Contents,
    own_writes::GroupKind,
};
use crate::{
    cache::{DecodeError, Kind, ObjectKey},
    object::Header,
    owner::{self, OwnerError},
    source::KindScope,
};

/// A server-side apply, executed when awaited. See [`Context::apply`](super::Context::apply).
#[must_use = "an apply does nothing until it is awaited"]
pub struct Apply<'a, K: Kind> {
    pub(super) writes: Writes<'a, K>,
    pub(super) object: &'a K,
    pub(super) subresource: Option<&'static str>,
    pub(super) force: bool,
}

impl<K: Kind> Apply<'_, K> {
    /// Takes over fields that other managers own with different values, instead of failing with a
    /// conflict.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }
}

impl<'a, K: Kind + Serialize> IntoFuture for Apply<'a, K> {
    type Output = Result<K, kube::Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let Self {
                writes,
                object,
                subresource,
                force,
            } = self;
            let mut config = writes.configuration(object)?;
            if let Some(subresource) = subresource {
                only(&mut config, subresource);
            }
            let key = ObjectKey::of(object);
            let stored = writes.apply_configuration(&key, &config, subresource, force);
            serde_json::from_value(stored.await?).map_err(kube::Error::SerdeError)
        }
        .boxed()
    }
}

/// Reduces a configuration to the identity of the object and one other field.
fn only(config: &mut Value, field: &str) {
    let Some(fields) = config.as_object_mut() else {
        return;
    };
    fields.retain(|name, _| {
        matches!(name.as_str(), "apiVersion" | "kind" | "metadata") || name == field
    });
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "uid"));
    }
}

/// Why [`apply_owned`](super::Context::apply_owned) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The reconciled object cannot own the child, or the child belongs to something else.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The controller has no cache of the child's kind.
    #[error(transparent)]
    NotWatched(#[from] NotWatched),
    /// The child has no name. Generated names cannot be applied.
    #[error("cannot apply a {kind} without a name")]
    Unnamed {
        /// The child's kind.
        kind: String,
    },
    /// The cached child cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The server rejected the request or did not respond.
    #[error("failed to apply {kind} {key}")]
    Api {
        /// The child's kind.
        kind: String,
        /// The child.
        key: ObjectKey,
        /// The client's error.
        source: Box<kube::Error>,
    },
}

impl ApplyError {
    /// Returns whether the child exists and is not controlled by the reconciled object.
    pub fn is_foreign(&self) -> bool {
        matches!(
            self,
            Self::Owner(OwnerError::AlreadyControlled { .. } | OwnerError::NotControlled { .. })
        )
    }

    /// Returns the server's `Status`, if it rejected the child.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A child to apply, executed when awaited. See
/// [`Context::apply_owned`](super::Context::apply_owned).
///
/// # What it does
///
/// - Sets the controller reference to the reconciled object, and the object's namespace if `child`
///   is of a namespaced kind and names none.
/// - Fails if the child exists and the reconciled object does not control it, whether or not it has
///   another controller. A child that is not in the cache is first looked up on the server, because
///   applying would silently adopt an existing object.
/// - Leaves a child that is being deleted alone, and returns it with its deletion timestamp. The
///   owner is reconciled when the child is gone or, if the child is not in the cache, after five
///   seconds.
/// - Otherwise applies the child, unless that would change nothing.
///
/// Besides `list` and `watch`, it needs the verbs `get`, `create` and `patch` on the child's kind.
///
/// # What is compared
///
/// The write is skipped if `child` is the configuration this controller last applied, and the
/// cached object still has the values that the server stored for those fields. Maps are compared by
/// the keys that `child` names; lists and, in the `spec`, maps of scalars such as selectors are
/// compared as a whole. All other fields are ignored: defaults, values the server normalized and
/// fields of other managers cause no write. The first reconcile after a start always applies,
/// because only the server knows which fields an earlier version of the controller applied.
///
/// # Conflicts
///
/// The apply is forced, as Kubernetes recommends for controllers: the child belongs to the
/// controller, so fields of other managers are taken over. Omit a field to leave it to others
/// (`spec.replicas` to an autoscaler), or choose [`without_force`](Self::without_force).
#[must_use = "an apply does nothing until it is awaited"]
pub struct ApplyOwned<'a, K: Kind> {
    writes: Writes<'a, K>,
    child: K,
    force: bool,
}

/// A child as stored by the server, and whether [`apply_owned`](super::Context::apply_owned)
/// changed it. Dereferences to the child.
#[derive(Clone, Debug)]
pub struct Applied<K> {
    object: Arc<K>,
    changed: bool,
}

impl<K> Applied<K> {
    /// Returns the child as stored if it was applied, otherwise as cached.
    pub fn object(&self) -> &Arc<K> {
        &self.object
    }

    /// Returns the child.
    pub fn into_object(self) -> Arc<K> {
        self.object
    }

    /// Returns whether the apply created or changed the child.
    pub fn is_changed(&self) -> bool {
        self.changed
    }
}

impl<K> Deref for Applied<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<'a, K: Kind + Serialize> ApplyOwned<'a, K> {
    pub(super) fn new(writes: Writes<'a, K>, child: K) -> Self {
        Self {
            writes,
            child,
            force: true,
        }
    }

    /// Fails with a conflict if another manager owns a field with a different value, instead of
    /// taking it over.
    pub fn without_force(mut self) -> Self {
        self.force = false;
        self
    }

    async fn apply(self) -> Result<Applied<K>, ApplyError> {
        let Self {
            writes,
            mut child,
            force,
        } = self;
        let inner = writes.inner;
        let shared = &inner.shared;
        let owner = inner.primary();
        let reference = shared
            .primary
            .controller_reference(&inner.key, owner.as_deref())?;
        let kind = K::kind(writes.kind()).into_owned();
        owner::adopt(
            &inner.key,
            reference.clone(),
            &kind,
            KindScope::of::<K>(),
            child.meta_mut(),
        )?;
        let lister = shared.listers.of::<K>(writes.kind())?;
        let cached = lister.get(&ObjectKey::of(&child));
        let known = cached.as_ref().map(|cached| -> &dyn Header { cached });
        let outcome = apply_child(&writes, &child, &reference, known, &lister, force).await?;
        let (object, changed) = match (outcome, cached) {
            (Outcome::Stored { object, changed }, _) => {
                let object = serde_json::from_value(object);
                let object = object.map_err(kube::Error::SerdeError);
                let key = ObjectKey::of(&child);
                let object = object.map_err(|source| api_error(&kind, &key, source))?;
                (Arc::new(object), changed)
            }
            (Outcome::Terminating(meta), _) => {
                *child.meta_mut() = *meta;
                (Arc::new(child), false)
            }
            (Outcome::Unchanged, Some(cached)) => (cached.get()?, false),
            (Outcome::Unchanged, None) => (Arc::new(child), false),
        };
        Ok(Applied { object, changed })
    }
}

/// How long to wait before checking again on a child that is being deleted and is not in the cache.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The outcome of applying a child.
pub(super) enum Outcome {
    /// Nothing was sent: the cached child is up to date, or is being deleted.
    Unchanged,
    /// Nothing was applied: the server is deleting the child, which the cache does not show.
    Terminating(Box<ObjectMeta>),
    /// The child as the server stored it.
    Stored { object: Value, changed: bool },
}

/// Applies a child that has its controller reference, unless that would change nothing.
///
/// `cached` is the child in `cache`, if it is there.
pub(super) async fn apply_child<K: Kind + Serialize>(
    writes: &Writes<'_, K>,
    child: &K,
    reference: &OwnerReference,
    cached: Option<&dyn Header>,
    cache: &dyn Contents,
    force: bool,
) -> Result<Outcome, ApplyError> {
    let applied = &writes.inner.shared.applied;
    let kind_name = K::kind(writes.kind());
    let group_kind = GroupKind::of::<K>(writes.kind());
    let key = ObjectKey::of(child);
    if key.name().is_empty() {
        let kind = kind_name.into_owned();
        return Err(ApplyError::Unnamed { kind });
    }
    let failed = |source| api_error(&kind_name, &key, source);
    let mut config = writes.configuration(child).map_err(failed)?;
    let digest = digest(&config);
    if let Some(cached) = cached {
        let controller = cached.controller_owner();
        let controller = controller.map(|owner| (owner.kind(), owner.name(), owner.uid()));
        check_controller(&kind_name, &key, controller, reference)?;
        if cached.is_being_deleted() || applied.is_current(&group_kind, cached, digest, &config) {
            return Ok(Outcome::Unchanged);
        }
        // The UID keeps the apply from reaching another object that has taken the name since.
        config["metadata"]["uid"] = Value::from(cached.uid());
    } else if let Some(meta) = existing(writes, &key).await.map_err(failed)? {
        let references = meta.owner_references.iter().flatten();
        let controller = references
            .into_iter()
            .find(|known| known.controller == Some(true));
        let controller =
            controller.map(|owner| (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()));
        check_controller(&kind_name, &key, controller, reference)?;
        if meta.deletion_timestamp.is_some() {
            // The cache may miss the deletion as it missed the child, so nothing else may enqueue
            // the owner.
            let shared = &writes.inner.shared;
            shared.queue.add_after(writes.inner.key.clone(), LOOK_AGAIN);
            return Ok(Outcome::Terminating(Box::new(meta)));
        }
        config["metadata"]["uid"] = Value::from(meta.uid.unwrap_or_default());
    }
    let stored = writes.apply_configuration(&key, &config, None, force);
    let stored = stored.await.map_err(failed)?;
    let version = stored["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let unchanged = cached.filter(|cached| cached.resource_version() == version);
    if let Some(metadata) = config["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    let record = match &unchanged {
        // Compare with the cached object from now on: a transform may have changed it.
        Some(cached) => Record::of_cached(digest, &config, *cached),
        None => Some(Record::new(digest, &config, &stored, version)),
    };
    let changed = unchanged.is_none();
    applied.remember(&group_kind, &key, record, cache);
    Ok(Outcome::Stored {
        object: stored,
        changed,
    })
}

impl<'a, K: Kind + Serialize> IntoFuture for ApplyOwned<'a, K> {
    type Output = Result<Applied<K>, ApplyError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.apply().boxed()
    }
}

fn api_error(kind: &str, key: &ObjectKey, source: kube::Error) -> ApplyError {
    ApplyError::Api {
        kind: kind.to_owned(),
        key: key.clone(),
        source: Box::new(source),
    }
}

/// Returns an error for a child that exists and has another controller, or none.
fn check_controller(
    child_kind: &str,
    child: &ObjectKey,
    controller: Option<(&str, &str, &str)>,
    ours: &OwnerReference,
) -> Result<(), OwnerError> {
    let (child_kind, child) = (child_kind.to_owned(), child.clone());
    match controller {
        Some((_, _, uid)) if uid == ours.uid => Ok(()),
        Some((kind, name, _)) => Err(OwnerError::AlreadyControlled {
            child_kind,
            child,
            kind: kind.to_owned(),
            name: name.to_owned(),
        }),
        None => Err(OwnerError::NotControlled {
            child_kind,
            child,
            kind: ours.kind.clone(),
            name: ours.name.clone(),
        }),
    }
}

/// Fetches the metadata of an object that is not in the cache from the server.
async fn existing<K: Kind + Serialize>(
    writes: &Writes<'_, K>,
    key: &ObjectKey,
) -> Result<Option<ObjectMeta>, kube::Error> {
    #[derive(Deserialize)]
    struct Found {
        metadata: ObjectMeta,
    }
    let request = writes
        .requests(key.namespace())
        .get_metadata(key.name(), &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    match writes.inner.shared.client.request::<Found>(request).await {
        Ok(found) => Ok(Some(found.metadata)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl<K: Kind> fmt::Debug for Apply<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apply")
            .field("key", &ObjectKey::of(self.object))
            .field("force", &self.force)
            .finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for ApplyOwned<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyOwned")
            .field("key", &ObjectKey::of(&self.child))
            .field("force", &self.force)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
