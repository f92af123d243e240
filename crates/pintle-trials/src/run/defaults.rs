//! A mutating webhook that adds defaults to everything the controller writes, as service meshes and
//! cost tools do.

use pintle_apiserver::{AdmissionRequest, AdmissionResponse, Webhook};
use serde_json::{Value, json};

use crate::{canonical::DEFAULTED, gateway::request::ResourceName, hub::Hub, process::USER};

/// Registers the webhook until the end of the scenario. Returns whether that worked.
pub(super) fn register(hub: &Hub) -> bool {
    let kinds: Vec<ResourceName> = hub
        .steps
        .iter()
        .map(|step| step.object().kind.resource.clone())
        .collect();
    let webhook = Webhook::mutating("defaults.trials.pintle.dev", move |request| {
        let response = answer(&kinds, &request);
        async move { response }
    })
    .rule(["CREATE", "UPDATE"], ["*"], ["*"], ["*"]);
    let registered = hub.server.register_webhook(&webhook);
    let done = registered.is_ok();
    hub.webhooks.lock().extend(registered.ok());
    done
}

/// Adds an annotation to a child of the controller, and to its Pod template.
fn answer(kinds: &[ResourceName], request: &AdmissionRequest) -> AdmissionResponse {
    let resource = ResourceName {
        group: request.as_value()["resource"]["group"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        plural: request.resource().to_owned(),
    };
    let is_child = request.user() == USER
        && !kinds.contains(&resource)
        && !crate::gateway::request::is_bookkeeping(&resource);
    if !is_child {
        return AdmissionResponse::allow();
    }
    let object = request.object();
    let mut patch = annotate(&object["metadata"], "/metadata");
    let template = &object["spec"]["template"];
    // Change a template only when its workload is created, so that running workloads stay as they
    // are.
    let is_workload = resource.group == "apps" && resource.plural != "replicasets";
    if template.is_object() && request.operation() == "CREATE" && is_workload {
        patch.extend(annotate(&template["metadata"], "/spec/template/metadata"));
    }
    if patch.is_empty() {
        return AdmissionResponse::allow();
    }
    AdmissionResponse::allow().patch(patch.into())
}

fn annotate(meta: &Value, path: &str) -> Vec<Value> {
    let present = &meta["annotations"];
    if !present[DEFAULTED].is_null() {
        return Vec::new();
    }
    let mut annotations = present.as_object().cloned().unwrap_or_default();
    annotations.insert(DEFAULTED.to_owned(), "true".into());
    vec![json!({"op": "add", "path": format!("{path}/annotations"), "value": annotations})]
}
