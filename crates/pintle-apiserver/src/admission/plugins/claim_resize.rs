//! `PersistentVolumeClaimResize`: only a bound claim of a class that allows it can grow.

use serde_json::Value;

use super::{cluster_object, refused, tree_value};
use crate::{
    admission::{Operation, Plugin, Request},
    api::{Api, ApiError},
    meta::Tree,
    quota::{amounts, claim_class},
};

#[derive(Debug)]
pub(crate) struct ClaimResize;

impl Plugin for ClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validates(&self, _: &Api, request: &Request<'_>) -> bool {
        request.operation == Operation::Update
            && request.sub.is_empty()
            && request.is_for("", "persistentvolumeclaims")
    }

    fn check(&self, api: &Api, request: &Request<'_>, new: &Tree) -> Result<(), ApiError> {
        let old = request.old;
        let why = old.and_then(|old| problem(api, &tree_value(new), &tree_value(old)));
        why.map_or(Ok(()), |why| Err(refused(request, Some(new), why)))
    }
}

fn problem(api: &Api, new: &Value, old: &Value) -> Option<&'static str> {
    let size = |claim: &Value| {
        let requests = amounts(&claim["spec"]["resources"]["requests"]);
        requests.get("storage").cloned()
    };
    if size(new) <= size(old) {
        return None;
    }
    if old["status"]["phase"] != "Bound" {
        return Some("Only bound persistent volume claims can be expanded");
    }
    let name = claim_class(new);
    let found = (!name.is_empty() && name == claim_class(old))
        .then(|| cluster_object(api, "storage.k8s.io", "storageclasses", name))
        .flatten();
    if found.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return None;
    }
    Some(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the \
         pvc must support resize",
    )
}
