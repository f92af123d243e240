//! Conversion of custom resources whose CRD has the strategy `Webhook`.
//!
//! ```text
//! store (storage version at the time of the write)
//!   │ read: convert to the version of the request          ▲ write: convert to the storage version
//!   ▼                                                      │
//! get, list, watch ─► response            decode ─► admission ─► validation
//! ```
//!
//! A request works on objects in its own version. [`Converted`] marks a CRD that needs this; for
//! all other resources the functions here return their input unchanged.
//!
//! A stored object remembers the version it was written in, so an object that was stored before the
//! storage version changed is converted from the old one, and rewriting it migrates it. Converted
//! objects are cached by `resourceVersion`, so that ten watches of a version cost one call.

mod cache;
mod review;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use self::cache::Cache;
use crate::{
    api::{Api, ApiError},
    meta::Tree,
    registry::Resource,
    store::{Content, Event, Object},
    webhook::{ClientConfig, Limits, LocalWebhook},
};

/// The maximum number of objects in one review.
const MAX_OBJECTS: usize = 500;
/// The maximum size of the objects in one review, in bytes, unless a single object is larger. Small
/// enough for any webhook's limit, even if the converted objects are several times as large.
const MAX_BYTES: usize = 1024 * 1024;

/// Converters in this process, by CRD name. The most recently registered one is used.
#[derive(Debug, Default)]
pub(crate) struct Converters(RwLock<Registered>);

#[derive(Debug, Default)]
struct Registered {
    converters: BTreeMap<String, Vec<(u64, Arc<LocalWebhook>)>>,
    /// Increases with each change.
    generation: u64,
}

impl Converters {
    /// Registers a converter and returns its id.
    pub(crate) fn insert(&self, definition: &str, converter: LocalWebhook) -> u64 {
        let mut registered = self.0.write();
        registered.generation += 1;
        let id = registered.generation;
        let list = registered.converters.entry(definition.to_owned());
        list.or_default().push((id, Arc::new(converter)));
        id
    }

    pub(crate) fn remove(&self, definition: &str, id: u64) {
        let mut registered = self.0.write();
        registered.generation += 1;
        if let Some(list) = registered.converters.get_mut(definition) {
            list.retain(|(other, _)| *other != id);
            if list.is_empty() {
                registered.converters.remove(definition);
            }
        }
    }

    /// Invalidates cached conversions, because a webhook's address has changed.
    pub(crate) fn rerouted(&self) {
        self.0.write().generation += 1;
    }

    fn find(&self, definition: &str) -> Option<Arc<LocalWebhook>> {
        let registered = self.0.read();
        let (_, converter) = registered.converters.get(definition)?.last()?;
        Some(Arc::clone(converter))
    }

    fn generation(&self) -> u64 {
        self.0.read().generation
    }
}

/// How the objects of a CRD with the strategy `Webhook` are converted. All versions share it.
#[derive(Debug)]
pub(crate) struct Converted {
    /// The name of the CRD.
    definition: String,
    kind: String,
    client: Result<ClientConfig, String>,
    /// The `apiVersion` of reviews, if the webhook accepts one that is known.
    review_version: Option<&'static str>,
    /// Limits concurrent calls and the size of their responses.
    limits: Arc<Limits>,
    cache: Mutex<Cache>,
}

impl Converted {
    /// Reads `spec.conversion` of a CRD.
    pub(crate) fn of(definition: &str, kind: &str, conversion: &Value) -> Option<Arc<Self>> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array();
        let mut versions = versions.into_iter().flatten();
        let review_version = versions.find_map(|version| match version.as_str() {
            Some("v1") => Some("apiextensions.k8s.io/v1"),
            Some("v1beta1") => Some("apiextensions.k8s.io/v1beta1"),
            _ => None,
        });
        Some(Arc::new(Self {
            definition: definition.to_owned(),
            kind: kind.to_owned(),
            client: ClientConfig::read(&webhook["clientConfig"]),
            review_version,
            limits: Arc::default(),
            cache: Mutex::default(),
        }))
    }
}

/// Returns how many of these objects fit into one review. At least one does.
fn batch(objects: &[(usize, &Arc<Object>)]) -> usize {
    let mut bytes = 0;
    let fits = objects.iter().take(MAX_OBJECTS).take_while(|(_, object)| {
        bytes += object.content.len();
        bytes <= MAX_BYTES
    });
    fits.count().max(1)
}

impl Resource {
    /// Returns the conversion of stored objects, or `None` if no webhook converts them.
    fn converted(&self) -> Option<&Arc<Converted>> {
        self.custom.as_ref()?.converted.as_ref()
    }

    /// Returns true if reading a stored object may call a webhook.
    pub(crate) fn is_converted(&self) -> bool {
        self.converted().is_some()
    }

    /// Drops fields that the schema of a version does not know, as upstream does after a
    /// conversion.
    pub(crate) fn pruned(&self, api_version: &str, tree: Tree) -> Tree {
        match self.schema_of(api_version) {
            Some(schema) => schema.pruned(tree),
            None => tree,
        }
    }
}

impl Api {
    /// Decodes a stored object into the version of a resource.
    pub(crate) async fn read_tree(
        &self,
        resource: &Resource,
        object: &Arc<Object>,
    ) -> Result<Tree, ApiError> {
        if resource.converted().is_none() {
            return Ok(resource.tree(&object.content, object.stored_revision()));
        }
        let shown = self.shown(resource, Arc::clone(object)).await?;
        Ok(shown.decode())
    }

    /// Encodes an object in the version of a resource for the store.
    pub(crate) async fn encode_stored(
        &self,
        resource: &Resource,
        object: Tree,
    ) -> Result<Content, ApiError> {
        let (from, to) = (resource.api_version(), resource.storage_version());
        if from == to {
            return Ok(resource.encode(object));
        }
        let Some(converted) = resource.converted() else {
            return Ok(resource.encode(resource.pruned(to, object)));
        };
        let mut objects = self.convert(converted, vec![(from, object)], to).await?;
        let object = objects.pop().unwrap_or_default();
        Ok(resource.encode(resource.pruned(to, object)))
    }

    /// Returns a stored object in the version of a resource, at the same `resourceVersion`.
    pub(crate) async fn shown(
        &self,
        resource: &Resource,
        object: Arc<Object>,
    ) -> Result<Arc<Object>, ApiError> {
        if resource.converted().is_none() {
            return Ok(object);
        }
        let mut objects = self.all_shown(resource, vec![object]).await?;
        objects
            .pop()
            .ok_or_else(|| ApiError::internal("conversion returned no object"))
    }

    /// Like [`shown`](Self::shown), for many objects with as few calls as possible.
    pub(crate) async fn all_shown(
        &self,
        resource: &Resource,
        objects: Vec<Arc<Object>>,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        let Some(converted) = resource.converted() else {
            return Ok(objects);
        };
        let to = resource.api_version();
        let generation = self.webhooks.converters.generation();
        let mut shown: Vec<Option<Arc<Object>>> = Vec::with_capacity(objects.len());
        let mut missing = Vec::new();
        for (i, object) in objects.iter().enumerate() {
            let cached = converted.cache.lock().get(generation, &to, object);
            if cached.is_none() {
                missing.push((i, object));
            }
            shown.push(cached);
        }
        let mut rest = missing.as_slice();
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch(rest));
            rest = after;
            let trees = batch.iter().map(|(_, object)| {
                let from = resource.stored_version(&object.content);
                (from, resource.stored_tree(object))
            });
            let trees = self.convert(converted, trees.collect(), &to).await?;
            // Cache each batch, so that a later failure does not convert it again.
            for ((i, object), tree) in batch.iter().zip(trees) {
                let content = resource.encode_shown(resource.pruned(&to, tree));
                let new = Arc::new(Object {
                    key: Arc::clone(&object.key),
                    revision: object.revision,
                    content: Arc::new(content),
                });
                let mut cache = converted.cache.lock();
                cache.put(generation, &to, object, &new);
                drop(cache);
                if let Some(place) = shown.get_mut(*i) {
                    *place = Some(new);
                }
            }
        }
        Ok(shown.into_iter().flatten().collect())
    }

    /// Converts the objects of events.
    pub(crate) async fn events_shown(
        &self,
        resource: &Resource,
        events: &[Arc<Event>],
    ) -> Result<Vec<Event>, ApiError> {
        let objects = events
            .iter()
            .flat_map(|event| std::iter::once(&event.object).chain(&event.previous))
            .map(Arc::clone)
            .collect();
        let mut shown = self.all_shown(resource, objects).await?.into_iter();
        let mut next = |before: &Arc<Object>| shown.next().unwrap_or_else(|| Arc::clone(before));
        let mut converted = Vec::with_capacity(events.len());
        for event in events {
            converted.push(Event {
                kind: event.kind,
                object: next(&event.object),
                previous: event.previous.as_ref().map(&mut next),
            });
        }
        Ok(converted)
    }

    /// Converts an object on its way to the store from one version's form to another's.
    pub(crate) async fn convert_between(
        &self,
        from: &Arc<Resource>,
        to: &Arc<Resource>,
        object: Tree,
    ) -> Result<Tree, ApiError> {
        let Some(converted) = from.converted() else {
            // The versions of a built-in kind share the stored form, and the versions of a CRD
            // without a webhook do not differ.
            return Ok(object);
        };
        let version = to.api_version();
        let objects = vec![(from.api_version(), object)];
        let mut objects = self.convert(converted, objects, &version).await?;
        Ok(to.pruned(&version, objects.pop().unwrap_or_default()))
    }

    /// Converts an object as field management sees it, which has its `apiVersion` and `kind` if the
    /// request names them.
    pub(crate) async fn convert_value(
        &self,
        resource: &Resource,
        object: Value,
        from: &str,
        to: &str,
    ) -> Result<Value, ApiError> {
        let (Some(converted), Value::Object(mut tree)) = (resource.converted(), object) else {
            return Err(ApiError::internal("nothing to convert"));
        };
        let kind = tree.get("kind").cloned();
        // Without the fields of an applier an object may have no metadata, which converters need.
        tree.entry("metadata").or_insert_with(|| Tree::new().into());
        let mut objects = self
            .convert(converted, vec![(from.to_owned(), tree)], to)
            .await?;
        let mut tree = resource.pruned(to, objects.pop().unwrap_or_default());
        if let Some(kind) = kind {
            tree.insert("apiVersion".into(), to.into());
            tree.insert("kind".into(), kind);
        }
        Ok(Value::Object(tree))
    }
}
