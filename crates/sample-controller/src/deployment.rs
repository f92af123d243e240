//! Builds the Deployment a Foo asks for.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt;
use pintle::owner::{OwnerError, controller_reference};

use crate::foo::Foo;

/// Builds the Deployment of `foo`, with `foo` as its controller.
///
/// # Errors
///
/// Fails if `foo` has no UID because it was never stored.
pub fn new_deployment(foo: &Foo) -> Result<Deployment, OwnerError> {
    let owner = controller_reference(foo)?;
    let labels = BTreeMap::from([
        ("app".to_owned(), "nginx".to_owned()),
        ("controller".to_owned(), foo.name_any()),
    ]);
    let container = Container {
        name: "nginx".to_owned(),
        image: Some("nginx:latest".to_owned()),
        ..Container::default()
    };
    Ok(Deployment {
        metadata: ObjectMeta {
            name: Some(foo.spec.deployment_name.clone()),
            namespace: foo.namespace(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: foo.spec.replicas,
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![container],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foo::FooSpec;

    fn stored_foo() -> Foo {
        let mut foo = Foo::new(
            "a",
            FooSpec {
                deployment_name: "web".into(),
                replicas: Some(3),
            },
        );
        foo.metadata.namespace = Some("default".into());
        foo.metadata.uid = Some("u-1".into());
        foo
    }

    /// Proves sample/deployment.
    #[test]
    fn deployment_matches_upstream() {
        let deployment = new_deployment(&stored_foo()).expect("the Foo has a UID");
        let owner = &deployment.owner_references()[0];
        assert_eq!(owner.api_version, "samplecontroller.k8s.io/v1alpha1");
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Foo", "a"));
        assert_eq!(
            (owner.controller, owner.block_owner_deletion),
            (Some(true), Some(true))
        );
        let spec = deployment.spec.expect("a spec");
        assert_eq!(spec.replicas, Some(3));
        let labels = spec.selector.match_labels.expect("labels");
        assert_eq!(labels["app"], "nginx");
        assert_eq!(labels["controller"], "a");
        assert_eq!(spec.template.metadata.and_then(|m| m.labels), Some(labels));
        let containers = spec.template.spec.expect("a pod").containers;
        assert_eq!(containers[0].image.as_deref(), Some("nginx:latest"));
    }

    #[test]
    fn foo_without_uid_is_rejected() {
        assert!(new_deployment(&Foo::new("a", FooSpec::default())).is_err());
    }
}
