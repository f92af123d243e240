//! Builds the informer of an input.

use std::sync::Arc;

use super::{
    builder::InformerBuilder,
    factory::InformerFactory,
    input::WatchInput,
    registry::{Entry, Identity, Make, Parts, Settings},
    shared_informer::SharedInformer,
};
use crate::{
    object::{Kind, Reader},
    source::{KindScope, KubeSource, Scope},
};

impl InformerFactory {
    /// Returns the informer of `input`. The same input always gives the same informer; see the
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
        let make = self.maker(input, &identity, &state.settings);
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

    fn maker<K: Kind>(
        &self,
        input: &WatchInput<K>,
        identity: &Identity,
        settings: &Settings,
    ) -> Make<K> {
        let (settings, identity, scope) =
            (settings.clone(), identity.clone(), identity.scope.clone());
        let dynamic = KindScope::of::<K>() == KindScope::Dynamic;
        let (cluster, kind) = (input.in_cluster().cloned(), input.kind().clone());
        let client = cluster.as_ref().map(|cluster| cluster.client.clone());
        let client = client.unwrap_or_else(|| self.client().clone());
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
