//! The CustomResourceDefinition of Foo.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::foo::Foo;

/// The API server rejects CRDs in `*.k8s.io` groups without this annotation.
const APPROVAL: (&str, &str) = (
    "api-approved.kubernetes.io",
    "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups",
);

/// Returns the CRD of Foo.
pub fn definition() -> CustomResourceDefinition {
    let mut crd = Foo::crd();
    let (name, text) = APPROVAL;
    crd.metadata.annotations = Some(BTreeMap::from([(name.to_owned(), text.to_owned())]));
    crd
}

#[cfg(test)]
mod tests {
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
}
