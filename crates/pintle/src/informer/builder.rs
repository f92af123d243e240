//! Building an informer of one source.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    metrics::InformerMetrics,
    multi_namespace::{MakeReflector, MultiNamespace},
    namespaces::Namespaces,
    processor::{Feed, Processor},
    shared_informer::SharedInformer,
};
use crate::{
    cache::Indexer,
    clock::Rng,
    delta_fifo::DeltaFifo,
    metrics::Metrics,
    object::{Kind, Reader},
    reflector::Reflector,
    source::{Extent, KubeSource, ListWatch},
};

/// Starts the reflector with the given resync period.
pub(super) type Start =
    Box<dyn FnOnce(Option<Duration>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

type Tune<K, L> =
    Box<dyn FnOnce(Reflector<K, L, DeltaFifo<K>>) -> Reflector<K, L, DeltaFifo<K>> + Send>;

/// Configures an informer; see [`SharedInformer::builder`].
///
/// ```no_run
/// # fn example(client: kube::Client) {
/// use k8s_openapi::api::core::v1::Secret;
/// use pintle::cache::Reader;
/// use pintle::informer::SharedInformer;
/// use pintle::source::{KubeSource, Scope};
/// use std::time::Duration;
///
/// let secrets = SharedInformer::<Secret>::builder(KubeSource::<Secret>::new(client, Scope::all()))
///     .resync(Duration::from_secs(600))
///     .reader(Reader::new().transform(|secret| {
///         secret.as_object_mut().map(|secret| secret.remove("data"));
///         Ok(())
///     }))
///     .build();
/// # }
/// ```
#[must_use = "an informer is built by `build`"]
pub struct InformerBuilder<K: Kind, L: ListWatch> {
    source: L,
    reader: Reader<K>,
    resync: Option<Duration>,
    name: String,
    metrics: Metrics,
    rng: Option<Rng>,
    tune: Option<Tune<K, L>>,
}

impl<K: Kind, L: ListWatch> InformerBuilder<K, L> {
    pub(super) fn new(source: L) -> Self {
        Self {
            source,
            reader: Reader::new(),
            resync: None,
            name: String::new(),
            metrics: Metrics::new(),
            rng: None,
            tune: None,
        }
    }

    /// Sets how objects are read: with a transform, with `managedFields`, decoded eagerly.
    pub fn reader(mut self, reader: Reader<K>) -> Self {
        self.reader = reader;
        self
    }

    /// Sets how often every object is delivered again to handlers without their own resync period;
    /// periods below a second are raised to one second. Unset or zero means never, and then no
    /// handler can request a resync.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Sets the name that distinguishes this informer from others of the same resource in metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets where metrics are registered.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets the source of retry jitter. Informers with the same seed retry at the same instants.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = Some(rng);
        self
    }

    /// Changes the settings of the reflector: its back-off, paging and timeouts.
    pub fn reflector<F>(mut self, tune: F) -> Self
    where
        F: FnOnce(Reflector<K, L, DeltaFifo<K>>) -> Reflector<K, L, DeltaFifo<K>> + Send + 'static,
    {
        self.tune = Some(Box::new(tune));
        self
    }

    /// Builds the informer. It does nothing until it runs.
    pub fn build(self) -> SharedInformer<K> {
        let Self {
            source,
            reader,
            resync,
            name,
            metrics,
            rng,
            tune,
        } = self;
        let extent = source.extent();
        let stage = metrics
            .set::<InformerMetrics>()
            .stage(&name, source.resource());
        let (indexer, reader) = cache_of(reader);
        let undecoded = reader.undecoded_count();
        let fifo = Arc::new(DeltaFifo::new());
        let feed = Feed::One(fifo.clone());
        let processor = Processor::new(indexer, feed, resync, stage, undecoded);
        let mut reflector = Reflector::new(source, reader, fifo).metrics(metrics);
        if let Some(rng) = rng {
            reflector = reflector.rng(rng);
        }
        let reflector = match tune {
            Some(tune) => tune(reflector),
            None => reflector,
        };
        let status = reflector.status();
        let start: Start = Box::new(move |resync, stop| {
            Box::pin(async move {
                reflector
                    .resync(resync.unwrap_or_default())
                    .run(&stop)
                    .await;
            })
        });
        SharedInformer::of_parts(processor, Some(start), status, extent)
    }
}

/// Returns the source of a namespace.
type SourceOf<K> = Box<dyn Fn(&str) -> KubeSource<K> + Send + Sync>;

impl<K: Kind> InformerBuilder<K, KubeSource<K>> {
    /// Builds an informer of several namespaces. `member` returns the source of each; the builder's
    /// own source only describes the kind.
    pub(super) fn build_for_namespaces(
        self,
        namespaces: Namespaces,
        member: SourceOf<K>,
    ) -> SharedInformer<K> {
        let Self {
            source: any,
            reader,
            resync,
            name,
            metrics,
            rng,
            tune: _,
        } = self;
        let stage = metrics
            .set::<InformerMetrics>()
            .stage(&name, any.resource());
        let (indexer, reader) = cache_of(reader);
        let undecoded = reader.undecoded_count();
        let extent = any.extent();
        let make: Box<MakeReflector<K>> = Box::new(move |namespace, fifo, resync, stop| {
            let reflector = Reflector::new(member(namespace), reader.clone(), fifo);
            let mut reflector = reflector
                .metrics(metrics.clone())
                .resync(resync.unwrap_or_default());
            if let Some(rng) = &rng {
                reflector = reflector.rng(rng.clone());
            }
            let status = reflector.status();
            (status, Box::pin(async move { reflector.run(&stop).await }))
        });
        let selects = extent == Extent::Selected;
        let describe = Box::new(move |names: &BTreeSet<String>| any.describe_namespaces(names));
        let feed = Arc::new(MultiNamespace::new(namespaces, make, describe, selects));
        let status = feed.status();
        let processor = Processor::new(indexer, Feed::ByNamespace(feed), resync, stage, undecoded);
        SharedInformer::of_parts(processor, None, status, extent)
    }
}

/// Returns an empty cache, and a reader that shares objects and fields with it.
fn cache_of<K: Kind>(reader: Reader<K>) -> (Indexer<K>, Reader<K>) {
    let indexer = Indexer::with_fields(reader.fields().clone());
    let known = indexer.clone();
    let reader = reader.reuse(move |namespace, name| known.get(namespace, name));
    (indexer, reader)
}

impl<K: Kind, L: ListWatch> fmt::Debug for InformerBuilder<K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder")
            .field("of", &self.source.describe())
            .field("resync", &self.resync)
            .finish_non_exhaustive()
    }
}
