//! Turns a key into a call of the user's functions.
//!
//! ```text
//! key ──► object in the cache? ──no──► done                    (by key: reconcile)
//!             │ yes
//!             ▼
//!         finalizer set up? ──yes──► live: store it, continue
//!             │ no                   deleting, still there: cleanup, remove it ──► done
//!             ▼
//!         being deleted? ──yes──► done, unless enabled         (by key: reconcile)
//!             │ no
//!             ▼
//!         reconcile ──► error policy
//! ```

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde::Serialize;

use super::{Action, Context, ErrorAction, ReconcileError, context::Inner};
use crate::{
    cache::{BoxError, Kind, Lister, ObjectKey},
    finalizer::{Finalizer, Guard},
};

/// The user's error policy.
pub(super) type Policy<K, S, E> = dyn Fn(Arc<K>, &E, Context<S>) -> ErrorAction + Send + Sync;

/// Stores the finalizer, or runs the user's cleanup function and removes it.
pub(super) type Finalize<K, S> = dyn Fn(Arc<K>, Context<S>, Finalizer) -> BoxFuture<'static, Result<Step<K>, ReconcileError>>
    + Send
    + Sync;

/// The next step for an object after its finalizer was handled.
pub(super) enum Step<K> {
    /// Reconcile it. The object has the finalizer, unless it is being deleted.
    Reconcile(Arc<K>),
    /// Nothing: it was cleaned up and its finalizer removed.
    Released,
}

/// Adds the finalizer's bookkeeping to the user's cleanup function.
pub(super) fn finalize<K, S, F, R, X>(kind: Arc<K::DynamicType>, cleanup: F) -> Box<Finalize<K, S>>
where
    K: Kind + Serialize,
    S: Send + Sync + 'static,
    F: Fn(Arc<K>, Context<S>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), X>> + Send + 'static,
    X: Into<BoxError>,
{
    let cleanup = Arc::new(cleanup);
    Box::new(move |object, cx, finalizer| {
        let (cleanup, kind) = (Arc::clone(&cleanup), Arc::clone(&kind));
        async move {
            let writes = cx.of::<K>(&kind);
            match finalizer.guard(&writes, &*object).await? {
                Guard::Held(held) => {
                    let stored = held.into_stored().map(Arc::new);
                    Ok(Step::Reconcile(stored.unwrap_or(object)))
                }
                Guard::CleanUp(deleting) => {
                    let cleaned = cleanup(Arc::clone(&object), cx.clone()).await;
                    cleaned.map_err(|error| ReconcileError::from_boxed(error.into()))?;
                    deleting.release().await?;
                    Ok(Step::Released)
                }
                Guard::Gone => Ok(Step::Reconcile(object)),
            }
        }
        .boxed()
    })
}

/// The user's functions and their settings.
pub(super) struct Reconciler<K: Kind, S, E, F> {
    pub(super) reconcile: F,
    pub(super) lister: Lister<K>,
    pub(super) state: Arc<S>,
    pub(super) policy: Option<Box<Policy<K, S, E>>>,
    pub(super) finalizer: Option<(Finalizer, Box<Finalize<K, S>>)>,
    /// Whether to reconcile objects that are being deleted.
    pub(super) deleting: bool,
}

impl<K: Kind, S, E, F> Reconciler<K, S, E, F> {
    fn context(&self, inner: Inner) -> Context<S> {
        Context {
            inner,
            state: Arc::clone(&self.state),
        }
    }

    /// Reconciles the object of a key.
    pub(super) async fn by_object<R, X>(&self, mut inner: Inner) -> Result<Action, ReconcileError>
    where
        F: Fn(Arc<K>, Context<S>) -> R,
        R: Future<Output = Result<Action, X>>,
        X: Into<E>,
        E: Into<BoxError>,
    {
        let Some(cached) = self.lister.get(&inner.key) else {
            return Ok(Action::await_change());
        };
        let mut object = cached.get()?;
        let is_deleting = cached.is_being_deleted();
        inner.primary = Some(Arc::new(cached));
        let cx = self.context(inner);
        if let Some((finalizer, finalize)) = &self.finalizer {
            match finalize(object, cx.clone(), finalizer.clone()).await? {
                Step::Reconcile(stored) => object = stored,
                Step::Released => return Ok(Action::await_change()),
            }
        }
        if is_deleting && !self.deleting {
            return Ok(Action::await_change());
        }
        let Some(policy) = &self.policy else {
            let done = (self.reconcile)(object, cx).await;
            return done.map_err(|error| ReconcileError::from_boxed(error.into().into()));
        };
        let done = (self.reconcile)(Arc::clone(&object), cx.clone()).await;
        done.map_err(|error| {
            let error = error.into();
            let action = policy(object, &error, cx);
            ReconcileError::new(error, action)
        })
    }

    /// Reconciles a key.
    pub(super) async fn by_key<R>(&self, inner: Inner) -> Result<Action, ReconcileError>
    where
        F: Fn(ObjectKey, Context<S>) -> R,
        R: Future<Output = Result<Action, ReconcileError>>,
    {
        let key = inner.key.clone();
        let cx = self.context(inner);
        if let Some((finalizer, finalize)) = &self.finalizer
            && let Some(cached) = self.lister.get(&key)
        {
            let object = cached.get()?;
            match finalize(Arc::clone(&object), cx.clone(), finalizer.clone()).await? {
                Step::Released => return Ok(Action::await_change()),
                // The finalizer was stored just now. The next reconcile starts when the cache shows
                // it, so that the lister never returns an object without it.
                Step::Reconcile(stored)
                    if !Arc::ptr_eq(&stored, &object) && cx.waits_for_own_writes() =>
                {
                    return Ok(Action::requeue_after(Duration::ZERO));
                }
                Step::Reconcile(_) => {}
            }
        }
        (self.reconcile)(key, cx).await
    }
}
