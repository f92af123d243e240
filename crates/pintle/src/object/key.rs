//! Object keys: `namespace/name`.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use kube::Resource;

/// The key of an object within its kind: its name, and its namespace if the kind is namespaced.
///
/// Displays as `namespace/name`, or as `name` for a cluster-scoped object, and parses from the
/// same. Clones share the string.
///
/// ```
/// use pintle::cache::ObjectKey;
///
/// let key: ObjectKey = "default/web-0".parse().unwrap();
/// assert_eq!(key, ObjectKey::namespaced("default", "web-0"));
/// assert_eq!((key.namespace(), key.name()), (Some("default"), "web-0"));
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone)]
pub struct ObjectKey {
    /// `namespace/name` or `name`.
    text: Arc<str>,
    /// Where the name begins; 0 without a namespace.
    name_at: u32,
}

impl ObjectKey {
    /// Returns the key of `name` in `namespace`. An empty namespace counts as none.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => Self::namespaced(namespace, name),
            _ => Self::cluster(name),
        }
    }

    /// Returns the key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        // Namespaces have at most 63 bytes; one beyond 4 GB is treated as part of the name.
        let name_at = u32::try_from(namespace.len() + 1).unwrap_or(0);
        Self {
            text: text.into(),
            name_at,
        }
    }

    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self {
            text: name.into(),
            name_at: 0,
        }
    }

    /// Returns the key of `object`.
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    /// Returns the namespace, unless the object is cluster-scoped.
    pub fn namespace(&self) -> Option<&str> {
        (self.name_at as usize)
            .checked_sub(1)
            .map(|end| &self.text[..end])
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.text[self.name_at as usize..]
    }

    /// Returns `namespace/name` or `name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Hashes the parts of a key as [`Hash`] does, so that a map can be searched without building a
    /// key.
    pub(crate) fn hash_parts<H: Hasher>(namespace: Option<&str>, name: &str, state: &mut H) {
        namespace.unwrap_or_default().hash(state);
        name.hash(state);
    }

    /// Returns whether this is the key of `name` in `namespace`.
    pub(crate) fn is(&self, namespace: Option<&str>, name: &str) -> bool {
        self.name() == name && self.namespace() == namespace
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text)
            || (self.name_at == other.name_at && self.text == other.text)
    }
}

impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Self::hash_parts(self.namespace(), self.name(), state);
    }
}

impl Ord for ObjectKey {
    /// Orders by namespace, then by name, cluster-scoped objects first.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

/// A string that is not a key, because a part is empty or it has more than one slash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid object key {text:?}: expected \"name\" or \"namespace/name\"")]
pub struct InvalidKey {
    text: String,
}

impl FromStr for ObjectKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let invalid = || InvalidKey {
            text: text.to_owned(),
        };
        match text.split_once('/') {
            None if !text.is_empty() => Ok(Self::cluster(text)),
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::namespaced(namespace, name))
            }
            _ => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests;
