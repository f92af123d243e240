//! Manifests to run the controller inside a cluster: a least-privilege service account and a
//! Deployment with one replica.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy},
        core::v1::{
            Capabilities, Container, ContainerPort, HTTPGetAction, Namespace, PodSecurityContext,
            PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use pintle::rbac::{Account, Manifests};
use serde::Serialize;
use serde_json::Value;

use crate::controller::{self, NAME};

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

/// The namespace and image to run the controller with.
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
    let mut objects = vec![object("v1", "Namespace", &namespace)?];
    objects.extend(rbac(&placement.namespace).objects()?);
    objects.push(object("apps/v1", "Deployment", &deployment(placement))?);
    Ok(objects)
}

/// Returns the service account with exactly the permissions that the controller needs.
pub fn rbac(namespace: &str) -> Manifests {
    let labels = labels().into_iter();
    let account = Account::new(NAME, namespace);
    let account = labels.fold(account, |account, (name, value)| account.label(name, value));
    controller::rules().manifests(&account)
}

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
