use super::*;

/// Proves sample/foo-compatible.
#[test]
fn crd_accepts_every_upstream_foo() {
    let crd = definition();
    assert_eq!(
        crd.metadata.name.as_deref(),
        Some("foos.samplecontroller.k8s.io")
    );
    assert_eq!(crd.spec.scope, "Namespaced");
    let version = &crd.spec.versions[0];
    assert_eq!(version.name, "v1alpha1");
    assert!(version.subresources.is_some());
    let schema = serde_json::to_value(&version.schema).expect("plain data");
    let schema = &schema["openAPIV3Schema"]["properties"];
    let spec = &schema["spec"];
    let replicas = &spec["properties"]["replicas"];
    assert_eq!(
        (replicas["minimum"].as_f64(), replicas["maximum"].as_f64()),
        (Some(1.0), Some(10.0))
    );
    assert_eq!(spec["required"], serde_json::Value::Null);
    let status = &schema["status"]["properties"];
    assert_eq!(status["availableReplicas"]["type"], "integer");
}
