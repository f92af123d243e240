//! The name of an object within its kind.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use kube::Resource;

/// The key of an object within its kind: a name, and a namespace if the kind has them.
///
/// Prints as `namespace/name`, or as `name` for an object without a namespace, and parses from the
/// same. Cloning is cheap: the text is shared.
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
    /// Where the name begins: 0 without a namespace.
    name_at: u32,
}

impl ObjectKey {
    /// The key of `name` in `namespace`; an empty namespace is none.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => Self::namespaced(namespace, name),
            _ => Self::cluster(name),
        }
    }

    /// The key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        // A namespace is at most 63 bytes on any server; one beyond 4 GB cannot be told apart.
        let name_at = u32::try_from(namespace.len() + 1).unwrap_or(0);
        Self {
            text: text.into(),
            name_at,
        }
    }

    /// The key of an object that lives in no namespace.
    pub fn cluster(name: &str) -> Self {
        Self {
            text: name.into(),
            name_at: 0,
        }
    }

    /// The key of `object`.
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    /// The namespace, if the object lives in one.
    pub fn namespace(&self) -> Option<&str> {
        (self.name_at as usize)
            .checked_sub(1)
            .map(|end| &self.text[..end])
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.text[self.name_at as usize..]
    }

    /// `namespace/name` or `name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Feeds the parts of a key to a hasher as [`Hash`] does, so that a key can be looked up by its
    /// parts without being made first.
    pub(crate) fn hash_parts<H: Hasher>(namespace: Option<&str>, name: &str, state: &mut H) {
        namespace.unwrap_or_default().hash(state);
        name.hash(state);
    }

    /// Whether this is the key of `name` in `namespace`.
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
    /// By namespace, then by name; objects without a namespace first.
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

/// A text that is not a key: an empty part, or more than one slash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an object key: expected \"name\" or \"namespace/name\"")]
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
mod tests {
    use super::*;

    /// Proves cache/keys.
    #[test]
    fn a_key_prints_and_parses_as_its_parts() {
        for (key, text) in [
            (ObjectKey::namespaced("default", "web-0"), "default/web-0"),
            (ObjectKey::cluster("node-1"), "node-1"),
            (ObjectKey::new(Some(""), "node-1"), "node-1"),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse::<ObjectKey>().unwrap(), key);
        }
        for text in ["", "a/b/c", "/a", "a/", "/"] {
            assert!(text.parse::<ObjectKey>().is_err(), "{text:?} parsed");
        }
    }

    #[test]
    fn keys_sort_by_namespace_then_name() {
        let mut keys: Vec<ObjectKey> = ["b/a", "a/z", "zz", "a-b/a"]
            .map(|k| k.parse().unwrap())
            .into();
        keys.sort();
        let sorted: Vec<_> = keys.iter().map(ObjectKey::as_str).collect();
        assert_eq!(sorted, ["zz", "a/z", "a-b/a", "b/a"]);
    }
}
