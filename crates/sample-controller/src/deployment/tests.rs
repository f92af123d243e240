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
