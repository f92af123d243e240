//! Watch inputs: which objects to watch, as a value.
//!
//! A [`WatchInput`] names a set of objects and the form in which they are cached: the kind, by type
//! or known only at run time, its namespaces, label and field selectors, a transform, and the
//! cluster. It is a plain value: build it once, clone it, and pass it wherever objects are watched.

use std::{collections::BTreeSet, fmt, sync::Arc};

use kube::Client;
use serde_json::Value;

use super::{
    namespaces::Namespaces,
    registry::{Identity, NamespaceSet, Transform},
};
use crate::{
    BoxError,
    object::Kind,
    source::{KindScope, Scope},
};

/// Names the objects to watch and the form in which they are cached. See the
/// [module](super#what-is-watched) for what makes two inputs the same.
///
/// ```
/// # use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
/// use k8s_openapi::api::core::v1::{Pod, Secret};
/// use pintle::informer::{Namespaces, WatchInput};
///
/// // The web servers of two namespaces.
/// let web = WatchInput::<Pod>::new().namespaces(["blue", "green"]).labels("app=web");
///
/// // Namespaces that come and go.
/// let tenants = Namespaces::new(["tenant-1"]);
/// let pods = WatchInput::<Pod>::new().follow_namespaces(&tenants);
/// tenants.add("tenant-2");
///
/// // A kind known only at run time, whole or as metadata.
/// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
/// let whole = WatchInput::<DynamicObject>::of(widgets.clone());
/// let names = WatchInput::<PartialObjectMeta>::of(widgets);
///
/// // Secrets without their contents.
/// let secrets = WatchInput::<Secret>::new().transform("without-data", |secret| {
///     secret.as_object_mut().map(|secret| secret.remove("data"));
///     Ok(())
/// });
/// ```
#[must_use = "an input does nothing until it is watched"]
pub struct WatchInput<K: Kind> {
    kind: Arc<K::DynamicType>,
    namespaces: Where,
    labels: Option<String>,
    fields: Option<String>,
    transform: Option<(String, Transform)>,
    eager: bool,
    recent_views: Option<usize>,
    keep_managed_fields: bool,
    cluster: Option<Cluster>,
}

/// The namespaces of an input.
#[derive(Clone)]
enum Where {
    /// The factory's setting.
    Factory,
    All,
    One(String),
    Fixed(BTreeSet<String>),
    Live(Namespaces),
}

/// The namespaces that can contain the objects of an input.
pub(crate) enum Reach {
    /// The factory's namespaces.
    Factory,
    All,
    Namespaces(Vec<String>),
}

/// A cluster other than the factory's.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl<K: Kind<DynamicType: Default>> WatchInput<K> {
    /// Returns the input of every `K` in the namespaces of the factory.
    pub fn new() -> Self {
        Self::of(K::DynamicType::default())
    }
}

impl<K: Kind<DynamicType: Default>> Default for WatchInput<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Kind> WatchInput<K> {
    /// Returns the input of every object of a kind that is described by a value, such as an
    /// [`ApiResource`](kube::core::ApiResource).
    pub fn of(kind: K::DynamicType) -> Self {
        Self {
            kind: Arc::new(kind),
            namespaces: Where::Factory,
            labels: None,
            fields: None,
            transform: None,
            eager: false,
            recent_views: None,
            keep_managed_fields: false,
            cluster: None,
        }
    }

    /// Watches one namespace, overriding the [factory](super::InformerFactory::namespace); the
    /// empty string means all. Cluster-scoped kinds ignore namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        self.namespaces = if namespace.is_empty() {
            Where::All
        } else {
            Where::One(namespace)
        };
        self
    }

    /// Watches all namespaces, overriding the factory.
    pub fn all_namespaces(mut self) -> Self {
        self.namespaces = Where::All;
        self
    }

    /// Watches these namespaces in one cache, with one watch each. An empty list watches nothing;
    /// empty names are ignored.
    ///
    /// A kind known only at run time must be namespaced: the server returns 404 otherwise.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        let mut names: BTreeSet<String> = namespaces.into_iter().map(Into::into).collect();
        names.remove("");
        self.namespaces = match names.pop_first() {
            Some(only) if names.is_empty() => Where::One(only),
            first => {
                names.extend(first);
                Where::Fixed(names)
            }
        };
        self
    }

    /// Watches the namespaces in `namespaces`, as [`namespaces`](Self::namespaces) does, and
    /// follows its changes. See [`Namespaces`].
    pub fn follow_namespaces(mut self, namespaces: &Namespaces) -> Self {
        self.namespaces = Where::Live(namespaces.clone());
        self
    }

    /// Selects objects by label, in the syntax of `kubectl -l`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Selects objects by field, in the syntax of `kubectl --field-selector`.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Changes every object on its way into the cache, instead of the
    /// [factory's](super::InformerFactory::transform) transform. Inputs with the same `name` share
    /// an informer and the function of the first. See
    /// [`Reader::transform`](crate::cache::Reader::transform).
    pub fn transform<F>(mut self, name: impl Into<String>, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.transform = Some((name.into(), Arc::new(change)));
        self
    }

    /// Decodes every object on its way into the cache. See
    /// [`Reader::eager`](crate::cache::Reader::eager).
    pub fn eager(mut self) -> Self {
        self.eager = true;
        self
    }

    /// Sets how many bytes of decoded views stay in memory between reads. See
    /// [`Reader::recent_views`](crate::cache::Reader::recent_views).
    pub fn recent_views(mut self, bytes: usize) -> Self {
        self.recent_views = Some(bytes);
        self
    }

    /// Keeps `metadata.managedFields`. See
    /// [`Reader::keep_managed_fields`](crate::cache::Reader::keep_managed_fields).
    pub fn keep_managed_fields(mut self) -> Self {
        self.keep_managed_fields = true;
        self
    }

    /// Watches a cluster other than the factory's, through `client`. The name identifies the
    /// cluster: inputs with the same name share informers and the client of the first.
    ///
    /// A key does not say which cluster its object is in. Each cluster has separate caches, so
    /// objects are never mixed up. A controller's queue holds keys of its own kind; a function maps
    /// objects of another cluster to such keys
    /// ([`watches_from`](crate::controller::Controller::watches_from)).
    pub fn cluster(mut self, name: impl Into<String>, client: Client) -> Self {
        self.cluster = Some(Cluster {
            name: name.into(),
            client,
        });
        self
    }

    /// Watches `cluster`, unless the input names one.
    pub(crate) fn or_cluster(mut self, cluster: Option<&Cluster>) -> Self {
        self.cluster = self.cluster.or_else(|| cluster.cloned());
        self
    }

    pub(crate) fn kind(&self) -> &Arc<K::DynamicType> {
        &self.kind
    }

    pub(crate) fn kind_name(&self) -> String {
        K::kind(&self.kind).into_owned()
    }

    pub(crate) fn in_cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Returns whether the input sets nothing but the kind and the cluster.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.namespaces, Where::Factory)
            && self.labels.is_none()
            && self.fields.is_none()
            && self.transform.is_none()
            && !self.eager
            && self.recent_views.is_none()
            && !self.keep_managed_fields
    }

    /// Returns the namespaces that can contain the objects.
    pub(crate) fn reach(&self) -> Reach {
        match &self.namespaces {
            Where::Factory => Reach::Factory,
            Where::All | Where::Live(_) => Reach::All,
            Where::One(namespace) => Reach::Namespaces(vec![namespace.clone()]),
            Where::Fixed(names) => Reach::Namespaces(names.iter().cloned().collect()),
        }
    }

    pub(super) fn transform_function(&self) -> Option<Transform> {
        self.transform.as_ref().map(|(_, change)| change.clone())
    }

    /// Returns the set of namespaces if each of them gets its own watch.
    pub(super) fn several(&self) -> Option<Namespaces> {
        match &self.namespaces {
            _ if KindScope::of::<K>() == KindScope::Cluster => None,
            Where::Fixed(names) => Some(Namespaces::new(names)),
            Where::Live(namespaces) => Some(namespaces.clone()),
            Where::Factory | Where::All | Where::One(_) => None,
        }
    }

    /// Returns the identity of this input's informer in a factory with this namespace.
    pub(super) fn identity(&self, factory_namespace: Option<&str>) -> Identity {
        let namespace = match &self.namespaces {
            _ if KindScope::of::<K>() == KindScope::Cluster => None,
            Where::Factory => factory_namespace,
            Where::One(namespace) => Some(namespace.as_str()),
            Where::All | Where::Fixed(_) | Where::Live(_) => None,
        };
        let mut scope = namespace.map_or_else(Scope::all, Scope::namespace);
        if let Some(labels) = &self.labels {
            scope = scope.labels(labels);
        }
        if let Some(fields) = &self.fields {
            scope = scope.fields(fields);
        }
        let several = match &self.namespaces {
            _ if KindScope::of::<K>() == KindScope::Cluster => None,
            Where::Fixed(names) => Some(NamespaceSet::Fixed(names.clone())),
            Where::Live(namespaces) => Some(NamespaceSet::Live(namespaces.id())),
            Where::Factory | Where::All | Where::One(_) => None,
        };
        Identity {
            cluster: self.cluster.as_ref().map(|cluster| cluster.name.clone()),
            api_version: K::api_version(&self.kind).into_owned(),
            kind: K::kind(&self.kind).into_owned(),
            scope,
            several,
            form: std::any::TypeId::of::<K>(),
            transform: self.transform.as_ref().map(|(name, _)| name.clone()),
            eager: self.eager,
            recent_views: self.recent_views,
            keep_managed_fields: self.keep_managed_fields,
        }
    }
}

impl<K: Kind> Clone for WatchInput<K> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind.clone(),
            namespaces: self.namespaces.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            transform: self.transform.clone(),
            eager: self.eager,
            recent_views: self.recent_views,
            keep_managed_fields: self.keep_managed_fields,
            cluster: self.cluster.clone(),
        }
    }
}

impl<K: Kind> fmt::Debug for WatchInput<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchInput")
            .field("identity", &self.identity(None))
            .finish_non_exhaustive()
    }
}
