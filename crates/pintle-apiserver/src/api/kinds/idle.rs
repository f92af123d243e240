//! Warnings for objects that are stored but have no effect.
//!
//! A client that creates a `StatefulSet` expects Pods. [`IDLE`] lists the kinds that this server
//! only stores; writing one adds a `Warning` header to the response. A controller that implements
//! such a kind [registers](crate::ApiServer::register_controller) and suppresses the warning while
//! it runs. Once the server enforces a kind, remove its line.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{api::request::options::Warnings, meta::Tree, registry::Resource};

/// Prefix of these warnings, to distinguish them from Kubernetes' own.
const ORIGIN: &str = "pintle";

/// Kinds that are only stored: `(group, plural, reason)`.
const IDLE: &[(&str, &str, &str)] = &[
    (
        "",
        "persistentvolumeclaims",
        "no controller binds volumes here",
    ),
    ("", "persistentvolumes", "no controller binds volumes here"),
    ("", "pods", "no scheduler and no kubelet run here"),
    ("", "replicationcontrollers", NO_PODS),
    (
        "",
        "resourcequotas",
        "no controller computes its usage here",
    ),
    (
        "",
        "services",
        "no controller writes its EndpointSlices here",
    ),
    ("apps", "daemonsets", NO_PODS),
    ("apps", "deployments", NO_PODS),
    ("apps", "replicasets", NO_PODS),
    ("apps", "statefulsets", NO_PODS),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "no controller scales anything here",
    ),
    ("batch", "cronjobs", "no controller creates its Jobs here"),
    ("batch", "jobs", NO_PODS),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        "no controller signs requests here",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        "this server does not queue requests by priority",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "this server does not queue requests by priority",
    ),
    (
        "networking.k8s.io",
        "ingresses",
        "no controller routes traffic here",
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        "nothing filters traffic here",
    ),
    (
        "policy",
        "poddisruptionbudgets",
        "no controller computes its status here, so evictions of its Pods are refused",
    ),
    (
        "rbac.authorization.k8s.io",
        "clusterroles",
        "no controller aggregates the rules of other roles here",
    ),
    (
        "resource.k8s.io",
        "resourceclaims",
        "no controller allocates devices here",
    ),
];

const NO_PODS: &str = "no controller creates its Pods here";

/// Returns why objects of a built-in resource have no effect, or `None` if they have one.
pub(crate) fn reason(group: &str, plural: &str) -> Option<&'static str> {
    let mut idle = IDLE.iter();
    let idle = idle.find(|kind| (kind.0, kind.1) == (group, plural));
    idle.map(|(_, _, why)| *why)
}

/// The kinds that running controllers implement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Controllers(Arc<Mutex<Running>>);

/// The number of controllers of each kind, by group and plural.
type Running = BTreeMap<(String, String), usize>;

impl Controllers {
    /// Registers a controller until the returned guard is dropped.
    pub(crate) fn register(&self, group: &str, plural: &str) -> ControllerRegistration {
        let kind = (group.to_owned(), plural.to_owned());
        *self.0.lock().entry(kind.clone()).or_default() += 1;
        ControllerRegistration {
            controllers: self.clone(),
            kind,
        }
    }

    /// Adds the warning for an object whose kind is idle, if it needs a controller and none is
    /// registered.
    pub(crate) fn warn(&self, resource: &Resource, object: &Tree, warnings: &Warnings) {
        let Some(why) = resource.idle else { return };
        if !resource.hooks.needs_controller(object) {
            return;
        }
        let key = (resource.group.clone(), resource.plural.clone());
        if !self.0.lock().contains_key(&key) {
            let kind = &resource.kind;
            warnings.add(format!(
                "{ORIGIN}: the {kind} is stored and has no effect: {why}"
            ));
        }
    }
}

/// Marks a kind as served by a controller; returned by
/// [`ApiServer::register_controller`](crate::ApiServer::register_controller).
///
/// Dropping it ends the registration.
#[derive(Debug)]
#[must_use = "the registration ends when it is dropped"]
pub struct ControllerRegistration {
    controllers: Controllers,
    kind: (String, String),
}

impl Drop for ControllerRegistration {
    fn drop(&mut self) {
        let mut running = self.controllers.0.lock();
        if let Some(count) = running.get_mut(&self.kind) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.kind);
            }
        }
    }
}
