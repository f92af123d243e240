//! Finalizers: cleaning up outside the cluster before an object is deleted.
//!
//! A controller that creates resources unknown to the garbage collector (a bucket, a DNS record)
//! first stores a finalizer on its object; the server then keeps a deleted object until the
//! finalizer is removed. The mistake to avoid is creating the external resource before the
//! finalizer is stored: after a crash in between, nothing ever cleans up. Here the types enforce
//! the order:
//!
//! ```text
//!              live, no finalizer ──store it──► Held ──► create external resources
//! guard() ──►  live, finalizer ───────────────► Held ──► create external resources
//!              deleting, finalizer ───────────► CleanUp ──► remove them, then release()
//!              deleting, no finalizer ────────► Gone
//! ```
//!
//! On a [`Controller`](crate::controller::Controller) that reconciles objects,
//! [`finalizer`](crate::controller::Controller::finalizer) does all of this with one cleanup
//! function. Everywhere else, call [`Finalizer::guard`] with the [`Context`] of the reconcile: the
//! finalizer is then one of the reconcile's own writes. If it were written without the context, a
//! rerun on a stale cache would try to store it again and get a conflict.

use std::{borrow::Cow, fmt};

use futures::{FutureExt, future::BoxFuture};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    cache::{Kind, ObjectKey},
    controller::{Context, Writable, Writes},
};

/// A finalizer with a valid name, such as `example.org/bucket`.
///
/// # Examples
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use pintle::{
///     cache::ObjectKey,
///     controller::{Action, Context, ReconcileError},
///     finalizer::{Guard, Held},
/// };
///
/// async fn create_bucket(config: Held<'_, ConfigMap>) { /* … */ }
/// async fn delete_bucket(config: &ConfigMap) { /* … idempotent … */ }
///
/// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
///     let Some(config) = cx.lister::<ConfigMap>()?.get(&key) else {
///         return Ok(Action::await_change());
///     };
///     let config = config.get()?;
///     match cx.finalizer("example.org/bucket", &*config).await? {
///         Guard::Held(held) => create_bucket(held).await,
///         Guard::CleanUp(clean_up) => {
///             delete_bucket(clean_up.object()).await;
///             clean_up.release().await?;
///         }
///         Guard::Gone => {}
///     }
///     Ok(Action::await_change())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalizer {
    name: String,
}

/// The state of an object's finalizer, which decides what a controller may do; see the
/// [module](self).
#[derive(Debug)]
#[must_use = "what to do depends on the variant"]
pub enum Guard<'a, K: Clone> {
    /// The object is live and has the finalizer: external resources may be created for it.
    Held(Held<'a, K>),
    /// The object is being deleted and has the finalizer: its external resources must be removed.
    CleanUp(CleanUp<'a, K>),
    /// The object is being deleted and does not have the finalizer: there is nothing to do.
    Gone,
}

/// Proof that an object's finalizer is stored.
///
/// A function that creates external resources should take this instead of the object: then it
/// cannot be called too early.
pub struct Held<'a, K: Clone> {
    object: Cow<'a, K>,
}

/// An object whose deletion waits for its cleanup.
///
/// If it is dropped without [`release`](Self::release), the object keeps waiting and the next
/// reconcile gets it again.
#[must_use = "the object waits until it is released"]
pub struct CleanUp<'a, K> {
    object: &'a K,
    finalizer: Finalizer,
    writer: &'a dyn Writer<K>,
}

/// A way to write a finalizer: the [`Context`] of a reconcile, its [`Writes`] for a kind known only
/// at run time, or, outside a controller, an [`Api`] for the object's namespace.
pub trait Writer<K>: sealed::Patches<K> {}

impl<K, W: sealed::Patches<K>> Writer<K> for W {}

mod sealed {
    use super::{BoxFuture, ObjectKey, Value};

    pub trait Patches<K>: Sync {
        /// Sends a merge patch for the object called `key`.
        fn merge<'a>(
            &'a self,
            key: &'a ObjectKey,
            patch: Value,
        ) -> BoxFuture<'a, Result<K, kube::Error>>;
    }
}

impl<K: Writable, S: Send + Sync> sealed::Patches<K> for Context<S> {
    fn merge<'a>(
        &'a self,
        key: &'a ObjectKey,
        patch: Value,
    ) -> BoxFuture<'a, Result<K, kube::Error>> {
        async move { self.patch(key, &Patch::Merge(patch)).await }.boxed()
    }
}

impl<K: Kind + Serialize> sealed::Patches<K> for Writes<'_, K> {
    fn merge<'a>(
        &'a self,
        key: &'a ObjectKey,
        patch: Value,
    ) -> BoxFuture<'a, Result<K, kube::Error>> {
        async move { self.patch(key, &Patch::Merge(patch)).await }.boxed()
    }
}

impl<K: Clone + DeserializeOwned + fmt::Debug + Send + Sync> sealed::Patches<K> for Api<K> {
    fn merge<'a>(
        &'a self,
        key: &'a ObjectKey,
        patch: Value,
    ) -> BoxFuture<'a, Result<K, kube::Error>> {
        let params = PatchParams::default();
        async move { self.patch(key.name(), &params, &Patch::Merge(patch)).await }.boxed()
    }
}

/// Why a finalizer could not be stored or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError {
    /// The name is not a domain, a slash and a word.
    #[error("invalid finalizer name {0:?}: use a name like example.org/bucket")]
    Name(String),
    /// The object has no name or `resourceVersion`, so it was not read from a server.
    #[error("cannot write the finalizer of {0}: the object was not read from a server")]
    NotStored(ObjectKey),
    /// The object changed since it was read. The next reconcile sees the newer one.
    #[error("cannot write the finalizer of {0}: the object has changed since it was read")]
    Changed(ObjectKey),
    /// The server rejected the request or did not respond. Try again.
    #[error("failed to write the finalizer of {key}: {source}")]
    Write {
        /// The object.
        key: ObjectKey,
        /// The client's error.
        source: Box<kube::Error>,
    },
}

impl Finalizer {
    /// Creates a finalizer with this name.
    ///
    /// # Errors
    ///
    /// Fails with [`FinalizerError::Name`] unless the name looks like `example.org/bucket`.
    pub fn new(name: impl Into<String>) -> Result<Self, FinalizerError> {
        let name = name.into();
        let is_valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let has_valid_ends = |part: &str| {
            let ends = [part.as_bytes().first(), part.as_bytes().last()];
            ends.iter()
                .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        };
        match name.split_once('/') {
            Some((domain, word))
                if [domain, word]
                    .iter()
                    .all(|part| has_valid_ends(part) && part.bytes().all(is_valid))
                    && word.len() <= 63 =>
            {
                Ok(Self { name })
            }
            _ => Err(FinalizerError::Name(name)),
        }
    }

    /// Stores the finalizer if the object is live and lacks it. Returns the resulting state.
    ///
    /// `writer` is the reconcile's [`Context`]; see [`Writer`]. The write requires that `object` is
    /// the current version.
    ///
    /// # Errors
    ///
    /// Fails with [`Changed`](FinalizerError::Changed) if `object` is not current, or with the
    /// error of the request. Unless there was no response, nothing was stored.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: whether the finalizer was stored or not, the next call finds out.
    pub async fn guard<'a, K: Resource + Clone>(
        &self,
        writer: &'a impl Writer<K>,
        object: &'a K,
    ) -> Result<Guard<'a, K>, FinalizerError> {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        let has_ours = finalizers.contains(&self.name);
        match (object.meta().deletion_timestamp.is_some(), has_ours) {
            (true, false) => Ok(Guard::Gone),
            (true, true) => {
                let finalizer = self.clone();
                Ok(Guard::CleanUp(CleanUp {
                    object,
                    finalizer,
                    writer,
                }))
            }
            (false, true) => Ok(Guard::Held(Held {
                object: Cow::Borrowed(object),
            })),
            (false, false) => {
                let finalizers = finalizers.iter().chain([&self.name]).cloned().collect();
                let stored = write(writer, object, finalizers).await?;
                Ok(Guard::Held(Held {
                    object: Cow::Owned(stored),
                }))
            }
        }
    }
}

impl<S: Send + Sync> Context<S> {
    /// Stores the finalizer `name` if `object` is live and lacks it. Returns the resulting state.
    ///
    /// The same as [`Finalizer::guard`]; `object` is the object that is reconciled.
    ///
    /// # Errors
    ///
    /// Fails with [`FinalizerError::Name`] if the name is invalid; otherwise the same as
    /// [`Finalizer::guard`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: whether the finalizer was stored or not, the next call finds out.
    pub async fn finalizer<'a, K: Writable>(
        &'a self,
        name: &str,
        object: &'a K,
    ) -> Result<Guard<'a, K>, FinalizerError> {
        Finalizer::new(name)?.guard(self, object).await
    }
}

impl<K: Clone> Held<'_, K> {
    /// Returns the stored object, which has the finalizer.
    pub fn object(&self) -> &K {
        &self.object
    }

    /// Returns the object if the finalizer was stored just now.
    pub(crate) fn into_stored(self) -> Option<K> {
        match self.object {
            Cow::Owned(stored) => Some(stored),
            Cow::Borrowed(_) => None,
        }
    }
}

impl<K: Clone> fmt::Debug for Held<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl<'a, K> CleanUp<'a, K> {
    /// Returns the object whose external resources must be removed. Its cleanup may run more than
    /// once.
    pub fn object(&self) -> &'a K {
        self.object
    }
}

impl<K: Resource> CleanUp<'_, K> {
    /// Removes the finalizer, so that the server can delete the object. Call it when all external
    /// resources are gone. An object that no longer exists counts as released.
    ///
    /// # Errors
    ///
    /// Fails with [`Changed`](FinalizerError::Changed) if the object is not current, or with the
    /// server's error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: whether the finalizer was removed or not, the next reconcile finds out.
    pub async fn release(self) -> Result<(), FinalizerError> {
        let finalizers = self.object.meta().finalizers.iter().flatten();
        let others = finalizers
            .filter(|name| **name != self.finalizer.name)
            .cloned()
            .collect();
        match write(self.writer, self.object, others).await {
            Err(FinalizerError::Write { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) => {
                Ok(())
            }
            done => done.map(|_| ()),
        }
    }
}

impl<K> fmt::Debug for CleanUp<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CleanUp")
            .field(&self.finalizer.name)
            .finish()
    }
}

/// Replaces the finalizers if the object has not changed since it was read.
async fn write<K: Resource>(
    writer: &dyn Writer<K>,
    object: &K,
    finalizers: Vec<String>,
) -> Result<K, FinalizerError> {
    let key = ObjectKey::of(object);
    let meta = object.meta();
    let (Some(_), Some(version)) = (&meta.name, &meta.resource_version) else {
        return Err(FinalizerError::NotStored(key));
    };
    // The `resourceVersion` makes the server reject the patch if the object changed. Without it, a
    // finalizer added in the meantime would be lost, or ours added to another object of the same
    // name.
    let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
    match writer.merge(&key, patch).await {
        Ok(stored) => Ok(stored),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(FinalizerError::Changed(key)),
        Err(source) => Err(FinalizerError::Write {
            key,
            source: Box::new(source),
        }),
    }
}

#[cfg(test)]
mod tests;
