//! Objects as the cache stores them.
//!
//! A controller caches a hundred thousand objects and touches a few of them, so decoding every
//! object into its Rust type would waste both time and memory. An [`Object`] is instead the
//! object's own JSON bytes (without `managedFields`), a small header read in one pass on arrival
//! (key, UID, `resourceVersion`, generation, deletion, labels, owners), and a typed view that is
//! decoded on first use and kept for as long as it is among the views read recently (`views`).
//!
//! An object that cannot be decoded is a typed error for the reader of that object. It does not end
//! the watch that delivered it.

mod body;
mod field;
mod header;
mod key;
mod owner;
mod reader;
mod views;

use std::{
    borrow::Cow,
    fmt::{self, Debug},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use self::{
    body::Body,
    views::{Entry, Views},
};
pub use self::{
    body::Labels,
    field::InvalidPointer,
    key::{InvalidKey, ObjectKey},
    owner::OwnerRef,
    reader::{ReadError, Reader},
};
pub(crate) use self::{
    field::{FieldId, Fields, Pointer},
    header::Header,
    reader::panic_message,
};

/// A Kubernetes kind that can be cached: typed, dynamic, metadata only, or a user's own struct
/// with the few fields that matter.
pub trait Kind:
    kube::Resource<Scope: 'static> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: kube::Resource<Scope: 'static> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

/// One state of one object, as the cache stores it. It is immutable, and clones share it.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use pintle::cache::Reader;
///
/// let json = br#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"data":{"k":"v"}}"#;
/// let object = Reader::<ConfigMap>::new().read(json).unwrap();
/// assert_eq!((object.key().to_string().as_str(), object.resource_version()), ("b/a", "7"));
/// assert_eq!(object.get().unwrap().data.as_ref().unwrap()["k"], "v");
/// ```
pub struct Object<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    key: ObjectKey,
    body: Body,
    view: Mutex<View<K>>,
    /// The informer's recently read views.
    views: Arc<Views<K>>,
}

/// The typed view: kept while it was read recently, or stored with the object.
enum View<K> {
    Recent(Weak<Entry<K>>),
    Stored(Arc<K>),
}

impl<K> View<K> {
    fn get(&self) -> Option<Arc<K>> {
        match self {
            Self::Recent(entry) => entry.upgrade().map(|entry| entry.read()),
            Self::Stored(view) => Some(view.clone()),
        }
    }
}

impl<K> Drop for Inner<K> {
    fn drop(&mut self) {
        if let View::Recent(entry) = self.view.get_mut()
            && let Some(entry) = entry.upgrade()
        {
            self.views.remove(&entry);
        }
    }
}

impl<K> Object<K> {
    fn new(key: ObjectKey, body: Body, views: Arc<Views<K>>) -> Self {
        let inner = Inner {
            key,
            body,
            view: Mutex::new(View::Recent(Weak::new())),
            views,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.inner.key
    }

    /// Returns the object's UID, or an empty string if it has none.
    pub fn uid(&self) -> &str {
        self.inner.body.uid()
    }

    /// Returns the `resourceVersion` of this state, or an empty string if it has none.
    pub fn resource_version(&self) -> &str {
        self.inner.body.resource_version()
    }

    /// Returns `metadata.generation`, which counts changes of the spec for kinds that support it.
    pub fn generation(&self) -> Option<i64> {
        self.inner.body.generation()
    }

    /// Returns the object's labels.
    pub fn labels(&self) -> Labels<'_> {
        self.inner.body.labels()
    }

    /// Returns the object's owner references.
    pub fn owner_references(&self) -> &[OwnerRef] {
        self.inner.body.owners()
    }

    /// Returns the controlling owner reference, if there is one.
    pub fn controller_owner(&self) -> Option<&OwnerRef> {
        self.owner_references()
            .iter()
            .find(|owner| owner.is_controller())
    }

    /// Returns whether the object has a deletion timestamp: it will be gone once its finalizers are
    /// removed.
    pub fn is_being_deleted(&self) -> bool {
        self.inner.body.is_being_deleted()
    }

    /// Returns the object as JSON, without `managedFields` unless the reader
    /// [keeps](Reader::keep_managed_fields) them.
    pub fn bytes(&self) -> &[u8] {
        self.inner.body.json().as_bytes()
    }

    /// Decodes the object's metadata, annotations included, and nothing else. The result is not
    /// cached.
    ///
    /// # Errors
    ///
    /// Fails if the metadata does not fit [`ObjectMeta`].
    pub fn metadata(&self) -> Result<ObjectMeta, DecodeError> {
        match self.inner.body.metadata() {
            "" => Ok(ObjectMeta::default()),
            metadata => serde_json::from_str(metadata).map_err(|source| self.undecodable(source)),
        }
    }

    /// Returns the text of a registered field, if it is present and a plain scalar.
    pub(crate) fn field_text(&self, id: FieldId) -> Option<&str> {
        self.inner.body.field(id).and_then(field::plain)
    }

    /// Returns the values of a field, from the span noted on reading or by searching the object.
    pub(crate) fn field(&self, id: Option<FieldId>, pointer: &Pointer) -> Vec<Cow<'_, str>> {
        let body = &self.inner.body;
        field::values(
            id.and_then(|id| body.field(id))
                .unwrap_or_else(|| field::search(body.json(), pointer)),
        )
    }

    /// Returns whether both are the same object in memory, not merely equal.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn undecodable(&self, source: serde_json::Error) -> DecodeError {
        DecodeError::Mismatch {
            key: self.key().clone(),
            source: Arc::new(source),
        }
    }
}

impl<K: DeserializeOwned> Object<K> {
    /// Returns the typed view, decoding it unless it was read recently: an informer keeps the views
    /// read most recently, up to [a number of bytes](Reader::recent_views).
    ///
    /// # Errors
    ///
    /// Fails if the object does not fit the type or the type's `Deserialize` panics.
    pub fn get(&self) -> Result<Arc<K>, DecodeError> {
        if let Some(view) = self.inner.view.lock().get() {
            return Ok(view);
        }
        // Decoding runs user code, so it must not happen under the lock. Two threads may decode at
        // once; both return the view of the first to finish.
        let decoded = self.decode()?;
        let (views, size) = (&self.inner.views, self.inner.body.json().len());
        views.make_room(size);
        let mut view = self.inner.view.lock();
        if let Some(earlier) = view.get() {
            return Ok(earlier);
        }
        *view = View::Recent(Arc::downgrade(&views.keep(decoded.clone(), size)));
        Ok(decoded)
    }

    fn decode(&self) -> Result<Arc<K>, DecodeError> {
        let json = self.inner.body.json();
        // `Deserialize` is user code and may run in an informer's task, so a panic becomes an error
        // of this object. The half-built value is dropped. Types are large, so the value moves to
        // its place before anything else.
        match catch_unwind(AssertUnwindSafe(|| {
            serde_json::from_str(json).map(Arc::new)
        })) {
            Ok(decoded) => decoded.map_err(|source| self.undecodable(source)),
            Err(panic) => Err(DecodeError::Panicked {
                key: self.key().clone(),
                message: panic_message(panic.as_ref()),
            }),
        }
    }

    /// Decodes the typed view and stores it with the object.
    fn store_view(&self) -> Result<(), DecodeError> {
        *self.inner.view.lock() = View::Stored(self.decode()?);
        Ok(())
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K> Debug for Object<K> {
    /// Shows only the identity, because the contents may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", self.key())
            .field("uid", &self.uid())
            .field("resource_version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

/// An object that cannot be decoded into its type. It stays in the cache, and other objects are not
/// affected.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The JSON does not fit the type.
    #[error("cannot decode object {key}: {source}")]
    Mismatch {
        /// The object.
        key: ObjectKey,
        /// The cause and its position.
        source: Arc<serde_json::Error>,
    },
    /// The type's `Deserialize` panicked.
    #[error("cannot decode object {key}: {message}")]
    Panicked {
        /// The object.
        key: ObjectKey,
        /// The panic message.
        message: String,
    },
}

impl DecodeError {
    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Mismatch { key, .. } | Self::Panicked { key, .. } => key,
        }
    }
}

#[cfg(test)]
mod tests;
