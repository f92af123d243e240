//! The status of any object, in the terms of [kstatus]: does it match its spec?
//!
//! Every kind reports its progress in its own way. kstatus, which kpt and Flux use, reduces them to
//! one of six statuses, and so does [`compute`], a pure function of an object and the time. It
//! asks, in this order:
//!
//! 1. Is the object being deleted? Then it is [`Terminating`](Status::Terminating).
//! 2. Has its controller seen the current generation? If `status.observedGeneration` differs from
//!    `metadata.generation`, the object is [`InProgress`](Status::InProgress).
//! 3. Is the condition `Reconciling` or `Stalled` true? Both are abnormal-true: absent when all is
//!    well. `Reconciling` means [`InProgress`](Status::InProgress), `Stalled`
//!    [`Failed`](Status::Failed).
//! 4. Is it a built-in kind? `Deployment`, `ReplicaSet`, `StatefulSet`, `DaemonSet`, `Job`, `Pod`,
//!    `PersistentVolumeClaim`, `Service` and `CustomResourceDefinition` have their own rules;
//!    objects of `ConfigMap`, `Secret`, `CronJob` and `PodDisruptionBudget` are always current.
//! 5. Does it have the condition `Ready`? `True` means [`Current`](Status::Current), `False` and
//!    `Unknown` mean [`InProgress`](Status::InProgress).
//! 6. Otherwise it is [`Current`](Status::Current).
//!
//! A controller whose objects should be understood this way reports with
//! [`Context::report`](crate::controller::Context::report).
//!
//! # Caveats
//!
//! A custom resource that its controller has not touched yet has neither conditions nor an observed
//! generation, so it counts as current. Judge an object again after its controller has seen it, or
//! give its CRD a default for `status.observedGeneration` or a condition.
//!
//! [kstatus]: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus

mod builtin;
mod fields;

use std::fmt;

use jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use self::fields::{Condition, Fields};
use crate::cache::{Kind, Object};

/// How far the actual state of an object is from its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The object matches its spec.
    Current,
    /// The object does not match its spec yet.
    InProgress,
    /// The object failed to reach its desired state, or did not reach it in time.
    Failed,
    /// The object is being deleted.
    Terminating,
    /// The object does not exist.
    NotFound,
    /// The object is malformed, or too little of it is known.
    Unknown,
}

impl Status {
    /// Returns the status as kstatus spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::NotFound => "NotFound",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The status of an object, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectStatus {
    /// The status.
    pub status: Status,
    /// A CamelCase word for programs, such as `LessReady`. Empty if there is nothing to explain.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl ObjectStatus {
    fn new(status: Status, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            message: message.into(),
        }
    }

    fn current(message: impl Into<String>) -> Self {
        Self::new(Status::Current, "", message)
    }

    fn in_progress(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Status::InProgress, reason, message)
    }

    pub(crate) fn unknown(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Status::Unknown, reason, message)
    }

    fn failed(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Status::Failed, reason, message)
    }

    /// Returns the status of an object that does not exist.
    pub fn not_found() -> Self {
        Self::new(Status::NotFound, "NotFound", "Resource not found")
    }

    /// Returns whether the object matches its spec.
    pub fn is_current(&self) -> bool {
        self.status == Status::Current
    }
}

impl fmt::Display for ObjectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.message)
    }
}

/// Computes the status of an object from its JSON, which has to include `apiVersion` and `kind`.
///
/// `now` matters for Pods only: one that cannot be scheduled counts as failed after 15 seconds.
///
/// # Examples
///
/// ```
/// use pintle::kstatus::{Status, compute};
/// use serde_json::json;
///
/// let widget = json!({
///     "apiVersion": "example.com/v1", "kind": "Widget",
///     "metadata": {"name": "one", "generation": 2},
///     "status": {"observedGeneration": 1},
/// });
/// let status = compute(&widget, jiff::Timestamp::UNIX_EPOCH);
/// assert_eq!(status.status, Status::InProgress);
/// assert_eq!(status.message, "Widget generation is 2, but latest observed generation is 1");
/// ```
pub fn compute(object: &Value, now: Timestamp) -> ObjectStatus {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/');
    compute_as(
        group.map_or("", |(group, _)| group),
        text("kind"),
        object,
        now,
    )
}

/// Computes the status of a typed object. See [`compute`].
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use pintle::kstatus;
///
/// let status = kstatus::of(&ConfigMap::default(), jiff::Timestamp::UNIX_EPOCH);
/// assert!(status.is_current());
/// ```
pub fn of<K>(object: &K, now: Timestamp) -> ObjectStatus
where
    K: Resource<DynamicType: Default> + Serialize,
{
    let kind = K::DynamicType::default();
    match serde_json::to_value(object) {
        Ok(object) => compute_as(&K::group(&kind), &K::kind(&kind), &object, now),
        Err(error) => unknown(error),
    }
}

/// Computes the status of an object returned by a cache; `None` is [`NotFound`](Status::NotFound).
/// See [`compute`].
pub fn of_cached<K>(object: Option<&Object<K>>, now: Timestamp) -> ObjectStatus
where
    K: Kind<DynamicType: Default>,
{
    let Some(object) = object else {
        return ObjectStatus::not_found();
    };
    let kind = K::DynamicType::default();
    of_bytes(&K::group(&kind), &K::kind(&kind), object.bytes(), now)
}

/// Computes the status of an object of a known kind from its bytes.
pub(crate) fn of_bytes(group: &str, kind: &str, object: &[u8], now: Timestamp) -> ObjectStatus {
    match serde_json::from_slice(object) {
        Ok(object) => compute_as(group, kind, &object, now),
        Err(error) => unknown(error),
    }
}

/// Computes the status of an object. The caller passes its kind, because the items of a list do not
/// state it.
pub(crate) fn compute_as(group: &str, kind: &str, object: &Value, now: Timestamp) -> ObjectStatus {
    let object = Fields(object);
    let conditions = match object.conditions() {
        Ok(conditions) => conditions,
        Err(error) => return unknown(error),
    };
    generic(kind, object, &conditions)
        .or_else(|| builtin::status(group, kind, object, &conditions, now))
        .or_else(|| ready(&conditions))
        .unwrap_or_else(|| ObjectStatus::current("Resource is current"))
}

fn unknown(error: impl fmt::Display) -> ObjectStatus {
    ObjectStatus::new(Status::Unknown, "Malformed", error.to_string())
}

/// The rules that apply to all kinds, and take precedence over the rules of single kinds.
fn generic(kind: &str, object: Fields<'_>, conditions: &[Condition]) -> Option<ObjectStatus> {
    if object.text("/metadata/deletionTimestamp").is_some() {
        let message = "Resource scheduled for deletion";
        return Some(ObjectStatus::new(Status::Terminating, "", message));
    }
    let generation = object.integer("/metadata/generation");
    let observed = object.integer("/status/observedGeneration");
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        let message = format!(
            "{kind} generation is {generation}, but latest observed generation is {observed}"
        );
        return Some(ObjectStatus::in_progress(
            "LatestGenerationNotObserved",
            message,
        ));
    }
    let holds = |condition: &&Condition| condition.status == "True";
    conditions
        .iter()
        .filter(holds)
        .find_map(|condition| match condition.type_.as_str() {
            "Reconciling" => Some(condition.in_progress()),
            "Stalled" => Some(condition.failed()),
            _ => None,
        })
}

/// Returns the status by the condition `Ready`, for kinds without their own rules.
fn ready(conditions: &[Condition]) -> Option<ObjectStatus> {
    let ready = conditions.iter().find(|one| one.type_ == "Ready")?;
    match ready.status.as_str() {
        "True" => Some(ObjectStatus::current("Resource is Ready")),
        "False" | "Unknown" => Some(ready.in_progress()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
