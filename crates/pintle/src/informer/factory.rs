//! All informers of a process.

use std::{fmt, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::{
    Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    health::NotSynced,
    input::WatchInput,
    registry::{Entry, Identity, Parts, Registry, Settings},
    shared_informer::SharedInformer,
};
use crate::{
    BoxError,
    clock::Rng,
    metrics::Metrics,
    object::{Kind, panic_message},
    source::ListOptions,
};

/// Builds informers, each only once, and runs them.
///
/// `InformerFactory` is a handle; clones refer to the same factory. Each [`WatchInput`] has one
/// informer: one list and one watch, however many controllers use it. Once the factory has started,
/// an informer runs from the moment it is requested. It stops when its last handle, lister,
/// registration or stream is dropped.
///
/// # Restarting
/// After the token of an earlier [`start`](Self::start) was cancelled, the factory can be started
/// again, for example by a leader that lost its lease and regained it. An informer runs only once,
/// so those still in use are replaced by new ones. Listers follow: they show the last state of the
/// old informer until the new one has synced. Indexes are carried over and can be redefined;
/// handlers have ended and must be registered again.
///
/// # Examples
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::informer::InformerFactory;
/// use std::time::Duration;
/// use tokio_util::sync::CancellationToken;
///
/// let shutdown = CancellationToken::new();
/// let informers = InformerFactory::new(client).resync(Duration::from_secs(30));
/// let pods = informers.informer::<Pod>();
/// pods.index_field("node", "/spec/nodeName")?;
/// let _registration = pods.on_event(|event| println!("{}", event.key()));
/// informers.start(&shutdown);
/// informers.wait_for_sync().await?;
/// println!("{} pods on worker-1", pods.lister().by_index("node", "worker-1")?.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InformerFactory {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) state: Mutex<Registry>,
    tasks: TaskTracker,
}

impl InformerFactory {
    /// Returns a factory whose informers list and watch through `client`.
    pub fn new(client: Client) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                state: Mutex::default(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Returns whether this is a handle of the same factory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the client that the informers use.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.shared.state.lock().settings);
        self
    }

    /// Sets how often every object is delivered again to the handlers. Like all settings, it
    /// applies to informers requested later.
    pub fn resync(self, period: Duration) -> Self {
        self.set(|settings| settings.resync = Some(period))
    }

    /// Sets the resync period of one kind.
    pub fn resync_of<K: Kind>(self, period: Duration) -> Self
    where
        K::DynamicType: Default,
    {
        let kind = K::DynamicType::default();
        let kind = (
            K::api_version(&kind).into_owned(),
            K::kind(&kind).into_owned(),
        );
        self.set(|settings| {
            settings.resync_of.insert(kind, period);
        })
    }

    /// Restricts informers to one namespace. Cluster-scoped kinds are followed at cluster scope.
    ///
    /// The scope of a kind known only at run time comes from the server's discovery. Differs from
    /// client-go, whose dynamic factory requests a cluster-scoped kind inside the namespace and
    /// gets 404.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        let namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self.set(|settings| settings.namespace = namespace)
    }

    /// Returns the namespace that informers are restricted to.
    pub(crate) fn in_namespace(&self) -> Option<String> {
        self.shared.state.lock().settings.namespace.clone()
    }

    /// Changes every object of every kind on its way into the cache, except objects of inputs with
    /// a [transform of their own](WatchInput::transform). See
    /// [`Reader::transform`](crate::cache::Reader::transform).
    pub fn transform<F>(self, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.set(|settings| settings.transform = Some(Arc::new(change)))
    }

    /// Changes the options of every list and watch just before they are sent. If the change selects
    /// objects, a [controller](crate::controller::Context) on these informers waits only for its
    /// own deletions, not for its other writes.
    pub fn tweak_list_options<F>(self, tweak: F) -> Self
    where
        F: Fn(&mut ListOptions) + Send + Sync + 'static,
    {
        self.set(|settings| settings.tweak = Some(Arc::new(tweak)))
    }

    /// Sets where metrics are registered.
    pub fn metrics(self, metrics: Metrics) -> Self {
        self.set(|settings| settings.metrics = metrics)
    }

    /// Sets the source of retry jitter. With a fixed seed, a program under a paused clock retries
    /// at the same instants in every run.
    pub fn rng(self, rng: Rng) -> Self {
        self.set(|settings| settings.rng = rng)
    }

    /// Sets the name that distinguishes this factory's informers from others in metrics.
    pub fn name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.set(|settings| settings.name = name)
    }

    /// Returns the informer of `K`. Every call returns the same one.
    pub fn informer<K: Kind>(&self) -> SharedInformer<K>
    where
        K::DynamicType: Default,
    {
        self.informer_from(&WatchInput::new())
    }

    /// Returns the informer of a kind known only at run time.
    pub fn dynamic(&self, kind: &ApiResource) -> SharedInformer<DynamicObject> {
        self.informer_from(&WatchInput::of(kind.clone()))
    }

    /// Returns an informer of a kind's metadata: the server leaves everything else out.
    pub fn metadata(&self, kind: &ApiResource) -> SharedInformer<PartialObjectMeta> {
        self.informer_from(&WatchInput::of(kind.clone()))
    }

    /// Returns the informer of `input`. Equal inputs return the same informer; see the
    /// [module](super#what-is-watched) for what counts as the same.
    ///
    /// A stopped informer is replaced by a new one, and its listers follow. A factory that was shut
    /// down returns only stopped informers.
    ///
    /// ```no_run
    /// # fn example(informers: pintle::informer::InformerFactory) {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use pintle::informer::WatchInput;
    ///
    /// let web = WatchInput::<Pod>::new().namespace("shop").labels("app=web");
    /// println!("{} web servers", informers.informer_from(&web).lister().len());
    /// # }
    /// ```
    pub fn informer_from<K: Kind>(&self, input: &WatchInput<K>) -> SharedInformer<K> {
        let mut state = self.shared.state.lock();
        let identity = input.identity(state.settings.namespace.as_deref());
        let mut before = None;
        if let Some(entry) = state.entries.get(&identity)
            && let Some(usage) = entry.usage.upgrade()
            && let Some(parts) = entry.informer.as_any().downcast_ref::<Parts<K>>()
        {
            let (processor, runner) = (parts.processor.clone(), parts.runner.clone());
            if state.shut_down || !entry.is_over() {
                return SharedInformer {
                    processor,
                    runner,
                    usage,
                };
            }
            before = Some((processor, usage));
        }
        let make = state.settings.make(self.client(), input, &identity);
        let informer = match before {
            Some((processor, usage)) => make().succeed(&processor, usage),
            None => make(),
        };
        if state.shut_down {
            informer.processor.stop();
        }
        state.put(identity.clone(), Entry::new(&informer, Some(make)));
        self.start_if_running(&mut state, &identity);
        informer
    }

    /// Returns the identity of the informer of `input`.
    pub(crate) fn identity<K: Kind>(&self, input: &WatchInput<K>) -> Identity {
        let namespace = self.shared.state.lock().settings.namespace.clone();
        input.identity(namespace.as_deref())
    }

    /// Registers `informer` for `input`, replacing any other. Use it for a custom source, as in
    /// tests.
    ///
    /// Once it has stopped, adopt a new one: the factory cannot rebuild it from a custom source.
    pub fn adopt<K: Kind>(&self, input: &WatchInput<K>, informer: &SharedInformer<K>) {
        let identity = self.identity(input);
        let mut state = self.shared.state.lock();
        state.put(identity.clone(), Entry::new(informer, None));
        self.start_if_running(&mut state, &identity);
    }

    /// Starts the informers requested so far; those requested later start automatically.
    ///
    /// Returns immediately. Calling it again starts nothing twice; an informer stops with the token
    /// of the call that started it. Informers that have stopped since and are still in use are
    /// replaced by new ones, except [adopted](Self::adopt) ones. After [`shutdown`](Self::shutdown)
    /// this does nothing.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn start(&self, shutdown: &CancellationToken) {
        let mut state = self.shared.state.lock();
        if state.shut_down {
            return;
        }
        // The first token decides when informers stop, unless it has been cancelled.
        if state
            .started
            .as_ref()
            .is_none_or(|(first, _)| first.is_cancelled())
        {
            state.started = Some((shutdown.clone(), Handle::current()));
        }
        let identities: Vec<Identity> = state.entries.keys().cloned().collect();
        for identity in identities {
            if let Some(entry) = state.entries.get(&identity)
                && entry.is_over()
                && let Some(usage) = entry.usage.upgrade()
                && let Some(next) = entry.informer.renew(usage)
            {
                state.put(identity.clone(), next);
            }
            self.start_if_running(&mut state, &identity);
        }
    }

    /// Starts an informer if the factory is running; otherwise the next `start` does.
    pub(super) fn start_if_running(&self, state: &mut Registry, identity: &Identity) {
        let Some((token, runtime)) = state.started.clone().filter(|_| state.can_run()) else {
            return;
        };
        let Some(entry) = state
            .entries
            .get_mut(identity)
            .filter(|entry| entry.stop.is_none())
        else {
            return;
        };
        let Some(usage) = entry.usage.upgrade() else {
            state.entries.remove(identity);
            return;
        };
        let stop = token.child_token();
        entry.stop = Some(stop.clone());
        let run = entry.informer.run(stop.clone());
        let (unused, runner) = (usage.unused(), entry.informer.runner().clone());
        let (shared, identity) = (Arc::downgrade(&self.shared), identity.clone());
        self.shared.tasks.spawn_on(
            async move {
                let ran = AssertUnwindSafe(run_while_used(run, &unused, &stop)).catch_unwind();
                if let Err(panic) = ran.await {
                    let (informer, error) = (runner.describe(), panic_message(&*panic));
                    tracing::error!(
                        informer,
                        error,
                        "informer failed; its cache is no longer updated"
                    );
                    let _ = runner.panic.set(error);
                }
                if let Some(shared) = shared.upgrade() {
                    shared.state.lock().remove_unused(&identity, &runner);
                }
            },
            &runtime,
        );
    }

    /// Waits until every started informer has synced.
    ///
    /// There is no time limit, because a server may accept later what it rejects now;
    /// [`not_synced`](Self::not_synced) reports which informers are missing and why.
    ///
    /// # Errors
    ///
    /// Fails if an informer stops first. The error names every informer that has not synced, and
    /// its status.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        loop {
            let waiting = {
                let state = self.shared.state.lock();
                let mut running = state.entries.values().filter(|entry| entry.stop.is_some());
                running
                    .find(|entry| entry.usage.strong_count() > 0 && !entry.informer.is_filled())
                    .map(|entry| (entry.informer.filled(), entry.usage.clone()))
            };
            let Some((synced, usage)) = waiting else {
                return Ok(());
            };
            let before = self.not_synced();
            // An informer that stopped because it is no longer used does not count.
            if !synced.await && usage.strong_count() > 0 {
                return self.not_synced().or(before).map_or(Ok(()), Err);
            }
        }
    }

    /// Waits until every started informer has synced, but no longer than `limit`.
    ///
    /// # Errors
    ///
    /// Fails if an informer stops first or the limit is reached.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn wait_for_sync_within(&self, limit: Duration) -> Result<(), NotSynced> {
        match tokio::time::timeout(limit, self.wait_for_sync()).await {
            Ok(outcome) => outcome,
            Err(_) => self.not_synced().map_or(Ok(()), Err),
        }
    }

    /// Stops all informers and waits until they have ended. Nothing can be started afterwards.
    /// Concurrent and repeated calls are fine.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the informers without waiting.
    pub async fn shutdown(&self) {
        {
            let mut state = self.shared.state.lock();
            state.shut_down = true;
            for stop in state
                .entries
                .values()
                .filter_map(|entry| entry.stop.as_ref())
            {
                stop.cancel();
            }
        }
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

async fn run_while_used(
    run: BoxFuture<'static, ()>,
    unused: &CancellationToken,
    stop: &CancellationToken,
) {
    let mut run = pin!(run);
    tokio::select! {
        biased;
        () = unused.cancelled() => stop.cancel(),
        () = &mut run => return,
    }
    run.await;
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.shared.state.lock().entries.len();
        f.debug_struct("InformerFactory")
            .field("informers", &informers)
            .finish_non_exhaustive()
    }
}
