//! Requesting an informer from a factory.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::{
    factory::InformerFactory,
    registry::{Entry, Identity, Make, Parts, Settings, Transform, effective_scope},
    shared_informer::SharedInformer,
};
use crate::{
    object::{BoxError, Kind, Reader},
    source::{KindScope, KubeSource, Scope},
};

/// Configures which informer to request; see [`InformerFactory::request`].
///
/// Requests with the same kind, scope, transform name and options share one informer.
///
/// ```no_run
/// # fn example(informers: pintle::informer::InformerFactory) {
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::source::Scope;
///
/// let web = informers.request::<Pod>(&()).scope(Scope::namespace("shop").labels("app=web")).get();
/// # }
/// ```
#[must_use = "an informer is requested by `get`"]
pub struct InformerRequest<'a, K: Kind> {
    pub(super) factory: &'a InformerFactory,
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    pub(super) transform: Option<Transform>,
    pub(super) kind: &'a K::DynamicType,
}

impl<K: Kind> InformerRequest<'_, K> {
    /// Selects objects, instead of all in the factory's namespace. The namespace is ignored for
    /// cluster-scoped kinds.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.identity.scope = effective_scope::<K>(scope);
        self
    }

    /// Changes every object on its way into the cache. Requests with the same `name` share an
    /// informer and the function of the first request. See [`Reader::transform`].
    pub fn transform<F>(mut self, name: impl Into<String>, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.identity.transform = Some(name.into());
        self.transform = Some(Arc::new(change));
        self
    }

    /// Decodes every object on its way into the cache. See [`Reader::eager`].
    pub fn eager(mut self) -> Self {
        self.identity.eager = true;
        self
    }

    /// Keeps `metadata.managedFields`. See [`Reader::keep_managed_fields`].
    pub fn keep_managed_fields(mut self) -> Self {
        self.identity.keep_managed_fields = true;
        self
    }

    /// Returns the informer, building it if there is none. A stopped informer is replaced by a new
    /// one, and its listers follow.
    ///
    /// A factory that was shut down returns only stopped informers.
    pub fn get(self) -> SharedInformer<K> {
        let mut state = self.factory.shared.state.lock();
        let mut before = None;
        if let Some(entry) = state.entries.get(&self.identity)
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
        let (factory, identity) = (self.factory, self.identity.clone());
        let make = self.maker();
        let informer = match before {
            Some((processor, usage)) => make().succeed(&processor, usage),
            None => make(),
        };
        if state.shut_down {
            informer.processor.stop();
        }
        state.put(identity.clone(), Entry::new(&informer, Some(make)));
        factory.start_if_running(&mut state, &identity);
        informer
    }

    fn maker(self) -> Make<K> {
        let Self {
            factory,
            identity,
            settings,
            transform,
            kind,
        } = self;
        let dynamic = KindScope::of::<K>() == KindScope::Dynamic;
        let namespaced = identity.scope.in_namespace().is_some();
        let client = factory.shared.client.clone();
        let mut source = KubeSource::<K>::dynamic(client, kind, identity.scope);
        if dynamic && namespaced {
            source = source.look_up_scope(kind);
        }
        if let Some(tweak) = settings.tweak {
            source = source.tweak_list_options(move |options| tweak(options));
        }
        let transform = settings.transform.or(transform);
        let of = (identity.api_version, identity.kind);
        let resync = settings.resync_of.get(&of).copied().or(settings.resync);
        Arc::new(move || {
            let mut reader = Reader::new()
                .eager(identity.eager)
                .keep_managed_fields(identity.keep_managed_fields);
            if dynamic && !K::metadata_api() {
                reader = reader.name_kind(&of.0, &of.1);
            }
            if let Some(transform) = transform.clone() {
                reader = reader.transform(move |value| transform(value));
            }
            SharedInformer::builder(source.clone())
                .reader(reader)
                .resync(resync.unwrap_or_default())
                .name(settings.name.clone())
                .metrics(settings.metrics.clone())
                .rng(settings.rng.clone())
                .build()
        })
    }
}

impl<K: Kind> fmt::Debug for InformerRequest<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerRequest")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
