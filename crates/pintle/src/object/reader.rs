//! From a server's bytes to an [`Object`].

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
    body::{Body, Identity},
    field::Fields,
    scan::Malformed,
    skim::Skim,
};

/// What a user's function may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Transform = dyn Fn(&mut Value) -> Result<(), BoxError> + Send + Sync;
type Known<K> = dyn Fn(Option<&str>, &str) -> Option<Object<K>> + Send + Sync;

/// Turns JSON bytes into [`Object`]s, the same way for every object of an informer.
///
/// Reading is one pass that checks UTF-8, notes the header and drops `managedFields`; the rest of
/// the object stays bytes until somebody asks for it. A [transform](Reader::transform) runs once,
/// here, and only an informer with one pays for decoding.
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
    undecoded: Arc<AtomicU64>,
}

impl<K: Kind> Reader<K> {
    /// A reader that drops `managedFields` and changes nothing else.
    pub fn new() -> Self {
        Self {
            transform: None,
            known: None,
            types: None,
            fields: Fields::default(),
            keep_managed_fields: false,
            eager: false,
            undecoded: Arc::default(),
        }
    }

    /// Changes every object on its way in, once: the cache, indices and handlers see the result.
    ///
    /// The object keeps its key, UID and resource version whatever `change` does to them.
    /// `managedFields` are already gone unless [kept](Reader::keep_managed_fields). An error or a
    /// panic is the error of that object alone.
    pub fn transform<F>(mut self, change: F) -> Self
    where
        F: Fn(&mut Value) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.transform = Some(Arc::new(change));
        self
    }

    /// Whether `metadata.managedFields` stay in the object. They are often a third of it.
    pub fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.keep_managed_fields = keep;
        self
    }

    /// Decodes every object on its way in and keeps the typed view for as long as the object.
    ///
    /// For a kind whose users read everything all the time: it trades memory for decoding. An
    /// object that cannot be decoded, also because its `Deserialize` panics, is logged, counted in
    /// [`undecoded`](Self::undecoded) and kept all the same; it returns the error when asked.
    pub fn eager(mut self, eager: bool) -> Self {
        self.eager = eager;
        self
    }

    /// Names the kind in objects that do not name it themselves, as those in lists of built-in
    /// kinds: a dynamic object can then tell what it is.
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

    /// Lets a relist share what is already held: if `known` has an object of the same UID and
    /// resource version, it is taken instead of a second copy of the bytes.
    pub(crate) fn reuse<F>(mut self, known: F) -> Self
    where
        F: Fn(Option<&str>, &str) -> Option<Object<K>> + Send + Sync + 'static,
    {
        self.known = Some(Arc::new(known));
        self
    }

    /// How many objects could not be decoded [on their way in](Self::eager). Clones count together.
    pub fn undecoded(&self) -> u64 {
        self.undecoded.load(Ordering::Relaxed)
    }

    /// The count behind [`undecoded`](Self::undecoded).
    pub(crate) fn undecoded_count(&self) -> Arc<AtomicU64> {
        self.undecoded.clone()
    }

    /// The fields to read while skimming, for whoever wants to add some.
    pub(crate) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Reads one object.
    pub fn read(&self, json: &[u8]) -> Result<Object<K>, ReadError> {
        let text = std::str::from_utf8(json).map_err(|error| ReadError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        if u32::try_from(text.len()).is_err() {
            return Err(ReadError::TooLarge { size: text.len() });
        }
        let mut skim = Skim::default();
        let wanted = self.fields.wanted();
        let outcome = skim.run(text, &wanted);
        let part = |literal: Option<super::scan::Literal>| {
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
            skim.run(&changed, &wanted).map_err(malformed)?;
            body = Body::compose(&changed, skim, None, true).map_err(malformed)?;
            body.identify(&Identity {
                uid: &uid,
                resource_version: &version,
            });
        }
        let object = Object::new(key, body);
        if self.eager
            && let Err(error) = object.keep_view()
        {
            self.undecoded.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(key = %object.key(), %error, "keeping an object that does not decode");
        }
        Ok(object)
    }
}

fn apply(transform: &Transform, json: &str, key: &ObjectKey) -> Result<String, ReadError> {
    let mut value: Value = serde_json::from_str(json).map_err(|error| ReadError::Malformed {
        of: Of(Some(key.clone())),
        at: error.column(),
        expected: "valid JSON",
    })?;
    let failed = |source| ReadError::Transform {
        key: key.clone(),
        source,
    };
    // The value is dropped after a panic, so nobody sees it half changed.
    match catch_unwind(AssertUnwindSafe(|| transform(&mut value))) {
        Ok(outcome) => outcome.map_err(failed)?,
        Err(panic) => return Err(failed(panic_message(panic.as_ref()).into())),
    }
    Ok(value.to_string())
}

/// What a panic said, if it said it in text.
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
            .finish_non_exhaustive()
    }
}

/// Which object an error is about, if that much could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Of(Option<ObjectKey>);

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(key) => write!(f, "object {key}"),
            None => f.write_str("an object of unknown name"),
        }
    }
}

/// Bytes that are not an object. It concerns this object alone: others can still be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are not text.
    #[error("an object is not UTF-8: byte {at}")]
    NotUtf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// The bytes are not one JSON object.
    #[error("{of} is not valid JSON: expected {expected} at byte {at}")]
    Malformed {
        /// The object, if it got far enough to say its name.
        of: Of,
        /// Where.
        at: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// The object is beyond any size a server accepts.
    #[error("an object of {size} bytes is too large")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// There is no `metadata`.
    #[error("an object has no metadata")]
    NoMetadata,
    /// There is no `metadata.name`.
    #[error("an object has no name")]
    NoName,
    /// The transform failed or panicked.
    #[error("the transform refused object {key}: {source}")]
    Transform {
        /// The object.
        key: ObjectKey,
        /// What the transform said.
        source: BoxError,
    },
}

impl ReadError {
    fn malformed(key: Option<ObjectKey>, malformed: Malformed) -> Self {
        Self::Malformed {
            of: Of(key),
            at: malformed.at,
            expected: malformed.expected,
        }
    }

    /// The object, if the bytes got far enough to say its name.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Malformed { of: Of(key), .. } => key.as_ref(),
            Self::Transform { key, .. } => Some(key),
            _ => None,
        }
    }
}
