//! The plugins of the chain, in Kubernetes' order.

mod certificates;
mod claim_resize;
mod classes;
mod limit_ranger;
mod pod_resize;
mod pod_security;
mod priority;
mod resource_quota;
mod runtime_class;
mod service_account;
mod topology_labels;
mod volume_protection;

use std::sync::Arc;

use serde_json::Value;

use self::{
    certificates::Certificates, claim_resize::ClaimResize, classes::DefaultClass,
    limit_ranger::LimitRanger, pod_resize::PodResize, pod_security::PodSecurity,
    priority::Priority, resource_quota::ResourceQuota, runtime_class::RuntimeClass,
    service_account::ServiceAccount, topology_labels::TopologyLabels,
    volume_protection::VolumeProtection,
};
use super::{
    Plugin, Request,
    policy::{MutatingPolicies, ValidatingPolicies},
    webhook::{MutatingWebhooks, ValidatingWebhooks},
};
use crate::{
    api::{Api, ApiError},
    meta::Tree,
    store::{Object, key_range, namespace_bounds},
};

/// Returns the plugins in kube-apiserver's order.
///
/// The plugins that Kubernetes enables by default are ordered as follows: `NamespaceLifecycle`,
/// `LimitRanger`, `ServiceAccount`, `TaintNodesByCondition`, `PodSecurity`, `Priority`,
/// `DefaultTolerationSeconds`, `DefaultStorageClass`, `StorageObjectInUseProtection`,
/// `PersistentVolumeClaimResize`, `RuntimeClass`, `CertificateApproval`, `CertificateSigning`,
/// `CertificateSubjectRestriction`, `DefaultIngressClass`, `PodTopologyLabels`,
/// `NodeDeclaredFeatureValidator`, `PodResizeValidator`, `MutatingAdmissionPolicy`,
/// `MutatingAdmissionWebhook`, `ValidatingAdmissionPolicy`, `ValidatingAdmissionWebhook`,
/// `ResourceQuota`. Insert a new plugin at its place in that order.
///
/// `NamespaceLifecycle` is part of the write path. Plugins that need nothing but the object itself
/// are hooks of its kind: `TaintNodesByCondition` and `DefaultTolerationSeconds`. Not implemented:
/// `NodeDeclaredFeatureValidator`.
pub(super) fn plugins() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(LimitRanger),
        Box::new(ServiceAccount),
        Box::new(PodSecurity),
        Box::new(Priority),
        Box::new(DefaultClass::STORAGE),
        Box::new(VolumeProtection),
        Box::new(ClaimResize),
        Box::new(RuntimeClass),
        Box::new(Certificates::Approval),
        Box::new(Certificates::Signing),
        Box::new(Certificates::SubjectRestriction),
        Box::new(DefaultClass::INGRESS),
        Box::new(TopologyLabels),
        Box::new(PodResize),
        Box::new(MutatingPolicies),
        Box::new(MutatingWebhooks),
        Box::new(ValidatingPolicies),
        Box::new(ValidatingWebhooks),
        Box::new(ResourceQuota),
    ]
}

/// Returns the error for a write that a plugin denies.
pub(super) fn refused(request: &Request<'_>, object: Option<&Tree>, why: &str) -> ApiError {
    request.forbidden(object, why)
}

fn tree_value(object: &Tree) -> Value {
    Value::Object(object.clone())
}

/// Returns the objects of a core kind in a namespace, ordered by name.
fn in_namespace(
    api: &Api,
    plural: &str,
    namespace: &str,
) -> impl Iterator<Item = Arc<Object>> + use<> {
    let collection = api.registry.builtin_collection("", plural);
    let snapshot = collection.and_then(|collection| api.store.snapshot(collection).ok());
    let objects: Vec<Arc<Object>> = snapshot
        .map(|snapshot| {
            let bounds = namespace_bounds(namespace);
            let range = snapshot
                .objects
                .range::<str, _>(key_range(Some(&bounds), None));
            range.map(|(_, object)| Arc::clone(object)).collect()
        })
        .unwrap_or_default();
    objects.into_iter()
}

/// Returns a cluster-scoped object.
fn cluster_object(api: &Api, group: &str, plural: &str, name: &str) -> Option<Value> {
    let collection = api.registry.builtin_collection(group, plural)?;
    let object = api.store.get(collection, name)?;
    Some(Value::Object(object.decode()))
}
