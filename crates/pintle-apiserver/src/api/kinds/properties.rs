//! Properties of built-in kinds that discovery does not describe.
//!
//! These are tables rather than hooks, because many of them hold for a whole API group. The
//! registry reads them once, when it registers a resource.

use crate::meta::NameRule;

/// Returns the rule for names of a built-in kind.
pub(crate) fn name_rule(group: &str, plural: &str) -> NameRule {
    match (group, plural) {
        ("", "namespaces" | "services") => NameRule::Label,
        // Event recorders derive names from the involved object, whatever its name looks like.
        ("", "events") | ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        ("networking.k8s.io", "ipaddresses") => NameRule::Address,
        _ => NameRule::Subdomain,
    }
}

/// How a kind maintains `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The kind does not use it.
    None,
    /// Set to 1 on create and never changed.
    Fixed,
    /// Starts at 1 and is bumped by every change outside metadata and status, and by changes to the
    /// named metadata field.
    Counted(Option<&'static str>),
    /// Unset on create, then bumped like `Counted`.
    CountedLater,
}

/// Returns how a built-in kind maintains `metadata.generation`.
pub(crate) fn generation(group: &str, plural: &str) -> Generation {
    match (group, plural) {
        // A Deployment's annotations are copied to its ReplicaSets, and an EndpointSlice's labels
        // name its Service, so changes to those count as well.
        ("apps", "deployments") => Generation::Counted(Some("annotations")),
        ("discovery.k8s.io", "endpointslices") => Generation::Counted(Some("labels")),
        ("scheduling.k8s.io", "priorityclasses") => Generation::Fixed,
        ("storage.k8s.io", "csidrivers") => Generation::CountedLater,
        _ if has_generation(group, plural) => Generation::Counted(None),
        _ => Generation::None,
    }
}

fn has_generation(group: &str, plural: &str) -> bool {
    match group {
        "" => matches!(plural, "pods" | "replicationcontrollers" | "podtemplates"),
        "apps" => plural != "controllerrevisions",
        "batch"
        | "policy"
        | "flowcontrol.apiserver.k8s.io"
        | "scheduling.k8s.io"
        | "admissionregistration.k8s.io"
        | "apiextensions.k8s.io" => true,
        "networking.k8s.io" => {
            matches!(plural, "ingresses" | "ingressclasses" | "networkpolicies")
        }
        "resource.k8s.io" => matches!(plural, "resourceslices" | "deviceclasses"),
        _ => false,
    }
}

/// Returns true for kinds whose deletion returns the object instead of a Status.
pub(crate) fn returns_deleted(group: &str, plural: &str) -> bool {
    match group {
        "" => matches!(
            plural,
            "pods"
                | "services"
                | "serviceaccounts"
                | "podtemplates"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
                | "namespaces"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => plural != "csistoragecapacities",
        _ => false,
    }
}

/// Returns true for kinds whose updates may omit the `resourceVersion`.
pub(crate) fn updates_unconditionally(group: &str, plural: &str) -> bool {
    match group {
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "coordination.k8s.io"
        | "node.k8s.io"
        | "policy" => false,
        "storage.k8s.io" => matches!(plural, "storageclasses" | "volumeattributesclasses"),
        _ => true,
    }
}

/// Returns true for kinds whose PUT creates a missing object.
pub(crate) fn creates_on_update(group: &str, plural: &str) -> bool {
    match group {
        "" => matches!(plural, "endpoints" | "events" | "limitranges" | "services"),
        "events.k8s.io" | "coordination.k8s.io" | "node.k8s.io" | "rbac.authorization.k8s.io" => {
            true
        }
        _ => false,
    }
}
