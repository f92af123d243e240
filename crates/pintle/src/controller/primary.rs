//! The object that a reconcile is about.

use super::{Context, NotWatched};
use crate::cache::{Kind, Object};

/// The object that a reconcile is about, as the cache has it.
///
/// An object with a deletion timestamp still exists: it waits for its finalizers, or, under
/// foreground deletion, for everything it owns to be deleted first. A reconcile that makes a child
/// for it works against the garbage collector. So the two cases are two variants, and the usual
/// first line of a reconcile handles both:
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use pintle::controller::{Action, Context, ReconcileError};
/// # use pintle::cache::ObjectKey;
/// use pintle::controller::Primary;
///
/// async fn reconcile(_: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
///     let Primary::Live(map) = cx.primary::<ConfigMap>()? else {
///         return Ok(Action::await_change()); // Gone, or going with all it owns.
///     };
///     println!("reconciling {}", map.key());
///     Ok(Action::await_change())
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "what is to be done depends on it"]
pub enum Primary<K> {
    /// It exists and nothing has asked for its deletion.
    Live(Object<K>),
    /// Its deletion was requested: clean up, and create nothing for it.
    Deleting(Object<K>),
    /// It does not exist.
    Gone,
}

impl Context {
    /// Returns the object of the key that is reconciled, from the cache.
    ///
    /// `K` is the controller's primary kind.
    ///
    /// # Errors
    ///
    /// The controller does not watch `K`.
    pub fn primary<K: Kind<DynamicType: Default>>(&self) -> Result<Primary<K>, NotWatched> {
        Ok(match self.lister::<K>()?.get(self.key()) {
            None => Primary::Gone,
            Some(object) if object.is_being_deleted() => Primary::Deleting(object),
            Some(object) => Primary::Live(object),
        })
    }
}
