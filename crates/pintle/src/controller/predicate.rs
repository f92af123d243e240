//! Predicates: which changes are worth a reconcile.
//!
//! A predicate sees additions and updates. Deletions always reach the queue.

use std::{fmt, sync::Arc};

use crate::cache::{Object, Selector};

/// Decides whether a change to a `K` enqueues anything, from the object before and after it. The
/// predicates about changes, such as [`labels_changed`](Self::labels_changed), admit all additions.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pintle::controller::Predicate;
///
/// let interesting = Predicate::<Pod>::generation_changed()
///     .or(Predicate::labels_changed());
/// let on_my_node = Predicate::<Pod>::new(|_old, new| new.labels().get("node") == Some("a"));
/// let both = interesting.and(on_my_node);
/// ```
pub struct Predicate<K> {
    test: Arc<Test<K>>,
}

type Test<K> = dyn Fn(Option<&Object<K>>, &Object<K>) -> bool + Send + Sync;

impl<K: 'static> Predicate<K> {
    /// Creates a predicate. `old` is `None` when the object was added.
    pub fn new(
        test: impl Fn(Option<&Object<K>>, &Object<K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            test: Arc::new(test),
        }
    }

    fn on_update(changed: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |old, new| old.is_none_or(|old| changed(old, new)))
    }

    /// Admits updates that changed the spec, for kinds that have a generation.
    pub fn generation_changed() -> Self {
        Self::on_update(|old, new| old.generation() != new.generation())
    }

    /// Admits updates other than resyncs.
    pub fn resource_version_changed() -> Self {
        Self::on_update(|old, new| old.resource_version() != new.resource_version())
    }

    /// Admits updates that changed a label.
    pub fn labels_changed() -> Self {
        Self::on_update(|old, new| !old.labels().iter().eq(new.labels().iter()))
    }

    /// Admits updates that changed an annotation. Decodes the metadata of both versions.
    pub fn annotations_changed() -> Self {
        Self::on_update(|old, new| match (old.metadata(), new.metadata()) {
            (Ok(old), Ok(new)) => old.annotations != new.annotations,
            // Admit the change, so that the reconcile reports the decoding error.
            _ => true,
        })
    }

    /// Admits objects whose labels match `selector`.
    pub fn labels_match(selector: Selector) -> Self {
        Self::new(move |_, new| selector.matches_labels(new.labels()))
    }

    /// Admits a change if both predicates do.
    pub fn and(self, other: Self) -> Self {
        Self::new(move |old, new| self.admits(old, new) && other.admits(old, new))
    }

    /// Admits a change if either predicate does.
    pub fn or(self, other: Self) -> Self {
        Self::new(move |old, new| self.admits(old, new) || other.admits(old, new))
    }

    pub(super) fn admits(&self, old: Option<&Object<K>>, new: &Object<K>) -> bool {
        (self.test)(old, new)
    }
}

impl<K: 'static> std::ops::Not for Predicate<K> {
    type Output = Self;

    fn not(self) -> Self {
        Self::new(move |old, new| !self.admits(old, new))
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self {
            test: Arc::clone(&self.test),
        }
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}
