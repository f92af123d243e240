//! Cleaning up outside the cluster before an object may go.
//!
//! A controller that makes things the garbage collector does not know of (a bucket, a DNS name)
//! marks its object with a finalizer first: the server then keeps a deleted object until the mark is
//! taken off. The mistake to avoid is making the thing before the mark is stored: crash in between,
//! and nobody will ever clean up. Here the type system keeps the order:
//!
//! ```text
//!              alive, not marked ──store the mark──► Held ──► make things outside
//! guard() ──►  alive, marked ─────────────────────► Held ──► make things outside
//!              being deleted, marked ─────────────► CleanUp ──► remove them, then release()
//!              being deleted, not marked ─────────► Gone
//! ```
//!
//! In a reconcile, pass its [`Context`]: then the mark is one of the reconcile's own writes, and the
//! next run of the key waits until the cache shows it. Written past the context, a rerun on a stale
//! cache would try to store it again and get a conflict.

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

/// A finalizer's name, checked: `example.org/bucket`.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use pintle::{
///     cache::ObjectKey,
///     controller::{Action, Context, ReconcileError},
///     finalizer::{Finalizer, Guard, Held},
/// };
///
/// async fn create_bucket(config: Held<'_, ConfigMap>) { /* … */ }
/// async fn delete_bucket(config: &ConfigMap) { /* … must bear being called again … */ }
///
/// async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
///     let Some(config) = cx.lister::<ConfigMap>()?.get(&key) else {
///         return Ok(Action::await_change());
///     };
///     let config = config.get()?;
///     let finalizer = Finalizer::new("example.org/bucket")?;
///     match finalizer.guard(&cx, &*config).await? {
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

/// What may be done with an object; see the [module](self).
#[derive(Debug)]
#[must_use]
pub enum Guard<'a, K: Clone> {
    /// It is alive and marked: things may be made for it.
    Held(Held<'a, K>),
    /// It is being deleted and still marked: what was made for it has to be removed.
    CleanUp(CleanUp<'a, K>),
    /// It is being deleted and not marked (any more): there is nothing to do.
    Gone,
}

/// Proof that an object's finalizer is stored. Whatever makes things outside the cluster should take
/// one of these rather than the object: then it cannot be called too early.
pub struct Held<'a, K: Clone> {
    object: Cow<'a, K>,
}

/// An object that waits for its clean-up. Dropped without [`release`](Self::release), it goes on
/// waiting, and the next reconcile gets it again.
#[must_use]
pub struct CleanUp<'a, K> {
    object: &'a K,
    finalizer: &'a Finalizer,
    writer: &'a dyn Writer<K>,
}

/// What a finalizer can be written through: the [`Context`] of a reconcile, its [`Writes`] of a kind
/// known at run time, or, outside a controller, an [`Api`] that reaches the object's namespace.
pub trait Writer<K>: sealed::Patches<K> {}

impl<K, W: sealed::Patches<K>> Writer<K> for W {}

mod sealed {
    use super::{BoxFuture, ObjectKey, Value};

    pub trait Patches<K>: Sync {
        /// Merges `patch` into the object called `key`.
        fn merge<'a>(
            &'a self,
            key: &'a ObjectKey,
            patch: Value,
        ) -> BoxFuture<'a, Result<K, kube::Error>>;
    }
}

impl<K: Writable> sealed::Patches<K> for Context {
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

/// Why an object's finalizer could not be stored or taken off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError {
    /// A finalizer is named like `example.org/bucket`: a domain, a slash, a word.
    #[error("{0:?} is no name for a finalizer: it has to look like example.org/bucket")]
    Name(String),
    /// The object has no name or version, so it was not read from a server.
    #[error("{0} was not read from a server")]
    NotStored(ObjectKey),
    /// The object changed since it was read. The next reconcile will see the newer one.
    #[error("{0} changed meanwhile")]
    Changed(ObjectKey),
    /// The server could not be reached or refused. Nothing else was done; try again.
    #[error("the finalizer of {key} could not be written: {source}")]
    Write {
        /// The object.
        key: ObjectKey,
        /// What the client said.
        source: Box<kube::Error>,
    },
}

impl Finalizer {
    /// A finalizer of this name.
    pub fn new(name: impl Into<String>) -> Result<Self, FinalizerError> {
        let name = name.into();
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let edge = |part: &str| {
            let ends = [part.as_bytes().first(), part.as_bytes().last()];
            ends.iter()
                .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        };
        match name.split_once('/') {
            Some((domain, word))
                if [domain, word]
                    .iter()
                    .all(|part| edge(part) && part.bytes().all(fine))
                    && word.len() <= 63 =>
            {
                Ok(Self { name })
            }
            _ => Err(FinalizerError::Name(name)),
        }
    }

    /// Stores the finalizer if the object is alive and lacks it, and says what may be done now.
    ///
    /// `writer` is the reconcile's [`Context`]; see [`Writer`]. The mark is written against the
    /// `resourceVersion` of `object`: if that is not the newest, nothing is stored and the error is
    /// [`Changed`](FinalizerError::Changed).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped half-way, the mark is stored or not, and the next call finds out.
    pub async fn guard<'a, K: Resource + Clone>(
        &'a self,
        writer: &'a impl Writer<K>,
        object: &'a K,
    ) -> Result<Guard<'a, K>, FinalizerError> {
        let marks = object.meta().finalizers.as_deref().unwrap_or_default();
        let marked = marks.contains(&self.name);
        match (object.meta().deletion_timestamp.is_some(), marked) {
            (true, false) => Ok(Guard::Gone),
            (true, true) => {
                let finalizer = self;
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
                let marks = marks.iter().chain([&self.name]).cloned().collect();
                let stored = write(writer, object, marks).await?;
                Ok(Guard::Held(Held {
                    object: Cow::Owned(stored),
                }))
            }
        }
    }
}

impl<K: Clone> Held<'_, K> {
    /// The object with its mark, in the version in which the server has it.
    pub fn object(&self) -> &K {
        &self.object
    }
}

impl<K: Clone> fmt::Debug for Held<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl<'a, K> CleanUp<'a, K> {
    /// The object whose things have to be removed. Its clean-up may run more than once.
    pub fn object(&self) -> &'a K {
        self.object
    }
}

impl<K: Resource> CleanUp<'_, K> {
    /// Everything is removed: takes the finalizer off, and lets the object go. That it is gone
    /// already is fine.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped half-way, the mark is there or not, and the next reconcile finds out.
    pub async fn release(self) -> Result<(), FinalizerError> {
        let marks = self.object.meta().finalizers.iter().flatten();
        let others = marks
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

/// Replaces the finalizers, if the object is still as it was read.
async fn write<K: Resource>(
    writer: &dyn Writer<K>,
    object: &K,
    marks: Vec<String>,
) -> Result<K, FinalizerError> {
    let key = ObjectKey::of(object);
    let meta = object.meta();
    let (Some(_), Some(version)) = (&meta.name, &meta.resource_version) else {
        return Err(FinalizerError::NotStored(key));
    };
    // The version makes the server refuse the patch if anything happened in between: another's
    // finalizer would be lost, or a mark put on an object of the same name.
    let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": marks } });
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
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, client::Body};
    use parking_lot::Mutex;
    use serde_json::Value;

    use super::*;

    const OURS: &str = "example.org/bucket";

    type Patches = Arc<Mutex<Vec<Value>>>;

    /// A server that answers every patch with `code`, and what it was sent.
    fn server(code: u16) -> (Api<ConfigMap>, Patches) {
        let patches = Patches::default();
        let seen = Arc::clone(&patches);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                assert_eq!(
                    request.uri().path(),
                    "/api/v1/namespaces/shop/configmaps/web"
                );
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .expect("a body")
                    .to_bytes();
                seen.lock()
                    .push(serde_json::from_slice(&body).expect("JSON"));
                let answer = json!({ "code": code, "metadata": { "resourceVersion": "8" } })
                    .to_string()
                    .into_bytes();
                let answer = Response::builder().status(code).body(Body::from(answer));
                Ok::<_, Infallible>(answer.expect("a response"))
            }
        });
        (
            Api::namespaced(Client::new(service, "default"), "shop"),
            patches,
        )
    }

    fn config(finalizers: &[&str], deleted: bool) -> ConfigMap {
        let metadata = json!({
            "name": "web",
            "namespace": "shop",
            "resourceVersion": "7",
            "finalizers": finalizers,
            "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z"),
        });
        serde_json::from_value(json!({ "metadata": metadata })).expect("a config map")
    }

    fn finalizer() -> Finalizer {
        Finalizer::new(OURS).expect("a name")
    }

    /// Proves finalizer/stored-first.
    #[tokio::test]
    async fn an_object_is_held_only_after_its_finalizer_was_stored() {
        let ours = finalizer();
        let (api, patches) = server(200);
        let config = config(&["other/one"], false);
        let guard = ours.guard(&api, &config).await.expect("stored");
        // The version it has now, so that it can be written again.
        let stored = |object: &ConfigMap| object.metadata.resource_version.as_deref() == Some("8");
        assert!(matches!(guard, Guard::Held(held) if stored(held.object())));
        let metadata = json!({ "resourceVersion": "7", "finalizers": ["other/one", OURS] });
        assert_eq!(*patches.lock(), [json!({ "metadata": metadata })]);
    }

    /// Proves finalizer/stored-first.
    #[tokio::test]
    async fn what_could_not_be_stored_is_not_held() {
        let ours = finalizer();
        for code in [409, 404, 422, 500] {
            let (api, patches) = server(code);
            let error = ours
                .guard(&api, &config(&[], false))
                .await
                .expect_err("not stored");
            assert_eq!(
                matches!(error, FinalizerError::Changed(_)),
                code == 409,
                "{error}"
            );
            assert_eq!(patches.lock().len(), 1);
        }
        let (api, patches) = server(200);
        let mut new = config(&[], false);
        new.metadata.resource_version = None;
        let error = ours.guard(&api, &new).await.expect_err("never stored");
        assert!(matches!(error, FinalizerError::NotStored(_)));
        assert!(patches.lock().is_empty());
    }

    /// Proves finalizer/stored-first.
    #[tokio::test]
    async fn an_object_that_has_its_finalizer_costs_no_request() {
        let ours = finalizer();
        let (api, patches) = server(500);
        let held = config(&[OURS], false);
        assert!(matches!(ours.guard(&api, &held).await, Ok(Guard::Held(_))));
        let gone = config(&["other/one"], true);
        assert!(matches!(ours.guard(&api, &gone).await, Ok(Guard::Gone)));
        assert!(patches.lock().is_empty());
    }

    /// Proves finalizer/removal.
    #[tokio::test]
    async fn a_deleted_object_goes_after_its_clean_up_and_others_marks_stay() {
        let ours = finalizer();
        for (code, released) in [(200, true), (404, true), (409, false), (500, false)] {
            let (api, patches) = server(code);
            let deleted = config(&["other/one", OURS], true);
            let guard = ours.guard(&api, &deleted).await.expect("to clean up");
            assert!(
                patches.lock().is_empty(),
                "nothing before the clean-up is done"
            );
            let Guard::CleanUp(clean_up) = guard else {
                panic!("{guard:?}")
            };
            assert_eq!(clean_up.object(), &deleted);
            assert_eq!(clean_up.release().await.is_ok(), released, "after {code}");
            let metadata = json!({ "resourceVersion": "7", "finalizers": ["other/one"] });
            assert_eq!(*patches.lock(), [json!({ "metadata": metadata })]);
        }
    }

    /// Proves finalizer/stored-first.
    #[test]
    fn a_finalizer_needs_a_domain_and_a_word() {
        for name in ["example.org/bucket", "a/b", "kubernetes.io/pv-protection"] {
            assert!(Finalizer::new(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "bucket",
            "/bucket",
            "example.org/",
            "a b/c",
            "a/b/c",
            "a/-b",
            "a./b",
        ] {
            assert!(
                matches!(Finalizer::new(name), Err(FinalizerError::Name(_))),
                "{name}"
            );
        }
    }
}
