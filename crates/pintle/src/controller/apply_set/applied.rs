//! The result of a set of children: what was applied and pruned, and whether it is ready.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube::core::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cache::ObjectKey,
    conditions::Readiness,
    kstatus::{self, ObjectStatus, Status},
    object::Header,
};

/// The result of awaiting an [`ApplySet`](super::ApplySet).
#[derive(Debug)]
pub struct AppliedSet {
    pub(super) members: Vec<Member>,
    pub(super) pruned: Vec<PrunedObject>,
}

impl AppliedSet {
    /// Returns the children, in the order in which they were added.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the objects that were deleted. Those with finalizers may still exist.
    pub fn pruned(&self) -> &[PrunedObject] {
        &self.pruned
    }

    /// Returns whether anything was created, changed or deleted.
    pub fn is_changed(&self) -> bool {
        !self.pruned.is_empty() || self.members.iter().any(Member::is_changed)
    }

    /// Returns the children that do not match their specs, or whose state is unknown, with the
    /// reason. See [`kstatus`](crate::kstatus).
    pub fn unready(&self, now: Timestamp) -> impl Iterator<Item = (&Member, ObjectStatus)> {
        let members = self.members.iter();
        let states = members.map(move |member| (member, member.status(now)));
        states.filter(|(_, status)| !status.is_current())
    }

    /// Returns the readiness of the whole set, for
    /// [`Context::report`](crate::controller::Context::report): ready if all children match their
    /// specs, stalled if one has failed, otherwise in progress.
    ///
    /// The message describes the first child that has failed or, if none has, the first that is not
    /// ready.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
    /// # use pintle::controller::{Action, Context, ReconcileError};
    /// # fn stateful_set_for(_: &Deployment) -> StatefulSet { unimplemented!() }
    /// async fn reconcile(object: Arc<Deployment>, cx: Context) -> Result<Action, ReconcileError> {
    ///     let set = cx.apply_set().child(stateful_set_for(&object)).await?;
    ///     cx.report(&*object, set.readiness(cx.clock().now())).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub fn readiness(&self, now: Timestamp) -> Readiness {
        let mut unready: Vec<_> = self.unready(now).collect();
        unready.sort_by_key(|(_, status)| status.status != Status::Failed);
        let Some((member, status)) = unready.first() else {
            return Readiness::ready("Current", "");
        };
        let reason = match status.reason.as_str() {
            "" => status.status.as_str(),
            reason => reason,
        };
        let ApiResource { kind, .. } = &member.resource;
        let message = format!("{kind} {}: {}", member.key.name(), status.message);
        if status.status == Status::Failed {
            Readiness::stalled(reason, message)
        } else {
            Readiness::in_progress(reason, message)
        }
    }
}

/// An object that an [`ApplySet`](super::ApplySet) deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrunedObject {
    /// The object's kind.
    pub kind: String,
    /// The object.
    pub key: ObjectKey,
}

/// A child that an [`ApplySet`](super::ApplySet) applied.
pub struct Member {
    pub(super) resource: ApiResource,
    pub(super) key: ObjectKey,
    pub(super) object: Body,
    pub(super) is_changed: bool,
}

/// Where the contents of a child come from.
pub(super) enum Body {
    Cached(Arc<dyn Header>),
    /// The cache holds only metadata.
    Metadata(Arc<dyn Header>),
    Stored(Value),
}

impl Member {
    /// Returns the child's group, version and kind.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Returns the child's key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns whether the child was created or changed.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Decodes the child: as stored if it was applied, else as cached. If the controller watches
    /// only the metadata of the kind, a cached child has nothing else.
    ///
    /// # Errors
    ///
    /// Fails if the object does not fit `K`.
    pub fn object<K: DeserializeOwned>(&self) -> Result<K, serde_json::Error> {
        match &self.object {
            Body::Cached(cached) | Body::Metadata(cached) => serde_json::from_slice(cached.bytes()),
            Body::Stored(object) => K::deserialize(object),
        }
    }

    /// Computes whether the child matches its spec.
    ///
    /// Metadata is not enough for this: a child of a kind that is watched by its metadata, and that
    /// was not applied this time, is [`Unknown`](kstatus::Status::Unknown) unless it is being
    /// deleted. Watch whole objects to use this method.
    pub fn status(&self, now: Timestamp) -> ObjectStatus {
        let ApiResource { group, kind, .. } = &self.resource;
        match &self.object {
            Body::Cached(cached) => kstatus::of_bytes(group, kind, cached.bytes(), now),
            Body::Metadata(cached) if cached.is_being_deleted() => {
                kstatus::of_bytes(group, kind, cached.bytes(), now)
            }
            Body::Metadata(_) => ObjectStatus::unknown(
                "MetadataOnly",
                format!("only the metadata of {kind} {} is watched", self.key),
            ),
            Body::Stored(object) => kstatus::compute_as(group, kind, object, now),
        }
    }
}

impl fmt::Debug for Member {
    /// Shows only the identity, because the contents may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("kind", &self.resource.kind)
            .field("key", &self.key)
            .field("is_changed", &self.is_changed)
            .finish_non_exhaustive()
    }
}
