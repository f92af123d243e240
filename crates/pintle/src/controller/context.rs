//! The context of one reconcile: its key, the caches, and the methods that write.

use std::{fmt, ops::Deref, sync::Arc};

use kube::Client;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{
    Listers, NotWatched, Watchable, Writes,
    applied_configurations::AppliedConfigurations,
    apply::{Apply, ApplyOwned},
    events::Events,
    own_writes::OwnWrites,
    primary::PrimaryKind,
};
use crate::{
    cache::{Kind, Lister, Object, ObjectKey},
    clock::Clock,
    informer::WatchInput,
    inspect::Record,
    object::Header,
    queue::WorkQueue,
};

/// Gives a reconcile access to caches, writes, events and the user's state.
///
/// # State
///
/// `S` is the state set with [`Controller::state`](super::Controller::state). A context
/// dereferences to it, so `cx.bucket_api` reads a field of your state. If a method of your state
/// has the same name as one of `Context`, call it as `cx.state().name()`.
///
/// # Reads
///
/// [`lister`](Self::lister) reads a cache of the controller, and [`owned`](Self::owned) lists what
/// the reconciled object controls.
///
/// # Writes
///
/// | to | use |
/// |---|---|
/// | keep a child in its desired state | [`apply_owned`](Self::apply_owned) |
/// | keep a set of children, and delete those no longer wanted | [`apply_set`](Self::apply_set) |
/// | apply fields of any other object | [`apply`](Self::apply) |
/// | create, replace, patch, delete | [`create`](Self::create), [`replace`](Self::replace), [`patch`](Self::patch), [`delete`](Self::delete) |
/// | report status | [`report`](Self::report), [`update_status`](Self::update_status), [`set_condition`](Self::set_condition), [`report_error`](Self::report_error) |
/// | record an event | [`event`](Self::event) |
/// | clean up outside the cluster | [`finalizer`](Self::finalizer), or [`Controller::finalizer`](super::Controller::finalizer) |
///
/// All writes name the controller's [field manager](super::Controller::field_manager).
///
/// **Read your own writes.** The next reconcile of the same key waits until the controller's caches
/// show what this one wrote, by default for up to 5 s (see
/// [`read_own_writes_within`](super::Controller::read_own_writes_within)). A kind is matched by
/// group and kind, so writing a `Pod` also waits for a cache of `PartialObjectMeta<Pod>` or of a
/// struct with a few of its fields. This does not cover writes made through
/// [`client`](Self::client), kinds the controller does not watch, and objects its caches may never
/// show: those outside the informers' namespace and, under a label or field selector, any write
/// except a deletion.
pub struct Context<S = ()> {
    pub(super) inner: Inner,
    pub(super) state: Arc<S>,
}

/// The part of a context that does not depend on the user's state.
#[derive(Clone)]
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) key: ObjectKey,
    pub(super) id: u64,
    /// The object passed to the reconcile function. None if it was called with the key.
    pub(super) primary: Option<Arc<dyn Header>>,
}

/// The state shared by all reconciles of a controller during a term.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) field_manager: String,
    pub(super) client: Client,
    pub(super) listers: Arc<Listers>,
    /// The names of the watched kinds, its own first.
    pub(super) sources: Arc<[String]>,
    pub(super) primary: Arc<PrimaryKind>,
    pub(super) queue: WorkQueue<ObjectKey>,
    /// None without an inspector.
    pub(super) record: Option<Record>,
    /// None if the controller does not wait for its own writes.
    pub(super) own_writes: Option<Arc<OwnWrites>>,
    pub(super) applied: Arc<AppliedConfigurations>,
    pub(super) events: Arc<Events>,
    pub(super) clock: Clock,
    /// Cancelled when the term ends.
    pub(super) shutdown: CancellationToken,
}

impl<S> Context<S> {
    /// Returns the key of the object that is reconciled.
    pub fn key(&self) -> &ObjectKey {
        &self.inner.key
    }

    /// Returns the state set with [`Controller::state`](super::Controller::state).
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the number of this reconcile, unique within the controller. Its tracing span has it
    /// as `reconcile_id`.
    pub fn reconcile_id(&self) -> u64 {
        self.inner.id
    }

    /// Returns 1 for the first try since the key last succeeded or failed terminally, 2 for the
    /// first retry, and so on.
    pub fn attempt(&self) -> u32 {
        let retries = self.inner.shared.queue.retries(self.key());
        retries.saturating_add(1)
    }

    /// Returns the token that is cancelled when the controller stops.
    ///
    /// A long reconcile should then return early: it is dropped after
    /// [`stop_within`](super::Controller::stop_within).
    pub fn shutdown(&self) -> &CancellationToken {
        &self.inner.shared.shutdown
    }

    /// Returns the client. The next reconcile may start before the caches show what is written
    /// through it.
    pub fn client(&self) -> &Client {
        &self.inner.shared.client
    }

    /// Returns whether the next reconcile of the key waits for the caches to show what this one
    /// wrote.
    pub(super) fn waits_for_own_writes(&self) -> bool {
        self.inner.shared.own_writes.is_some()
    }

    /// Returns the clock for timestamps in conditions and events.
    pub fn clock(&self) -> &Clock {
        &self.inner.shared.clock
    }

    /// Returns the name under which the controller's writes appear in `managedFields`.
    pub fn field_manager(&self) -> &str {
        &self.inner.shared.field_manager
    }

    /// Returns the lister of a kind the controller watches: its own, or one that it
    /// [owns](super::Controller::owns) or [watches](super::Controller::watches).
    ///
    /// A lister returns cached [`Object`](crate::cache::Object)s: key, labels and owners are at
    /// hand, and [`get`](crate::cache::Object::get) decodes the rest.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{cache::ObjectKey, controller::{Context, ReconcileError}};
    /// # fn example(cx: &Context) -> Result<(), ReconcileError> {
    /// let key = ObjectKey::namespaced("default", "settings");
    /// if let Some(cached) = cx.lister::<ConfigMap>()?.get(&key) {
    ///     let settings = cached.get()?; // an Arc<ConfigMap>
    ///     let region = settings.data.as_ref().and_then(|data| data.get("region"));
    ///     # let _ = region;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`NotWatched`] if the controller does not watch `K`: changes to such an object
    /// would not enqueue anything, and its cache might still be empty.
    pub fn lister<K: Kind<DynamicType: Default>>(&self) -> Result<Lister<K>, NotWatched> {
        self.inner.shared.listers.get()
    }

    /// Returns the lister of a watched kind that is known only at run time. See
    /// [`Listers::of`].
    ///
    /// # Errors
    ///
    /// Same as [`lister`](Self::lister).
    pub fn lister_of<K: Kind>(&self, kind: &K::DynamicType) -> Result<Lister<K>, NotWatched> {
        self.inner.shared.listers.of(kind)
    }

    /// Returns the lister of an input that the controller watches, to distinguish several caches of
    /// one kind with different selectors or in different clusters.
    ///
    /// # Errors
    ///
    /// Same as [`lister`](Self::lister).
    pub fn lister_from<K: Kind>(&self, input: &WatchInput<K>) -> Result<Lister<K>, NotWatched> {
        self.inner.shared.listers.from_input(input)
    }

    /// Lists the `K`s whose controller is the reconciled object, from the cache.
    ///
    /// The usual reason is pruning: delete every owned object that the spec no longer needs. The
    /// first call for a kind adds an index to its cache.
    ///
    /// # Errors
    ///
    /// Fails with [`NotWatched`] if the controller does not watch `K`.
    pub fn owned<K: Watchable>(&self) -> Result<Vec<Object<K>>, NotWatched> {
        self.owned_of(&K::DynamicType::default())
    }

    /// Like [`owned`](Self::owned), for a kind that is known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`NotWatched`] if the controller does not watch the kind.
    pub fn owned_of<K: Kind>(&self, kind: &K::DynamicType) -> Result<Vec<Object<K>>, NotWatched> {
        let listers = &self.inner.shared.listers;
        let Some(owner) = self.inner.primary() else {
            return listers.of::<K>(kind).map(|_| Vec::new());
        };
        listers.controlled_by(kind, self.key().namespace(), owner.uid())
    }

    /// Returns the writes for a kind that is known only at run time.
    pub fn of<'a, K: Kind>(&'a self, kind: &'a K::DynamicType) -> Writes<'a, K> {
        Writes::of(&self.inner, kind)
    }

    pub(super) fn writes<K: Kind<DynamicType: Default>>(&self) -> Writes<'_, K> {
        Writes::typed(&self.inner)
    }

    /// Creates `object` in the namespace named in its metadata.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request or does not respond.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn create<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        self.writes().create(object).await
    }

    /// Replaces `object` if its `resourceVersion` is still current.
    ///
    /// # Errors
    ///
    /// Fails with a conflict if the object has changed; otherwise same as [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn replace<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        self.writes().replace(object).await
    }

    /// Replaces the status of `object` if its `resourceVersion` is still current.
    ///
    /// # Errors
    ///
    /// Fails with a conflict if the object has changed; otherwise same as [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn replace_status<K: Writable>(&self, object: &K) -> Result<K, kube::Error> {
        self.writes().replace_status(object).await
    }

    /// Patches the object called `key`.
    ///
    /// For server-side apply use [`apply`](Self::apply).
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request or does not respond.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn patch<K: Writable, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &kube::api::Patch<P>,
    ) -> Result<K, kube::Error> {
        self.writes::<K>().patch(key, patch).await
    }

    /// Patches the status of the object called `key`.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the request or does not respond.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn patch_status<K: Writable, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        patch: &kube::api::Patch<P>,
    ) -> Result<K, kube::Error> {
        self.writes::<K>().patch_status(key, patch).await
    }

    /// Deletes `object`, identified by its UID, with background propagation. An object that is
    /// already gone counts as deleted.
    ///
    /// # Errors
    ///
    /// Fails with a conflict if another object has taken the name; otherwise same as
    /// [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the request may have been executed.
    pub async fn delete<K>(&self, object: &Object<K>) -> Result<(), kube::Error>
    where
        K: Kind<DynamicType: Default>,
    {
        self.writes().delete(object).await
    }

    /// Applies `object` with server-side apply: the fields it sets become the controller's, and
    /// fields that it set before and no longer sets are removed.
    ///
    /// Await the result. A field that another manager owns with a different value is a conflict;
    /// [`force`](Apply::force) takes it over.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Service;
    /// # async fn example(cx: pintle::controller::Context, service: Service) -> Result<(), kube::Error> {
    /// cx.apply(&service).await?;
    /// cx.apply(&service).force().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn apply<'a, K: Writable>(&'a self, object: &'a K) -> Apply<'a, K> {
        self.writes().into_apply(object, None)
    }

    /// Applies the status of `object` with server-side apply, as [`apply`](Self::apply) does with
    /// the rest.
    pub fn apply_status<'a, K: Writable>(&'a self, object: &'a K) -> Apply<'a, K> {
        self.writes().into_apply(object, Some("status"))
    }

    /// Brings a child of the reconciled object to the state in `child`, writing only if something
    /// differs.
    ///
    /// Sets the controller reference and, if it is missing, the namespace; then applies `child`
    /// with server-side apply. The next reconcile of the key sees the result. Await the returned
    /// value; see [`ApplyOwned`] for what is compared, and for conflicts with other managers.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # use pintle::controller::{Action, ApplyError, Context};
    /// # fn deployment_for(_: &ConfigMap) -> Deployment { unimplemented!() }
    /// async fn reconcile(config: Arc<ConfigMap>, cx: Context) -> Result<Action, ApplyError> {
    ///     let deployment = cx.apply_owned(deployment_for(&config)).await?;
    ///     if deployment.is_changed() {
    ///         println!("wrote Deployment {:?}", deployment.metadata.name);
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub fn apply_owned<K: Writable>(&self, child: K) -> ApplyOwned<'_, K> {
        self.writes().apply_owned(child)
    }

    /// Returns this context without the state.
    pub(super) fn without_state(self) -> Context {
        Context {
            inner: self.inner,
            state: Arc::new(()),
        }
    }
}

impl Inner {
    /// Returns the reconciled object: the one passed to the reconcile function, or else the cached
    /// one.
    pub(super) fn primary(&self) -> Option<Arc<dyn Header>> {
        let passed = self.primary.clone();
        passed.or_else(|| self.shared.primary.cached(&self.key))
    }
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            state: Arc::clone(&self.state),
        }
    }
}

impl<S> Deref for Context<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("key", self.key())
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}

/// A kind that can be written back in full.
///
/// A struct that holds only some of a kind's fields is for reading and must not be [`Serialize`]:
/// replacing an object with it would drop the other fields.
pub trait Writable: Watchable + Serialize {}

impl<K: Watchable + Serialize> Writable for K {}
