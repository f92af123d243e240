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
mod tests;
