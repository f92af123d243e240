//! Object metadata: owner references, adoption, selectors.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ObjectMeta, OwnerReference, Time,
};
use pintle::cache::Selector;

pub(crate) type Labels = BTreeMap<String, String>;

/// The relation of an owner to an object it might control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The owner controls the object, and its selector matches.
    Controlled,
    /// The selector matches an orphan: the owner should set its owner reference.
    Adopt,
    /// The selector no longer matches an object that the owner controls: the owner should remove
    /// its owner reference.
    Release,
    /// There is nothing to do: another owner controls the object, the selector does not match an
    /// orphan, or the owner may not change the object's owner reference.
    Ignore,
}

/// Decides how `owner` relates to `object`, given whether its selector matches.
///
/// An owner under deletion neither adopts nor releases: its dependents are up to the garbage
/// collector.
pub(crate) fn claim(owner: &ObjectMeta, object: &ObjectMeta, selected: bool) -> Claim {
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if selected => Claim::Controlled,
        Some(_) if is_being_deleted(owner) => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !selected || is_being_deleted(owner) || is_being_deleted(object) => Claim::Ignore,
        None if owner.namespace != object.namespace => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// Returns the owner reference marked as controller.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Returns a controller reference to `owner` that blocks its foreground deletion.
///
/// Returns `None` for an owner without name or UID, which was never stored.
pub(crate) fn controller_reference<K>(owner: &K) -> Option<OwnerReference>
where
    K: kube::Resource<DynamicType = ()>,
{
    Some(OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone()?,
        uid: owner.meta().uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

pub(crate) fn is_being_deleted(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn labels(meta: &ObjectMeta) -> &Labels {
    static NONE: Labels = Labels::new();
    meta.labels.as_ref().unwrap_or(&NONE)
}

pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Parses the selector of a workload. An invalid or empty one selects nothing: a controller that
/// selects everything would adopt every orphan in its namespace.
pub(crate) fn selector(selector: &LabelSelector) -> Selector {
    Selector::try_from(selector)
        .ok()
        .filter(|selector| !selector.is_everything())
        .unwrap_or_else(Selector::nothing)
}

pub(crate) fn selects(selector: &Selector, meta: &ObjectMeta) -> bool {
    let labels = labels(meta).iter();
    selector.matches(labels.map(|(key, value)| (key.as_str(), value.as_str())))
}

/// Returns the owner references of an object with `owner` added as controller.
pub(crate) fn with_controller<K>(meta: &ObjectMeta, owner: &K) -> Vec<OwnerReference>
where
    K: kube::Resource<DynamicType = ()>,
{
    let mut owners = without_owner(meta, uid(owner.meta()));
    owners.extend(controller_reference(owner));
    owners
}

/// Returns the owner references of an object without the one to `owner`.
pub(crate) fn without_owner(meta: &ObjectMeta, owner: &str) -> Vec<OwnerReference> {
    let owners = meta.owner_references.iter().flatten();
    owners
        .filter(|reference| reference.uid != owner)
        .cloned()
        .collect()
}

/// Returns the finalizers of an object with `finalizer` added.
pub(crate) fn with_finalizer(meta: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let mut finalizers = without_finalizer(meta, finalizer);
    finalizers.push(finalizer.to_owned());
    finalizers
}

/// Returns the finalizers of an object without `finalizer`.
pub(crate) fn without_finalizer(meta: &ObjectMeta, finalizer: &str) -> Vec<String> {
    let finalizers = meta.finalizers.iter().flatten();
    finalizers.filter(|it| *it != finalizer).cloned().collect()
}

/// Truncates a timestamp to whole seconds, as on the wire, so that it compares equal when read
/// back.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Converts a count for a status field that omits zero.
pub(crate) fn count(n: usize) -> Option<i32> {
    Some(clamp(n)).filter(|n| *n != 0)
}

pub(crate) fn clamp(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
