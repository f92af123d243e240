//! All informers of a process.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

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
    health::Dead,
    not_synced::{NotSynced, Unsynced},
    processor::Processor,
    request::InformerRequest,
    shared_informer::{self, Runner, SharedInformer},
    usage::Usage,
};
use crate::{
    clock::Rng,
    metrics::Metrics,
    object::{BoxError, Kind, panic_message},
    source::{Home, ListOptions, Scope},
};

pub(super) type Transform = Arc<dyn Fn(&mut Value) -> Result<(), BoxError> + Send + Sync>;
type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// Makes informers and makes each only once. A handle: clones are the same factory.
///
/// Whoever asks for the same kind, in the same scope, read in the same way, gets the same informer:
/// one list and one watch, however many controllers. Once the factory has started, an informer runs
/// from the moment it is asked for. It stops when nobody holds it, or a lister, registration or
/// stream of it, any more.
///
/// A factory can be started again after the token of an earlier [`start`](Self::start) was
/// cancelled, as a leader does that lost its lease and regained it. An informer runs only once, so
/// those that are still held are replaced by new ones. Listers follow: they show the last state of
/// the old informer until the new one has synced. Indices are taken over, and can be defined anew;
/// handlers have ended and have to be registered again.
///
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
/// let _watching = pods.on_event(|event| println!("{}", event.key()));
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
    pub(super) state: Mutex<State>,
    tasks: TaskTracker,
}

#[derive(Default)]
pub(super) struct State {
    settings: Settings,
    pub(super) entries: BTreeMap<Identity, Entry>,
    /// Informers that ended by themselves and were replaced: handlers of theirs are never called
    /// again. The latest of each identity.
    pub(super) dead: BTreeMap<Identity, Dead>,
    /// What stops the informers that are started from now on.
    started: Option<(CancellationToken, Handle)>,
    shut_down: bool,
}

impl State {
    /// Puts an informer in its place. If the one there ended by itself, that is remembered.
    pub(super) fn put(&mut self, identity: Identity, entry: Entry) {
        self.dead.retain(|_, dead| dead.is_missed());
        let before = self.entries.insert(identity.clone(), entry);
        if let Some(dead) = before.as_ref().and_then(Dead::of) {
            self.dead.insert(identity, dead);
        }
    }

    /// Whether nothing will ever run again.
    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Whether an informer that is made now would run.
    pub(super) fn can_run(&self) -> bool {
        let started = self.started.as_ref();
        !self.shut_down && started.is_some_and(|(token, _)| !token.is_cancelled())
    }

    /// Whether nothing was started yet.
    pub(super) fn is_new(&self) -> bool {
        !self.shut_down && self.started.is_none()
    }
}

#[derive(Default, Clone)]
pub(super) struct Settings {
    pub(super) resync: Option<Duration>,
    pub(super) resync_of: BTreeMap<(String, String), Duration>,
    pub(super) namespace: Option<String>,
    pub(super) transform: Option<Transform>,
    pub(super) tweak: Option<Tweak>,
    pub(super) metrics: Metrics,
    pub(super) rng: Rng,
    pub(super) name: String,
}

/// What makes an informer the one that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) scope: Scope,
    /// The type objects are decoded to: `Pod`, its metadata, a struct of the user's.
    pub(super) form: TypeId,
    pub(super) transform: Option<String>,
    pub(super) eager: bool,
    pub(super) keep_managed_fields: bool,
}

pub(super) struct Entry {
    pub(super) informer: Box<dyn AnyInformer>,
    pub(super) usage: Weak<Usage>,
    /// Cancelled to stop the informer; none before it runs.
    pub(super) stop: Option<CancellationToken>,
}

impl Entry {
    /// Whether it was told to stop: it may not have noticed yet.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
    }

    /// Whether it has stopped or is about to.
    pub(super) fn is_over(&self) -> bool {
        self.is_stopping() || self.informer.is_stopped()
    }
}

/// An informer of any kind, without a hold on it.
pub(super) trait AnyInformer: Send {
    fn as_any(&self) -> &dyn Any;
    fn runner(&self) -> &Arc<Runner>;
    fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()>;
    fn synced(&self) -> BoxFuture<'static, bool>;
    fn has_synced(&self) -> bool;
    fn is_stopped(&self) -> bool;
    /// An informer that takes the place of this one; none if it was not made by the factory.
    fn renew(&self, usage: Arc<Usage>) -> Option<Entry>;
}

/// Makes an informer like the one before.
pub(super) type Make<K> = Arc<dyn Fn() -> SharedInformer<K> + Send + Sync>;

pub(super) struct Parts<K: Kind> {
    pub(super) processor: Arc<Processor<K>>,
    pub(super) runner: Arc<Runner>,
    make: Option<Make<K>>,
}

impl<K: Kind> AnyInformer for Parts<K> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let (processor, runner) = (self.processor.clone(), self.runner.clone());
        Box::pin(async move { shared_informer::run(&processor, &runner, &stop).await })
    }

    fn synced(&self) -> BoxFuture<'static, bool> {
        let processor = self.processor.clone();
        Box::pin(async move { processor.synced().await })
    }

    fn has_synced(&self) -> bool {
        self.processor.fifo.has_synced()
    }

    fn is_stopped(&self) -> bool {
        self.processor.is_stopped()
    }

    fn renew(&self, usage: Arc<Usage>) -> Option<Entry> {
        let make = self.make.clone()?;
        let informer = make().succeed(&self.processor, usage);
        Some(entry(&informer, Some(make)))
    }
}

impl InformerFactory {
    /// A factory of informers that ask `client`'s server.
    pub fn new(client: Client) -> Self {
        let state = Mutex::new(State::default());
        Self {
            shared: Arc::new(Shared {
                client,
                state,
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// The client whose server the informers ask.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.shared.state.lock().settings);
        self
    }

    /// How often handlers are told everything once more. Concerns informers asked for later, as do
    /// all settings.
    pub fn resync(self, period: Duration) -> Self {
        self.set(|settings| settings.resync = Some(period))
    }

    /// As [`resync`](Self::resync), for one kind.
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

    /// Follows one namespace only. Kinds that live in none are followed at cluster scope.
    ///
    /// Of a kind known only at run time, the server's discovery is asked where it lives. Differs
    /// from client-go, whose dynamic factory asks for such a kind inside the namespace and gets 404.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        let namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self.set(|settings| settings.namespace = namespace)
    }

    /// Changes every object on its way in, whatever its kind, instead of what a
    /// [request](InformerRequest::transform) says. See
    /// [`Reader::transform`](crate::cache::Reader::transform).
    pub fn transform<F>(self, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.set(|settings| settings.transform = Some(Arc::new(change)))
    }

    /// Changes the options of every list and watch just before they are sent. If it selects
    /// objects, a [controller](crate::controller::Context) on these informers waits for none of its
    /// own writes but deletions.
    pub fn tweak_list_options<F>(self, tweak: F) -> Self
    where
        F: Fn(&mut ListOptions) + Send + Sync + 'static,
    {
        self.set(|settings| settings.tweak = Some(Arc::new(tweak)))
    }

    /// Where to count.
    pub fn metrics(self, metrics: Metrics) -> Self {
        self.set(|settings| settings.metrics = metrics)
    }

    /// Where the jitter of retries comes from; real entropy unless said otherwise. With a seed, a
    /// program under a paused clock retries at the same instants in every run.
    pub fn rng(self, rng: Rng) -> Self {
        self.set(|settings| settings.rng = rng)
    }

    /// A name that tells this factory's informers from others in metrics.
    pub fn name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.set(|settings| settings.name = name)
    }

    /// The informer of `K`: the same for everybody who asks.
    pub fn informer<K: Kind>(&self) -> SharedInformer<K>
    where
        K::DynamicType: Default,
    {
        self.request::<K>(&K::DynamicType::default()).get()
    }

    /// The informer of a kind that is known only when the program runs.
    pub fn dynamic(&self, kind: &ApiResource) -> SharedInformer<DynamicObject> {
        self.request(kind).get()
    }

    /// The informer of a kind's metadata: the server leaves everything else out.
    pub fn metadata(&self, kind: &ApiResource) -> SharedInformer<PartialObjectMeta> {
        self.request(kind).get()
    }

    /// An informer with a scope or a way of reading of its own.
    pub fn request<'a, K: Kind>(&'a self, kind: &'a K::DynamicType) -> InformerRequest<'a, K> {
        let settings = self.shared.state.lock().settings.clone();
        let scope = settings.namespace.clone();
        let scope = scope.map_or_else(Scope::all, Scope::namespace);
        let identity = Identity {
            api_version: K::api_version(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
            scope: lived_in::<K>(scope),
            form: TypeId::of::<K>(),
            transform: None,
            eager: false,
            keep_managed_fields: false,
        };
        InformerRequest {
            factory: self,
            identity,
            settings,
            transform: None,
            kind,
        }
    }

    /// Makes `informer` the one of its kind: for a source of your own, as in tests. It is given to
    /// everybody who asks with the factory's own settings, and replaces the one that was there. Once
    /// it has stopped, adopt another: the factory cannot make one of the same source.
    pub fn adopt<K: Kind>(&self, kind: &K::DynamicType, informer: &SharedInformer<K>) {
        let identity = self.request::<K>(kind).identity;
        let mut state = self.shared.state.lock();
        let entry = entry(informer, None);
        state.put(identity.clone(), entry);
        self.start_if_running(&mut state, &identity);
    }

    /// Starts the informers that were asked for; those asked for later start by themselves.
    ///
    /// Does not block. Calling it again starts nothing twice; an informer stops with the token of
    /// the call that started it. Informers that have stopped since and are still held are replaced
    /// by new ones, except [adopted](Self::adopt) ones. After [`shutdown`](Self::shutdown) it does
    /// nothing.
    ///
    /// Must be called within a tokio runtime.
    pub fn start(&self, shutdown: &CancellationToken) {
        let mut state = self.shared.state.lock();
        if state.shut_down {
            return;
        }
        // Whoever started first decides when the informers stop, unless that is over.
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

    pub(super) fn start_if_running(&self, state: &mut State, identity: &Identity) {
        // Before the next start, what is asked for waits for it.
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
                    let (informer, panicked) = (runner.describe(), panic_message(&*panic));
                    tracing::error!(informer, "informer {panicked}; its cache stands still");
                    let _ = runner.panic.set(panicked);
                }
                if let Some(shared) = shared.upgrade() {
                    shared.forget(&identity, &runner);
                }
            },
            &runtime,
        );
    }

    /// Waits until every informer that was started has synced.
    ///
    /// If one stops before, the error names all that are not synced and what they are doing. There
    /// is no time limit: a server that refuses may yet be talked round.
    /// [`not_synced`](Self::not_synced) tells at any time what is missing and why.
    ///
    /// Cancel safe.
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        loop {
            let waiting = {
                let state = self.shared.state.lock();
                let mut running = state.entries.values().filter(|entry| entry.stop.is_some());
                running
                    .find(|entry| entry.usage.strong_count() > 0 && !entry.informer.has_synced())
                    .map(|entry| (entry.informer.synced(), entry.usage.clone()))
            };
            let Some((synced, usage)) = waiting else {
                return Ok(());
            };
            let before = self.not_synced();
            // An informer that stopped because nobody wants it any more is not missed.
            if !synced.await && usage.strong_count() > 0 {
                return self.not_synced().or(before).map_or(Ok(()), Err);
            }
        }
    }

    /// As [`wait_for_sync`](Self::wait_for_sync), but not longer than `limit`.
    ///
    /// Cancel safe.
    pub async fn wait_for_sync_within(&self, limit: Duration) -> Result<(), NotSynced> {
        match tokio::time::timeout(limit, self.wait_for_sync()).await {
            Ok(outcome) => outcome,
            Err(_) => self.not_synced().map_or(Ok(()), Err),
        }
    }

    /// Which of the started informers have not synced, and what they are doing about it.
    pub fn not_synced(&self) -> Option<NotSynced> {
        let state = self.shared.state.lock();
        let running = state.entries.values().filter(|entry| entry.stop.is_some());
        let informers: Vec<Unsynced> = running
            .filter(|entry| entry.usage.strong_count() > 0 && !entry.informer.has_synced())
            .map(|entry| {
                let runner = entry.informer.runner();
                let status = runner.status.borrow().clone();
                Unsynced {
                    informer: status.target.to_string(),
                    status,
                }
            })
            .collect();
        (!informers.is_empty()).then_some(NotSynced { informers })
    }

    /// Stops all informers and waits until they have ended. Nothing can be started afterwards.
    ///
    /// Cancel safe; may be called by several at once and again.
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

/// The scope without its namespace if the kind lives in none.
pub(super) fn lived_in<K: Kind>(scope: Scope) -> Scope {
    match Home::of::<K>() {
        Home::Cluster => scope.in_cluster(),
        Home::Namespaces | Home::Unknown => scope,
    }
}

pub(super) fn entry<K: Kind>(informer: &SharedInformer<K>, make: Option<Make<K>>) -> Entry {
    let parts = Parts {
        processor: informer.processor.clone(),
        runner: informer.runner.clone(),
        make,
    };
    Entry {
        informer: Box::new(parts),
        usage: Arc::downgrade(&informer.usage),
        stop: None,
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
        // The informer is asked to stop before it is polled again.
        () = unused.cancelled() => stop.cancel(),
        () = &mut run => return,
    }
    run.await;
}

impl Shared {
    /// Forgets an informer that has ended, unless another has taken its place.
    fn forget(&self, identity: &Identity, runner: &Arc<Runner>) {
        let mut state = self.state.lock();
        let same = state.entries.get(identity);
        if same.is_some_and(|entry| {
            Arc::ptr_eq(entry.informer.runner(), runner) && entry.usage.strong_count() == 0
        }) {
            state.entries.remove(identity);
        }
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.shared.state.lock().entries.len();
        f.debug_struct("InformerFactory")
            .field("informers", &informers)
            .finish_non_exhaustive()
    }
}
