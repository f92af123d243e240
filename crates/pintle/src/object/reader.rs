//! Reads the server's bytes into an [`Object`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::Value;

use super::{
    Kind, Object, ObjectKey,
    body::{Body, Identity, Skim},
    field::Fields,
    views::{self, Views},
};
use crate::{
    BoxError,
    json::{Literal, Malformed},
};

type Transform = dyn Fn(&mut Value) -> Result<(), BoxError> + Send + Sync;
type Known<K> = dyn Fn(Option<&str>, &str) -> Option<Object<K>> + Send + Sync;

/// Turns JSON bytes into [`Object`]s, the same way for every object of an informer.
///
/// Reading is one pass that checks UTF-8, locates the header and drops `managedFields`; the rest of
/// the object stays as bytes until it is used. A [transform](Reader::transform) runs once, at this
/// point; without one, and unless reading is [eager](Reader::eager), nothing is decoded here.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::cache::Reader;
///
/// let reader = Reader::<Pod>::new().transform(|pod| {
///     pod.as_object_mut().map(|pod| pod.remove("status"));
///     Ok(())
/// });
/// let pod = reader.read(br#"{"metadata":{"name":"web-0"},"status":{"phase":"Running"}}"#).unwrap();
/// assert_eq!(pod.key().name(), "web-0");
/// assert!(pod.get().unwrap().status.is_none());
/// ```
#[derive(Clone)]
pub struct Reader<K: Kind> {
    transform: Option<Arc<Transform>>,
    known: Option<Arc<Known<K>>>,
    types: Option<Arc<str>>,
    fields: Fields,
    keep_managed_fields: bool,
    eager: bool,
    views: Arc<Views<K>>,
    undecoded: Arc<AtomicU64>,
}

impl<K: Kind> Reader<K> {
    /// Returns a reader that drops `managedFields` and changes nothing else.
    pub fn new() -> Self {
        Self {
            transform: None,
            known: None,
            types: None,
            fields: Fields::default(),
            keep_managed_fields: false,
            eager: false,
            views: Arc::new(Views::new(views::DEFAULT_LIMIT)),
            undecoded: Arc::default(),
        }
    }

    /// Changes every object once on arrival: the cache, indexes and handlers see the result.
    ///
    /// The object retains its key, UID and `resourceVersion` whatever `change` does to them.
    /// `managedFields` are already removed unless [kept](Reader::keep_managed_fields). An error or
    /// a panic affects only that object.
    pub fn transform<F>(mut self, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.transform = Some(Arc::new(change));
        self
    }

    /// Sets whether to keep `metadata.managedFields`, often a third of the object.
    pub fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.keep_managed_fields = keep;
        self
    }

    /// Decodes every object on arrival and stores the typed view with it.
    ///
    /// This trades memory for time and pays off for a kind whose objects are read all the time. An
    /// object that cannot be decoded is logged, counted in [`undecoded`](Self::undecoded) and
    /// cached like any other; reading its typed view returns the error.
    pub fn eager(mut self, eager: bool) -> Self {
        self.eager = eager;
        self
    }

    /// Sets how many bytes of decoded views stay in memory between reads; 1 MiB by default.
    ///
    /// The views read most recently are kept, so that bursts of reads of the same object decode it
    /// once. The size of a view is an estimate: five bytes for each byte of JSON, and the size of
    /// the type. With 0, only the view read last is kept. Clones of the reader share the limit.
    ///
    /// Raise it if reconciles keep coming back to the same objects and these do not fit; use
    /// [`eager`](Self::eager) to keep all of them.
    pub fn recent_views(mut self, bytes: usize) -> Self {
        self.views = Arc::new(Views::new(bytes));
        self
    }

    /// Adds `apiVersion` and `kind` to objects that lack them, as items in lists of built-in kinds
    /// do, so that a dynamic object knows its type.
    pub fn name_kind(mut self, api_version: &str, kind: &str) -> Self {
        let quoted = |text: &str| Value::from(text).to_string();
        let types = format!(
            "\"apiVersion\":{},\"kind\":{}",
            quoted(api_version),
            quoted(kind)
        );
        self.types = Some(types.into());
        self
    }

    /// Lets a relist share objects with the cache: if `known` returns an object with the same UID
    /// and `resourceVersion`, it is used instead of a second copy of the bytes.
    pub(crate) fn reuse<F>(mut self, known: F) -> Self
    where
        F: Fn(Option<&str>, &str) -> Option<Object<K>> + Send + Sync + 'static,
    {
        self.known = Some(Arc::new(known));
        self
    }

    /// Returns how many objects could not be decoded [on arrival](Self::eager). Clones share the
    /// count.
    pub fn undecoded(&self) -> u64 {
        self.undecoded.load(Ordering::Relaxed)
    }

    /// Returns the counter behind [`undecoded`](Self::undecoded).
    pub(crate) fn undecoded_count(&self) -> Arc<AtomicU64> {
        self.undecoded.clone()
    }

    /// Returns how many [recent views](Self::recent_views) are kept, and their bytes.
    #[cfg(test)]
    pub(super) fn kept_views(&self) -> (usize, usize) {
        self.views.kept()
    }

    /// Returns the registered fields, to which indexes add theirs.
    pub(crate) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Reads one object.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a JSON object with a name, if they exceed 4 GB, or if the
    /// transform fails.
    pub fn read(&self, json: &[u8]) -> Result<Object<K>, ReadError> {
        let text = std::str::from_utf8(json).map_err(|error| ReadError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        if u32::try_from(text.len()).is_err() {
            return Err(ReadError::TooLarge { size: text.len() });
        }
        let mut skim = Skim::default();
        let fields = self.fields.current();
        let outcome = skim.run(text, &fields);
        let part = |literal: Option<Literal>| {
            literal
                .and_then(|literal| literal.text(text).ok())
                .filter(|text| !text.is_empty())
        };
        let (name, namespace) = (part(skim.name), part(skim.namespace));
        let key = || Some(ObjectKey::new(namespace.as_deref(), name.as_deref()?));
        outcome.map_err(|malformed| ReadError::malformed(key(), malformed))?;
        if skim.metadata.is_none() {
            return Err(ReadError::NoMetadata);
        }
        let Some(name) = name.as_deref() else {
            return Err(ReadError::NoName);
        };
        let (uid, version) = (part(skim.uid), part(skim.resource_version));
        let (uid, version) = (uid.unwrap_or_default(), version.unwrap_or_default());

        if let Some(known) = self
            .known
            .as_ref()
            .filter(|_| !uid.is_empty() && !version.is_empty())
            && let Some(same) = known(namespace.as_deref(), name)
            && same.uid() == uid
            && same.resource_version() == version
        {
            return Ok(same);
        }
        let key = ObjectKey::new(namespace.as_deref(), name);
        let malformed = |malformed| ReadError::malformed(Some(key.clone()), malformed);
        let mut body = Body::compose(text, skim, self.types.as_deref(), self.keep_managed_fields)
            .map_err(malformed)?;
        if let Some(transform) = &self.transform {
            let changed = apply(transform.as_ref(), body.json(), &key)?;
            let mut skim = Skim::default();
            skim.run(&changed, &fields).map_err(malformed)?;
            body = Body::compose(&changed, skim, None, true).map_err(malformed)?;
            body.identify(&Identity {
                uid: &uid,
                resource_version: &version,
            });
        }
        let object = Object::new(key, body, self.views.clone());
        if self.eager
            && let Err(error) = object.store_view()
        {
            self.undecoded.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(key = %object.key(), %error, "cannot decode object; caching it undecoded");
        }
        Ok(object)
    }
}

fn apply(transform: &Transform, json: &str, key: &ObjectKey) -> Result<String, ReadError> {
    let mut value: Value = serde_json::from_str(json).map_err(|error| ReadError::Malformed {
        key: Some(key.clone()),
        at: error.column(),
        expected: "valid JSON",
    })?;
    let failed = |source| ReadError::Transform {
        key: key.clone(),
        source,
    };
    // Unwind safe: the value is dropped after a panic.
    match catch_unwind(AssertUnwindSafe(|| transform(&mut value))) {
        Ok(outcome) => outcome.map_err(failed)?,
        Err(panic) => return Err(failed(panic_message(panic.as_ref()).into())),
    }
    Ok(value.to_string())
}

/// Returns `panicked: ` and the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no message"))
}

impl<K: Kind> Default for Reader<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Kind> std::fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("transform", &self.transform.is_some())
            .field("keep_managed_fields", &self.keep_managed_fields)
            .field("eager", &self.eager)
            .field("recent_views", &self.views.limit())
            .finish_non_exhaustive()
    }
}

/// Bytes that are not a valid object. Other objects are not affected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are not UTF-8.
    #[error("object is not valid UTF-8 at byte {at}")]
    NotUtf8 {
        /// The position of the first invalid byte.
        at: usize,
    },
    /// The bytes are not one JSON object.
    #[error("{} is not valid JSON: expected {expected} at byte {at}", name_of(.key.as_ref()))]
    Malformed {
        /// The object, if its name could be read.
        key: Option<ObjectKey>,
        /// The position of the error.
        at: usize,
        /// The expected syntax.
        expected: &'static str,
    },
    /// The object is larger than 4 GB.
    #[error("object of {size} bytes is too large")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// There is no `metadata`.
    #[error("object has no metadata")]
    NoMetadata,
    /// There is no `metadata.name`.
    #[error("object has no name")]
    NoName,
    /// The transform failed or panicked.
    #[error("transform of object {key} failed: {source}")]
    Transform {
        /// The object.
        key: ObjectKey,
        /// The error of the transform, or the panic message.
        source: BoxError,
    },
}

fn name_of(key: Option<&ObjectKey>) -> String {
    key.map_or_else(|| "object".into(), |key| format!("object {key}"))
}

impl ReadError {
    fn malformed(key: Option<ObjectKey>, malformed: Malformed) -> Self {
        Self::Malformed {
            key,
            at: malformed.at,
            expected: malformed.expected,
        }
    }

    /// Returns the key of the object, if its name could be read.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Malformed { key, .. } => key.as_ref(),
            Self::Transform { key, .. } => Some(key),
            _ => None,
        }
    }
}
