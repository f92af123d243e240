//! The informers that a factory has built, by identity, and how it builds them.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use kube::Client;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    builder::InformerBuilder,
    health::Dead,
    input::WatchInput,
    inspect::{self, Cached},
    processor::Processor,
    shared_informer::{self, Runner, SharedInformer, Usage},
};
use crate::{
    BoxError,
    clock::Rng,
    metrics::Metrics,
    object::{Kind, Reader},
    source::{KindScope, KubeSource, ListOptions, Scope},
};

pub(super) type Transform = Arc<dyn Fn(&mut Value) -> Result<(), BoxError> + Send + Sync>;
pub(super) type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

#[derive(Default)]
pub(super) struct Registry {
    pub(super) settings: Settings,
    pub(super) entries: BTreeMap<Identity, Entry>,
    /// The latest informer of each identity that ended on its own and was replaced. Its handlers
    /// are never called again.
    pub(super) dead: BTreeMap<Identity, Dead>,
    /// The token that stops informers started from now on, and the runtime they run on.
    pub(super) started: Option<(CancellationToken, Handle)>,
    pub(super) shut_down: bool,
}

impl Registry {
    /// Inserts an informer, and records the one it replaces if that ended on its own.
    pub(super) fn put(&mut self, identity: Identity, entry: Entry) {
        self.dead.retain(|_, dead| dead.is_missed());
        let before = self.entries.insert(identity.clone(), entry);
        if let Some(dead) = before.as_ref().and_then(Dead::of) {
            self.dead.insert(identity, dead);
        }
    }

    /// Returns whether an informer built now would run.
    pub(super) fn can_run(&self) -> bool {
        let started = self.started.as_ref();
        !self.shut_down && started.is_some_and(|(token, _)| !token.is_cancelled())
    }

    /// Returns whether the factory has been neither started nor shut down.
    pub(super) fn is_new(&self) -> bool {
        !self.shut_down && self.started.is_none()
    }

    /// Removes an informer that has ended, unless it is in use or another has replaced it.
    pub(super) fn remove_unused(&mut self, identity: &Identity, runner: &Arc<Runner>) {
        let same = self.entries.get(identity);
        if same.is_some_and(|entry| {
            Arc::ptr_eq(entry.informer.runner(), runner) && entry.usage.strong_count() == 0
        }) {
            self.entries.remove(identity);
        }
    }
}

/// The settings that a factory applies to the informers it builds.
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

impl Settings {
    /// Returns the function that builds the informer of an input.
    pub(super) fn make<K: Kind>(
        &self,
        client: &Client,
        input: &WatchInput<K>,
        identity: &Identity,
    ) -> Make<K> {
        let (settings, identity, scope) = (self.clone(), identity.clone(), identity.scope.clone());
        let dynamic = KindScope::of::<K>() == KindScope::Dynamic;
        let (cluster, kind) = (input.in_cluster().cloned(), input.kind().clone());
        let client = cluster
            .as_ref()
            .map_or(client, |cluster| &cluster.client)
            .clone();
        let tweak = settings.tweak.clone();
        let source = move |scope: Scope, look_up_scope: bool| {
            let mut source = KubeSource::<K>::dynamic(client.clone(), &kind, scope);
            if look_up_scope {
                source = source.look_up_scope(&kind);
            }
            if let Some(cluster) = &cluster {
                source = source.in_cluster(&cluster.name);
            }
            if let Some(tweak) = tweak.clone() {
                source = source.tweak_list_options(move |options| tweak(options));
            }
            source
        };
        let transform = input.transform_function().or(settings.transform.clone());
        let of = (identity.api_version.clone(), identity.kind.clone());
        let resync = settings.resync_of.get(&of).copied().or(settings.resync);
        let name = match &identity.cluster {
            Some(cluster) if settings.name.is_empty() => cluster.clone(),
            Some(cluster) => format!("{}/{cluster}", settings.name),
            None => settings.name.clone(),
        };
        let configure = move |source: KubeSource<K>| -> InformerBuilder<K, KubeSource<K>> {
            let mut reader = Reader::new()
                .eager(identity.eager)
                .keep_managed_fields(identity.keep_managed_fields);
            if let Some(bytes) = identity.recent_views {
                reader = reader.recent_views(bytes);
            }
            if dynamic && !K::metadata_api() {
                reader = reader.name_kind(&of.0, &of.1);
            }
            if let Some(transform) = transform.clone() {
                reader = reader.transform(move |value| transform(value));
            }
            SharedInformer::builder(source)
                .reader(reader)
                .resync(resync.unwrap_or_default())
                .name(name.clone())
                .metrics(settings.metrics.clone())
                .rng(settings.rng.clone())
        };
        let Some(namespaces) = input.several() else {
            let look_up_scope = dynamic && scope.in_namespace().is_some();
            let source = source(scope, look_up_scope);
            return Arc::new(move || configure(source.clone()).build());
        };
        let source = Arc::new(source);
        Arc::new(move || {
            let (of_scope, of_one) = (scope.clone(), source.clone());
            let member = move |namespace: &str| of_one(of_scope.clone().in_one(namespace), false);
            // The source that describes the kind for all namespaces.
            let any = source(scope.clone(), false);
            configure(any).build_for_namespaces(namespaces.clone(), Box::new(member))
        })
    }
}

/// The identity of an informer: inputs with equal identities share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// The name of the cluster, unless it is the factory's.
    pub(super) cluster: Option<String>,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// The selectors, and the namespace if there is only one.
    pub(super) scope: Scope,
    pub(super) several: Option<NamespaceSet>,
    /// The type that objects are decoded to: `Pod`, its metadata, or a user's struct.
    pub(super) form: TypeId,
    pub(super) transform: Option<String>,
    pub(super) eager: bool,
    pub(super) recent_views: Option<usize>,
    pub(super) keep_managed_fields: bool,
}

/// Which set of namespaces an informer follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NamespaceSet {
    /// A set that never changes is identified by its contents.
    Fixed(BTreeSet<String>),
    /// A [`Namespaces`](super::Namespaces) handle is identified by its id.
    Live(u64),
}

/// One informer of a factory. It does not keep the informer running.
pub(super) struct Entry {
    pub(super) informer: Box<dyn AnyInformer>,
    pub(super) usage: Weak<Usage>,
    /// Cancelled to stop the informer; `None` before it runs.
    pub(super) stop: Option<CancellationToken>,
}

impl Entry {
    pub(super) fn new<K: Kind>(informer: &SharedInformer<K>, make: Option<Make<K>>) -> Self {
        let parts = Parts {
            processor: informer.processor.clone(),
            runner: informer.runner.clone(),
            make,
        };
        Self {
            informer: Box::new(parts),
            usage: Arc::downgrade(&informer.usage),
            stop: None,
        }
    }

    /// Returns whether the informer was asked to stop; it may not have noticed yet.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
    }

    /// Returns whether the informer has stopped or is about to.
    pub(super) fn is_over(&self) -> bool {
        self.is_stopping() || self.informer.is_stopped()
    }
}

/// An informer, with the type of its objects erased.
pub(super) trait AnyInformer: Send {
    fn as_any(&self) -> &dyn Any;
    fn runner(&self) -> &Arc<Runner>;
    fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()>;
    fn has_synced(&self) -> bool;
    /// Like `has_synced`, but includes the namespaces that were added since.
    fn is_filled(&self) -> bool;
    fn filled(&self) -> BoxFuture<'static, bool>;
    fn is_stopped(&self) -> bool;
    fn len(&self) -> usize;
    /// The number of changes that wait to be applied; 0 if there are several namespaces.
    fn fifo(&self) -> usize;
    fn version(&self) -> String;
    fn handlers(&self) -> Vec<(String, usize)>;
    /// Whether the cache holds only metadata.
    fn is_metadata(&self) -> bool;
    fn cached(&self) -> Arc<dyn Cached>;
    /// Builds a replacement; `None` if the factory did not build this informer.
    fn renew(&self, usage: Arc<Usage>) -> Option<Entry>;
}

/// Builds the informer of an input, or a replacement for it.
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

    fn has_synced(&self) -> bool {
        self.processor.feed.has_synced()
    }

    fn is_filled(&self) -> bool {
        self.processor.is_filled()
    }

    fn filled(&self) -> BoxFuture<'static, bool> {
        let processor = self.processor.clone();
        Box::pin(async move { processor.filled().await })
    }

    fn is_stopped(&self) -> bool {
        self.processor.is_stopped()
    }

    fn len(&self) -> usize {
        self.processor.indexer.lister().len()
    }

    fn fifo(&self) -> usize {
        self.waiting()
    }

    fn version(&self) -> String {
        self.processor.indexer.lister().resource_version()
    }

    fn handlers(&self) -> Vec<(String, usize)> {
        self.pending()
    }

    fn is_metadata(&self) -> bool {
        K::metadata_api()
    }

    fn cached(&self) -> Arc<dyn Cached> {
        Arc::new(inspect::Reader(Arc::clone(&self.processor)))
    }

    fn renew(&self, usage: Arc<Usage>) -> Option<Entry> {
        let make = self.make.clone()?;
        let informer = make().succeed(&self.processor, usage);
        Some(Entry::new(&informer, Some(make)))
    }
}
