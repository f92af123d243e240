//! A whole set of children: applied together, and pruned of those no longer wanted.
//!
//! # The problem
//!
//! A reconcile that applies a Deployment, a Service and, if the spec enables it, an Ingress also
//! has to delete the Ingress when the spec no longer does. The spec no longer names that object, so
//! the controller has to find it in the cluster, without deleting anything else.
//!
//! # What belongs to a set
//!
//! An object is pruned only if all of this holds:
//!
//! 1. Its controller is the reconciled object, compared by UID rather than by name.
//! 2. It carries the label [`APPLY_SET_LABEL`] with the name of the set.
//! 3. It is not among the children of this call, compared by group, kind, namespace and name.
//!
//! The controller reference enqueues the owner when a member changes, and makes the garbage
//! collector delete the member with its owner. The label distinguishes members from children that
//! the controller creates in other ways, such as individual Jobs.
//!
//! `kubectl apply --prune --applyset` solves the same problem for tools, specified in [KEP-3659].
//! Its labels and annotations are not used here. They identify a parent by name, so a parent that
//! is deleted and recreated inherits the objects of its predecessor. Anyone who can label an object
//! can claim membership. They require labels and annotations on the parent, which is the user's
//! object, including a list of kinds that a tool needs only because it has no caches to search.
//!
//! # Steps
//!
//! ```text
//! check every child ──► apply every child, in order ──► delete the rest, by kind and name
//!        │ any refused             │ any failed                    │ any failed
//!        ▼                         ▼                               ▼
//!     Refused                    Apply                           Prune
//!  (nothing is sent)       (nothing is deleted)           (the others are deleted)
//! ```
//!
//! Nothing about a set is stored outside its members, so if the process dies at any point, the next
//! reconcile finds everything it left behind.
//!
//! [KEP-3659]:
//! https://github.com/kubernetes/enhancements/tree/master/keps/sig-cli/3659-kubectl-apply-prune

mod applied;
mod error;

use std::{collections::BTreeSet, fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::Value;

use self::applied::Body;
pub use self::{
    applied::{AppliedSet, Member, PrunedObject},
    error::{ApplySetError, FailedObject, ObjectError},
};
use super::{
    ApplyError, Context, Watchable, Writable, Writes,
    apply::{Outcome, apply_child},
    context::Inner,
};
use crate::{
    cache::{Kind, ObjectKey, OwnerRef},
    object::Header,
    owner,
    source::KindScope,
};

/// The label of objects that belong to an [`ApplySet`]. Its value is the name of the set.
pub const APPLY_SET_LABEL: &str = "pintle-rs.github.io/apply-set";

impl<S> Context<S> {
    /// Starts a set of children of the reconciled object. When awaited, it applies each child like
    /// [`apply_owned`](Self::apply_owned), then deletes the members of an earlier set that are no
    /// longer in it.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Service}};
    /// # use pintle::controller::{Action, ApplySetError, Context};
    /// # fn deployment_for(_: &ConfigMap) -> Deployment { unimplemented!() }
    /// # fn services_for(_: &ConfigMap) -> Vec<Service> { unimplemented!() }
    /// async fn reconcile(config: Arc<ConfigMap>, cx: Context) -> Result<Action, ApplySetError> {
    ///     let set = cx
    ///         .apply_set()
    ///         .child(deployment_for(&config))
    ///         .children(services_for(&config)) // Services left out since are deleted
    ///         .await?;
    ///     if let Some(waiting) = set.unready(cx.clock().now()).next() {
    ///         println!("waiting for {waiting:?}");
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub fn apply_set(&self) -> ApplySet<'_> {
        ApplySet {
            inner: &self.inner,
            name: None,
            children: Vec::new(),
            formerly: Vec::new(),
            force: true,
        }
    }
}

/// A set of children, applied and pruned when awaited. See
/// [`Context::apply_set`](super::Context::apply_set).
///
/// # What it does
///
/// - Checks every child before it sends anything: it has a name, is in the scope of its owner, is
///   of a kind the controller watches, and is in the set once.
/// - Applies the children one after the other in the order in which they were added, each like
///   [`apply_owned`](super::Context::apply_owned): with the controller reference, failing for
///   existing objects that the owner does not control, and only if something differs. If one fails,
///   the others are still applied.
/// - If every child was applied, deletes the other objects of the set, ordered by group, kind,
///   namespace and name. Each deletion has the cached UID and `resourceVersion` as preconditions,
///   so an object that has changed since is left alone until the next reconcile.
///
/// The next reconcile of the key sees the result. Objects are deleted in the background: the
/// dependents of a pruned object are deleted after it.
///
/// # Kinds
///
/// Members are looked up in the caches of all kinds that the controller
/// [owns](super::Controller::owns) or watches. A kind that is no longer in the set must still be
/// watched for as long as clusters may have objects of it. Name it with
/// [`formerly`](Self::formerly), which turns forgetting that into an error. An informer with a
/// selector or for one namespace hides what it does not select.
///
/// # Permissions
///
/// Besides `list` and `watch`: `get`, `create`, `patch` and `delete` on every kind.
///
/// # Caveats
///
/// - A child that an earlier version of the controller created without a set becomes a member when
///   the set first applies it. Such a child is not pruned if the set does not contain it.
/// - Applying a member outside the set with `apply_owned` removes the label, and with it the member
///   from the set.
/// - The set's name begins with the [field manager](super::Controller::field_manager), so that two
///   controllers of one kind do not prune each other's children. After a rename, unwanted members
///   of the set with the old name are not pruned.
#[must_use = "a set does nothing until it is awaited"]
pub struct ApplySet<'a> {
    inner: &'a Inner,
    name: Option<String>,
    children: Vec<Wanted>,
    formerly: Vec<ApiResource>,
    force: bool,
}

/// A child as it was added.
struct Wanted {
    resource: ApiResource,
    /// The scope, as far as the child's type determines it.
    scope: KindScope,
    key: ObjectKey,
    object: Result<DynamicObject, serde_json::Error>,
}

impl ApplySet<'_> {
    /// Names the set, for a controller with several sets per object. Each set prunes its own
    /// members only.
    ///
    /// The field manager and the name, joined by a dot, must form a valid label value: at most 63
    /// letters, digits, `-`, `_` and `.`.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a child.
    pub fn child<K: Writable>(self, child: K) -> Self {
        self.child_of(child, &K::DynamicType::default())
    }

    /// Adds children of one kind.
    pub fn children<K: Writable>(self, children: impl IntoIterator<Item = K>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    /// Adds a child of a kind that is known only at run time. It has to name its namespace, unless
    /// the controller watches the kind by a type that determines whether it is namespaced.
    ///
    /// The controller has to watch the kind, but any type will do:
    /// `owns::<PartialObjectMeta<Widget>>()`, or a struct with some of its fields.
    ///
    /// ```no_run
    /// # use kube::core::{ApiResource, DynamicObject};
    /// # use pintle::controller::{ApplySetError, Context};
    /// # async fn example(cx: Context, widgets: &ApiResource) -> Result<(), ApplySetError> {
    /// let widget = DynamicObject::new("one", widgets).within("default");
    /// cx.apply_set().child_of(widget, widgets).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn child_of<K: Kind + Serialize>(mut self, child: K, kind: &K::DynamicType) -> Self {
        let key = ObjectKey::of(&child);
        let object = serde_json::to_value(child).and_then(serde_json::from_value);
        self.children.push(Wanted {
            resource: ApiResource::erase::<K>(kind),
            scope: KindScope::of::<K>(),
            key,
            object,
        });
        self
    }

    /// Declares that earlier versions of the set had children of kind `K`. The controller then has
    /// to watch `K`, or those children would never be pruned.
    pub fn formerly<K: Watchable>(self) -> Self {
        self.formerly_of::<K>(&K::DynamicType::default())
    }

    /// Like [`formerly`](Self::formerly), for a kind that is known only at run time.
    pub fn formerly_of<K: Kind>(mut self, kind: &K::DynamicType) -> Self {
        self.formerly.push(ApiResource::erase::<K>(kind));
        self
    }

    /// Fails with a conflict if another manager owns a field with a different value, instead of
    /// taking it over.
    pub fn without_force(mut self) -> Self {
        self.force = false;
        self
    }

    async fn apply(self) -> Result<AppliedSet, ApplySetError> {
        let shared = &self.inner.shared;
        let name = match &self.name {
            Some(name) => format!("{}.{name}", shared.field_manager),
            None => shared.field_manager.clone(),
        };
        if !is_label_value(&name) {
            return Err(ApplySetError::InvalidName { name });
        }
        let owner = self.inner.primary();
        let reference = shared
            .primary
            .controller_reference(&self.inner.key, owner.as_deref())?;
        for kind in &self.formerly {
            shared.listers.kind(kind)?;
        }
        let (inner, force) = (self.inner, self.force);
        let children = self.checked(&name, &reference)?;
        let wanted = children
            .iter()
            .map(|(kind, child)| identity(kind, &ObjectKey::of(child)));
        let wanted: BTreeSet<_> = wanted.collect();
        let members = apply_all(inner, children, &reference, force).await?;
        let pruned = prune(inner, &name, &reference.uid, &wanted).await?;
        Ok(AppliedSet { members, pruned })
    }

    /// Returns the children ready to be applied, or an error for each child that cannot be.
    fn checked(
        self,
        name: &str,
        reference: &OwnerReference,
    ) -> Result<Vec<(ApiResource, DynamicObject)>, ApplySetError> {
        let mut seen = BTreeSet::new();
        let (mut children, mut failed) = (Vec::new(), Vec::new());
        for wanted in self.children {
            let (kind, mut key) = (wanted.resource.kind.clone(), wanted.key.clone());
            match check(self.inner, name, reference, wanted, &mut key, &mut seen) {
                Ok(child) => children.push(child),
                Err(error) => failed.push(FailedObject { kind, key, error }),
            }
        }
        if failed.is_empty() {
            Ok(children)
        } else {
            Err(ApplySetError::Refused { failed })
        }
    }
}

impl<'a> IntoFuture for ApplySet<'a> {
    type Output = Result<AppliedSet, ApplySetError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.apply().boxed()
    }
}

/// Group, kind and key: the same object in any version.
type Identity = (String, String, ObjectKey);

fn identity(kind: &ApiResource, key: &ObjectKey) -> Identity {
    (kind.group.clone(), kind.kind.clone(), key.clone())
}

/// Sets the owner, namespace and label of a child, and checks whether it may be applied.
fn check(
    inner: &Inner,
    name: &str,
    reference: &OwnerReference,
    wanted: Wanted,
    key: &mut ObjectKey,
    seen: &mut BTreeSet<Identity>,
) -> Result<(ApiResource, DynamicObject), ObjectError> {
    let Wanted {
        resource, object, ..
    } = wanted;
    let mut object = object?;
    let watched = inner.shared.listers.kind(&resource);
    // A dynamic child has no static scope, but the type of its cache may.
    let scope = match (wanted.scope, &watched) {
        (KindScope::Dynamic, Ok(watched)) => watched.scope,
        (scope, _) => scope,
    };
    let meta = &mut object.metadata;
    let owned = owner::adopt(&inner.key, reference.clone(), &resource.kind, scope, meta);
    owned.map_err(ApplyError::from)?;
    *key = ObjectKey::new(
        meta.namespace.as_deref(),
        meta.name.as_deref().unwrap_or_default(),
    );
    watched.map_err(ApplyError::from)?;
    let labels = meta.labels.get_or_insert_default();
    let label = labels.insert(APPLY_SET_LABEL.to_owned(), name.to_owned());
    if key.name().is_empty() {
        let kind = resource.kind.clone();
        return Err(ApplyError::Unnamed { kind }.into());
    }
    if let Some(other) = label.filter(|label| label != name) {
        return Err(ObjectError::OtherSet { name: other });
    }
    if !seen.insert(identity(&resource, key)) {
        return Err(ObjectError::Duplicate);
    }
    Ok((resource, object))
}

/// Applies all children, and reports all that failed.
async fn apply_all(
    inner: &Inner,
    children: Vec<(ApiResource, DynamicObject)>,
    reference: &OwnerReference,
    force: bool,
) -> Result<Vec<Member>, ApplySetError> {
    let total = children.len();
    let (mut members, mut failed) = (Vec::with_capacity(total), Vec::new());
    for (resource, child) in children {
        let key = ObjectKey::of(&child);
        match apply_one(inner, &resource, child, reference, force).await {
            Ok((object, is_changed)) => members.push(Member {
                resource,
                key,
                object,
                is_changed,
            }),
            Err(error) => failed.push(FailedObject {
                kind: resource.kind,
                key,
                error: error.into(),
            }),
        }
    }
    if failed.is_empty() {
        Ok(members)
    } else {
        Err(ApplySetError::Apply { failed, total })
    }
}

async fn apply_one(
    inner: &Inner,
    resource: &ApiResource,
    child: DynamicObject,
    reference: &OwnerReference,
    force: bool,
) -> Result<(Body, bool), ApplyError> {
    let watched = inner.shared.listers.kind(resource)?;
    let cache = watched.contents();
    let cached = cache.get(&ObjectKey::of(&child));
    let writes = Writes::<DynamicObject>::of(inner, resource);
    let applied = apply_child(&writes, &child, reference, cached.as_deref(), cache, force).await?;
    Ok(match (applied, cached) {
        (Outcome::Stored { object, changed }, _) => (Body::Stored(object), changed),
        (Outcome::Terminating(meta), _) => {
            let mut terminating = child;
            terminating.metadata = *meta;
            let terminating = serde_json::to_value(terminating).unwrap_or_default();
            (Body::Stored(terminating), false)
        }
        (Outcome::Unchanged, Some(cached)) if watched.is_metadata => {
            (Body::Metadata(cached), false)
        }
        (Outcome::Unchanged, Some(cached)) => (Body::Cached(cached), false),
        (Outcome::Unchanged, None) => (Body::Stored(Value::Null), false),
    })
}

/// Deletes the members that are no longer wanted, and returns them.
async fn prune(
    inner: &Inner,
    name: &str,
    owner: &str,
    wanted: &BTreeSet<Identity>,
) -> Result<Vec<PrunedObject>, ApplySetError> {
    let (mut pruned, mut failed) = (Vec::new(), Vec::new());
    for (resource, object) in unwanted(inner, name, owner, wanted) {
        let (kind, key) = (resource.kind.clone(), object.key().clone());
        let writes = Writes::<DynamicObject>::of(inner, &resource);
        let version = Some(object.resource_version());
        match writes.delete_if(&key, object.uid(), version).await {
            Ok(()) => pruned.push(PrunedObject { kind, key }),
            Err(error) => failed.push(FailedObject {
                kind,
                key,
                error: ObjectError::Delete(Box::new(error)),
            }),
        }
    }
    if failed.is_empty() {
        Ok(pruned)
    } else {
        let pruned = pruned.len();
        Err(ApplySetError::Prune { failed, pruned })
    }
}

/// Returns the members that are no longer wanted, except those already being deleted, ordered by
/// group, kind and key.
fn unwanted(
    inner: &Inner,
    name: &str,
    owner: &str,
    wanted: &BTreeSet<Identity>,
) -> Vec<(ApiResource, Arc<dyn Header>)> {
    let mut found = Vec::new();
    for watched in inner.shared.listers.kinds() {
        let children = watched.controlled_by(inner.key.namespace(), owner);
        let unwanted = children.into_iter().filter(|child| {
            child.controller_owner().map(OwnerRef::uid) == Some(owner)
                && child.label(APPLY_SET_LABEL) == Some(name)
                && !child.is_being_deleted()
                && !wanted.contains(&identity(&watched.resource, child.key()))
        });
        found.extend(unwanted.map(|child| (watched.resource.clone(), child)));
    }
    // A kind may be in several caches, with different types.
    found.sort_by_cached_key(|(kind, child)| identity(kind, child.key()));
    found.dedup_by_key(|(kind, child)| identity(kind, child.key()));
    found
}

/// Returns whether `text` is a valid, non-empty label value.
fn is_label_value(text: &str) -> bool {
    let ends = |end: Option<u8>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63
        && ends(bytes.first().copied())
        && ends(bytes.last().copied())
        && bytes.iter().all(inner)
}

impl fmt::Debug for ApplySet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children = self.children.iter();
        let children: Vec<_> = children
            .map(|child| format!("{} {}", child.resource.kind, child.key))
            .collect();
        f.debug_struct("ApplySet")
            .field("name", &self.name)
            .field("children", &children)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
