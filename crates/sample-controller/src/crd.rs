//! The CustomResourceDefinition of Foo.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::foo::Foo;

/// Groups under `k8s.io` need somebody's approval, or to say that they have none.
const APPROVAL: (&str, &str) = (
    "api-approved.kubernetes.io",
    "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups",
);

/// Foo's CRD; `classic` is the form without the status subresource.
pub fn definition(classic: bool) -> CustomResourceDefinition {
    let mut crd = Foo::crd();
    let (name, text) = APPROVAL;
    crd.metadata.annotations = Some(BTreeMap::from([(name.to_owned(), text.to_owned())]));
    if classic {
        for version in &mut crd.spec.versions {
            version.subresources = None;
        }
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves sample/foo-compatible.
    #[test]
    fn both_forms_serve_the_original_kind() {
        for (classic, subresources) in [(false, true), (true, false)] {
            let crd = definition(classic);
            assert_eq!(
                crd.metadata.name.as_deref(),
                Some("foos.samplecontroller.k8s.io")
            );
            assert_eq!(crd.spec.scope, "Namespaced");
            let version = &crd.spec.versions[0];
            assert_eq!(version.name, "v1alpha1");
            assert_eq!(version.subresources.is_some(), subresources);
            let schema = serde_json::to_value(&version.schema).expect("plain data");
            let schema = &schema["openAPIV3Schema"]["properties"];
            let replicas = &schema["spec"]["properties"]["replicas"];
            assert_eq!(
                (replicas["minimum"].as_f64(), replicas["maximum"].as_f64()),
                (Some(1.0), Some(10.0))
            );
            assert_eq!(
                schema["spec"]["required"],
                serde_json::Value::Null,
                "nothing is required"
            );
            assert_eq!(
                schema["status"]["properties"]["availableReplicas"]["type"],
                "integer"
            );
        }
    }
}
