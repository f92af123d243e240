//! Manifests to run the controller inside a cluster: a least-privilege service account and a
//! Deployment with one replica.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy},
        core::v1::{
            Capabilities, Container, ContainerPort, HTTPGetAction, Namespace, PodSecurityContext,
            PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext,
            ServiceAccount,
        },
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use serde::Serialize;
use serde_json::Value;

use crate::controller::NAME;

/// The default namespace of the controller.
pub const NAMESPACE: &str = NAME;

/// The default image of the controller.
pub const IMAGE: &str = concat!("sample-controller:", env!("CARGO_PKG_VERSION"));

/// The path of the program in the image.
pub const PROGRAM: &str = "/sample-controller";

/// The UID and GID the program runs as: `nonroot` in the image.
pub const USER: i64 = 65532;

/// The port of probes and metrics.
pub const PORT: u16 = 8080;

/// Where and from which image the controller runs.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The namespace of the Deployment and the service account.
    pub namespace: String,
    /// The container image.
    pub image: String,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            image: IMAGE.to_owned(),
        }
    }
}

/// Returns all manifests as one YAML stream, in the order to apply them.
///
/// # Errors
///
/// Fails if an object cannot be serialized.
pub fn yaml(placement: &Placement) -> anyhow::Result<String> {
    let documents = objects(placement)?;
    let documents = documents.iter().map(serde_saphyr::to_string);
    Ok(documents.collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

/// Returns all manifests in the order to apply them.
///
/// # Errors
///
/// Fails if an object cannot be serialized.
pub fn objects(placement: &Placement) -> serde_json::Result<Vec<Value>> {
    let namespace = Namespace {
        metadata: cluster_wide(&placement.namespace),
        ..Namespace::default()
    };
    let account = ServiceAccount {
        metadata: namespaced(placement),
        ..ServiceAccount::default()
    };
    Ok(vec![
        object("v1", "Namespace", &namespace)?,
        object("v1", "ServiceAccount", &account)?,
        object(RBAC, "ClusterRole", &role())?,
        object(RBAC, "ClusterRoleBinding", &binding(placement))?,
        object("apps/v1", "Deployment", &deployment(placement))?,
    ])
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Adds `apiVersion` and `kind`, which typed objects do not serialize.
fn object(api_version: &str, kind: &str, object: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::json!({ "apiVersion": api_version, "kind": kind });
    if let (Value::Object(whole), Value::Object(fields)) =
        (&mut value, serde_json::to_value(object)?)
    {
        whole.extend(fields);
    }
    Ok(value)
}

/// Returns a role that allows exactly the requests the controller makes.
pub fn role() -> ClusterRole {
    let foo_group = "samplecontroller.k8s.io";
    let on_deployments = &["list", "watch", "create", "patch", "delete"];
    let rules = vec![
        rule(foo_group, "foos", &["list", "watch"]),
        rule(foo_group, "foos/status", &["patch"]),
        // Clusters with the admission plugin OwnerReferencesPermissionEnforcement require this for
        // setting `blockOwnerDeletion`.
        rule(foo_group, "foos/finalizers", &["update"]),
        rule("apps", "deployments", on_deployments),
        rule("events.k8s.io", "events", &["create", "patch"]),
    ];
    ClusterRole {
        metadata: cluster_wide(NAME),
        rules: Some(rules),
        ..ClusterRole::default()
    }
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

fn binding(placement: &Placement) -> ClusterRoleBinding {
    ClusterRoleBinding {
        // Named after the namespace, so that two installations do not share a binding.
        metadata: cluster_wide(&format!("{NAME}:{}", placement.namespace)),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: NAME.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: NAME.to_owned(),
            namespace: Some(placement.namespace.clone()),
            ..Subject::default()
        }]),
    }
}

/// A second replica would be harmless but useless, so an update stops the old Pod first.
fn deployment(placement: &Placement) -> Deployment {
    Deployment {
        metadata: namespaced(placement),
        spec: Some(DeploymentSpec {
            replicas: Some(1),
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".to_owned()),
                ..DeploymentStrategy::default()
            }),
            selector: LabelSelector {
                match_labels: Some(labels()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(placement)),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn pod(placement: &Placement) -> PodSpec {
    PodSpec {
        service_account_name: Some(NAME.to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container(placement)],
        ..PodSpec::default()
    }
}

fn container(placement: &Placement) -> Container {
    let quantities = |cpu: Option<&str>, memory: &str| {
        let cpu = cpu.map(|cpu| ("cpu".to_owned(), Quantity(cpu.to_owned())));
        let memory = ("memory".to_owned(), Quantity(memory.to_owned()));
        Some(cpu.into_iter().chain([memory]).collect::<BTreeMap<_, _>>())
    };
    Container {
        name: NAME.to_owned(),
        image: Some(placement.image.clone()),
        args: Some(vec![
            format!("--bind=0.0.0.0:{PORT}"),
            "--log-json".to_owned(),
            "-v".to_owned(),
        ]),
        ports: Some(vec![ContainerPort {
            name: Some("probes".to_owned()),
            container_port: PORT.into(),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(probe("/healthz")),
        readiness_probe: Some(probe("/readyz")),
        resources: Some(ResourceRequirements {
            requests: quantities(Some("10m"), "32Mi"),
            limits: quantities(None, "128Mi"),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("probes".to_owned()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())])
}

fn cluster_wide(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels()),
        ..ObjectMeta::default()
    }
}

fn namespaced(placement: &Placement) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(placement.namespace.clone()),
        ..cluster_wide(NAME)
    }
}
