//! Which changes are worth a reconcile.
//!
//! A predicate sees additions and updates, never deletions: a deletion always reaches the queue.

use std::{fmt, sync::Arc};

use crate::cache::{Object, Selector};

/// Decides whether a change of a `K` wakes the controller: given the object before (none when it
/// was added) and after.
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
    /// Any rule: `old` is `None` when the object was added.
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

    /// Updates that changed the spec (as far as the kind counts generations).
    pub fn generation_changed() -> Self {
        Self::on_update(|old, new| old.generation() != new.generation())
    }

    /// Updates that are not mere resyncs.
    pub fn resource_version_changed() -> Self {
        Self::on_update(|old, new| old.resource_version() != new.resource_version())
    }

    /// Updates that changed a label.
    pub fn labels_changed() -> Self {
        Self::on_update(|old, new| !old.labels().iter().eq(new.labels().iter()))
    }

    /// Updates that changed an annotation. Reads the metadata of both sides.
    pub fn annotations_changed() -> Self {
        Self::on_update(|old, new| match (old.metadata(), new.metadata()) {
            (Ok(old), Ok(new)) => old.annotations != new.annotations,
            // What cannot be read is the reconciler's to report.
            _ => true,
        })
    }

    /// Objects whose labels `selector` selects.
    pub fn labels_match(selector: Selector) -> Self {
        Self::new(move |_, new| selector.matches_labels(new.labels()))
    }

    /// Both must hold.
    pub fn and(self, other: Self) -> Self {
        Self::new(move |old, new| self.admits(old, new) && other.admits(old, new))
    }

    /// One of the two must hold.
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
