//! What the cache keeps of an object.
//!
//! A controller caches a hundred thousand objects and touches a few. So an [`Object`] is the
//! object's own JSON bytes (without `managedFields`), a small header read in one pass on the way
//! in (key, UID, resource version, generation, deletion, labels, owners), and a typed view that
//! is decoded when somebody asks and shared while anybody holds it.
//!
//! That one object cannot be decoded is the error of that object, told to whoever asks for it; it
//! does not end the watch that brought it.

mod body;
mod field;
mod key;
mod nesting;
mod owner;
mod reader;
mod scan;
mod skim;

use std::{
    borrow::Cow,
    fmt::{self, Debug},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use self::body::Body;
pub use self::{
    body::Labels,
    field::InvalidPointer,
    key::{InvalidKey, ObjectKey},
    owner::OwnerRef,
    reader::{BoxError, Of, ReadError, Reader},
};
pub(crate) use self::{
    field::{FieldId, Fields, Pointer},
    nesting::Nesting,
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

/// One state of one object, as the cache holds it. Cloning shares it; nobody can change it.
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
}

/// The typed view: forgotten with its last holder, or kept with the object.
enum View<K> {
    Shared(Weak<K>),
    Kept(Arc<K>),
}

impl<K> View<K> {
    fn get(&self) -> Option<Arc<K>> {
        match self {
            Self::Shared(view) => view.upgrade(),
            Self::Kept(view) => Some(view.clone()),
        }
    }
}

impl<K> Object<K> {
    fn new(key: ObjectKey, body: Body) -> Self {
        let view = Mutex::new(View::Shared(Weak::new()));
        Self {
            inner: Arc::new(Inner { key, body, view }),
        }
    }

    /// The object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.inner.key
    }

    /// The object's UID; empty if the server gave none.
    pub fn uid(&self) -> &str {
        self.inner.body.uid()
    }

    /// The resource version of this state; empty if the server gave none.
    pub fn resource_version(&self) -> &str {
        self.inner.body.resource_version()
    }

    /// `metadata.generation`: which version of the spec this is, for kinds that count them.
    pub fn generation(&self) -> Option<i64> {
        self.inner.body.generation()
    }

    /// The object's labels.
    pub fn labels(&self) -> Labels<'_> {
        self.inner.body.labels()
    }

    /// The object's owners.
    pub fn owner_references(&self) -> &[OwnerRef] {
        self.inner.body.owners()
    }

    /// The owner that manages the object, if one does.
    pub fn controller_owner(&self) -> Option<&OwnerRef> {
        self.owner_references()
            .iter()
            .find(|owner| owner.is_controller())
    }

    /// Whether the object has a deletion timestamp: it goes when its finalizers are done.
    pub fn is_being_deleted(&self) -> bool {
        self.inner.body.is_being_deleted()
    }

    /// The object as JSON, without `managedFields` unless they were kept.
    pub fn bytes(&self) -> &[u8] {
        self.inner.body.json().as_bytes()
    }

    /// All metadata, annotations too. Decodes them at each call, and nothing else.
    pub fn metadata(&self) -> Result<ObjectMeta, DecodeError> {
        match self.inner.body.metadata() {
            "" => Ok(ObjectMeta::default()),
            metadata => serde_json::from_str(metadata).map_err(|source| self.undecodable(source)),
        }
    }

    /// The text of a field that was looked for while reading, if it is there and plain.
    pub(crate) fn field_text(&self, id: FieldId) -> Option<&str> {
        self.inner.body.field(id).and_then(field::plain)
    }

    /// The values of a field; found where the skim noted it, or searched for now.
    pub(crate) fn field(&self, id: Option<FieldId>, pointer: &Pointer) -> Vec<Cow<'_, str>> {
        let body = &self.inner.body;
        field::values(
            id.and_then(|id| body.field(id))
                .unwrap_or_else(|| field::search(body.json(), pointer)),
        )
    }

    /// Whether both are the same state in memory, not merely equal.
    pub fn same(&self, other: &Self) -> bool {
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
    /// The typed view. Decoded now, unless somebody still holds the view of an earlier call.
    pub fn get(&self) -> Result<Arc<K>, DecodeError> {
        if let Some(view) = self.inner.view.lock().get() {
            return Ok(view);
        }
        // Decoding runs the user's code, so not under the lock: two may decode at once, and both
        // get the view of whoever was first.
        let decoded = Arc::new(self.decode()?);
        let mut view = self.inner.view.lock();
        if let Some(earlier) = view.get() {
            return Ok(earlier);
        }
        *view = View::Shared(Arc::downgrade(&decoded));
        Ok(decoded)
    }

    fn decode(&self) -> Result<K, DecodeError> {
        let json = self.inner.body.json();
        // `Deserialize` is the user's code and may run in an informer's task: its panic is the error
        // of this object, and the half-built value is gone.
        match catch_unwind(AssertUnwindSafe(|| serde_json::from_str(json))) {
            Ok(decoded) => decoded.map_err(|source| self.undecodable(source)),
            Err(panic) => Err(DecodeError::Panicked {
                key: self.key().clone(),
                message: panic_message(panic.as_ref()),
            }),
        }
    }

    /// Keeps the typed view with the object, if it can be decoded.
    fn keep_view(&self) -> Result<(), DecodeError> {
        *self.inner.view.lock() = View::Kept(self.get()?);
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
    /// Names the object and its version; the contents may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", self.key())
            .field("uid", &self.uid())
            .field("resource_version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

/// An object that cannot be decoded into its type. It stays in the cache; others are not concerned.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Its bytes do not fit the type.
    #[error("object {key} does not decode: {source}")]
    Mismatch {
        /// The object.
        key: ObjectKey,
        /// Where and why.
        source: Arc<serde_json::Error>,
    },
    /// The type's `Deserialize` panicked.
    #[error("object {key} does not decode: {message}")]
    Panicked {
        /// The object.
        key: ObjectKey,
        /// What the panic said.
        message: String,
    },
}

impl DecodeError {
    /// The object.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Mismatch { key, .. } | Self::Panicked { key, .. } => key,
        }
    }
}

#[cfg(test)]
mod tests;
