//! All informers of a process.

use std::{
    any::{Any, TypeId, type_name},
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use kube::{
    Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    core::Core,
    shared::{self, Runner, SharedInformer},
    usage::Usage,
};
use crate::{
    metrics::Metrics,
    object::{BoxError, Kind, Reader},
    reflector::Status,
    source::{KubeSource, ListOptions, Scope},
};

type Transform = Arc<dyn Fn(&mut Value) -> Result<(), BoxError> + Send + Sync>;
type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// Makes informers and makes each only once. A handle: clones are the same factory.
///
/// Whoever asks for the same kind, in the same scope, read in the same way, gets the same informer:
/// one list and one watch, however many controllers. Once the factory has started, an informer runs
/// from the moment it is asked for. It stops when nobody holds it, or a lister, registration or
/// stream of it, any more.
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
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    state: Mutex<State>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct State {
    settings: Settings,
    entries: BTreeMap<Identity, Entry>,
    /// What stops the informers that are started from now on.
    started: Option<(CancellationToken, Handle)>,
    shut_down: bool,
}

#[derive(Default, Clone)]
struct Settings {
    resync: Option<Duration>,
    resync_of: BTreeMap<(String, String), Duration>,
    namespace: Option<String>,
    transform: Option<Transform>,
    tweak: Option<Tweak>,
    metrics: Metrics,
    name: String,
}

/// What makes an informer the one that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    api_version: String,
    kind: String,
    scope: Scope,
    /// The type objects are decoded to: `Pod`, its metadata, a struct of the user's.
    form: TypeId,
    transform: Option<String>,
    eager: bool,
    keep_managed_fields: bool,
}

struct Entry {
    informer: Box<dyn AnyInformer>,
    usage: Weak<Usage>,
    /// Cancelled to stop the informer; none before it runs.
    stop: Option<CancellationToken>,
}

/// An informer of any kind, without a hold on it.
trait AnyInformer: Send {
    fn as_any(&self) -> &dyn Any;
    fn runner(&self) -> &Arc<Runner>;
    fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()>;
    fn synced(&self) -> BoxFuture<'static, bool>;
    fn has_synced(&self) -> bool;
}

struct Parts<K: Kind> {
    core: Arc<Core<K>>,
    runner: Arc<Runner>,
}

impl<K: Kind> AnyInformer for Parts<K> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let (core, runner) = (self.core.clone(), self.runner.clone());
        Box::pin(async move { shared::run(&core, &runner, &stop).await })
    }

    fn synced(&self) -> BoxFuture<'static, bool> {
        let core = self.core.clone();
        Box::pin(async move { core.synced().await })
    }

    fn has_synced(&self) -> bool {
        self.core.fifo.has_synced()
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

    /// Follows one namespace only. Kinds that live in none are followed all the same.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        let namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self.set(|settings| settings.namespace = namespace)
    }

    /// Changes every object on its way in, whatever its kind, instead of what a
    /// [request](InformerRequest::transform) says. See [`Reader::transform`].
    pub fn transform<F>(self, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.set(|settings| settings.transform = Some(Arc::new(change)))
    }

    /// Changes the options of every list and watch just before they are sent.
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
        // The type of a kind's scope can be told only by its name.
        let in_cluster = type_name::<K::Scope>().ends_with("::ClusterResourceScope");
        let namespace = settings.namespace.clone().filter(|_| !in_cluster);
        let identity = Identity {
            api_version: K::api_version(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
            scope: namespace.map_or_else(Scope::all, Scope::namespace),
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
    /// everybody who asks with the factory's own settings, and replaces the one that was there.
    pub fn adopt<K: Kind>(&self, kind: &K::DynamicType, informer: &SharedInformer<K>) {
        let identity = self.request::<K>(kind).identity;
        let mut state = self.shared.state.lock();
        state.entries.insert(identity.clone(), entry(informer));
        self.start_if_running(&mut state, &identity);
    }

    /// Starts the informers that were asked for; those asked for later start by themselves.
    ///
    /// Does not block. Calling it again starts nothing twice; an informer stops with the token of
    /// the call that started it. After [`shutdown`](Self::shutdown) it does nothing.
    ///
    /// Must be called within a tokio runtime.
    pub fn start(&self, shutdown: &CancellationToken) {
        let mut state = self.shared.state.lock();
        if state.shut_down {
            return;
        }
        state.started = Some((shutdown.clone(), Handle::current()));
        let identities: Vec<Identity> = state.entries.keys().cloned().collect();
        for identity in identities {
            self.start_if_running(&mut state, &identity);
        }
    }

    fn start_if_running(&self, state: &mut State, identity: &Identity) {
        let Some((token, runtime)) = state.started.clone().filter(|_| !state.shut_down) else {
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
                run_while_used(run, &unused, &stop).await;
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
                    informer: runner.describe.clone(),
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

fn entry<K: Kind>(informer: &SharedInformer<K>) -> Entry {
    let parts = Parts {
        core: informer.core.clone(),
        runner: informer.runner.clone(),
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

/// An informer that is about to be asked for.
///
/// ```no_run
/// # fn example(informers: pintle::informer::InformerFactory) {
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::source::Scope;
///
/// let web = informers.request::<Pod>(&()).scope(Scope::namespace("shop").labels("app=web")).get();
/// # }
/// ```
#[must_use = "an informer is asked for by get"]
pub struct InformerRequest<'a, K: Kind> {
    factory: &'a InformerFactory,
    identity: Identity,
    settings: Settings,
    transform: Option<Transform>,
    kind: &'a K::DynamicType,
}

impl<K: Kind> InformerRequest<'_, K> {
    /// Which objects, instead of those in the factory's namespace.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.identity.scope = scope;
        self
    }

    /// Changes every object on its way in. Those who ask with the same `name` share an informer,
    /// and the first one's function. See [`Reader::transform`].
    pub fn transform<F>(mut self, name: impl Into<String>, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.identity.transform = Some(name.into());
        self.transform = Some(Arc::new(change));
        self
    }

    /// Decodes every object on its way in. See [`Reader::eager`].
    pub fn eager(mut self) -> Self {
        self.identity.eager = true;
        self
    }

    /// Keeps `metadata.managedFields`. See [`Reader::keep_managed_fields`].
    pub fn keep_managed_fields(mut self) -> Self {
        self.identity.keep_managed_fields = true;
        self
    }

    /// The informer: the one that is there, or a new one.
    pub fn get(self) -> SharedInformer<K> {
        let mut state = self.factory.shared.state.lock();
        if let Some(entry) = state.entries.get(&self.identity)
            && let Some(usage) = entry.usage.upgrade()
            && let Some(parts) = entry.informer.as_any().downcast_ref::<Parts<K>>()
        {
            let (core, runner) = (parts.core.clone(), parts.runner.clone());
            return SharedInformer {
                core,
                runner,
                usage,
            };
        }
        let (factory, identity) = (self.factory, self.identity.clone());
        let informer = self.make();
        state.entries.insert(identity.clone(), entry(&informer));
        factory.start_if_running(&mut state, &identity);
        informer
    }

    fn make(self) -> SharedInformer<K> {
        let Self {
            factory,
            identity,
            settings,
            transform,
            kind,
        } = self;
        let mut reader = Reader::new()
            .eager(identity.eager)
            .keep_managed_fields(identity.keep_managed_fields);
        if type_name::<K::Scope>().ends_with("::DynamicResourceScope") && !K::metadata_api() {
            reader = reader.name_kind(&identity.api_version, &identity.kind);
        }
        if let Some(transform) = settings.transform.or(transform) {
            reader = reader.transform(move |value| transform(value));
        }
        let client = factory.shared.client.clone();
        let mut source = KubeSource::<K>::dynamic(client, kind, identity.scope);
        if let Some(tweak) = settings.tweak {
            source = source.tweak_list_options(move |options| tweak(options));
        }
        let of = (identity.api_version, identity.kind);
        let resync = settings.resync_of.get(&of).copied().or(settings.resync);
        SharedInformer::builder(source)
            .reader(reader)
            .resync(resync.unwrap_or_default())
            .name(settings.name)
            .metrics(settings.metrics)
            .build()
    }
}

/// Informers that have not synced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NotSynced {
    /// Each of them.
    pub informers: Vec<Unsynced>,
}

/// An informer that has not synced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unsynced {
    /// What it follows: `pods at cluster scope`.
    pub informer: String,
    /// What it is doing, and what went wrong.
    pub status: Status,
}

impl std::error::Error for NotSynced {}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not synced: ")?;
        for (number, Unsynced { informer, status }) in self.informers.iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            write!(f, "{separator}{informer} ({status})")?;
        }
        Ok(())
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

impl<K: Kind> fmt::Debug for InformerRequest<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerRequest")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
