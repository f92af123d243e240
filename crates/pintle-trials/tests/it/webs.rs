//! The custom resource of these tests: a Web has a ConfigMap with its page, and a Service.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use pintle_trials::{Check, Cx, check};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Web", namespaced)]
pub(crate) struct WebSpec {
    pub(crate) page: String,
    pub(crate) port: i32,
}

pub(crate) fn web() -> Web {
    let page = "hello".to_owned();
    Web::new("web", WebSpec { page, port: 80 })
}

pub(crate) fn map(web: &Web) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"page": web.spec.page},
        "metadata": {"name": web.name_any(), "ownerReferences": [web.controller_owner_ref(&())]},
    })
}

pub(crate) fn service(web: &Web) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": web.name_any(), "ownerReferences": [web.controller_owner_ref(&())]},
        "spec": {"ports": [{"port": web.spec.port}], "selector": {"app": web.name_any()}},
    })
}

/// Applies both children.
pub(crate) async fn sync(web: Arc<Web>, client: Client) -> Result<(), kube::Error> {
    let params = PatchParams::apply("webs").force();
    let namespace = web.namespace().unwrap_or_default();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    maps.patch(&web.name_any(), &params, &Patch::Apply(map(&web)))
        .await?;
    let services = Api::<Service>::namespaced(client, &namespace);
    services
        .patch(&web.name_any(), &params, &Patch::Apply(service(&web)))
        .await?;
    Ok(())
}

/// Returns a check of a Web that writes into `folder`.
pub(crate) fn trial<F, R>(folder: &tempfile::TempDir, controller: F) -> Check
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
{
    check(controller)
        .budget(Duration::MAX)
        .walk(&web())
        .name("web")
        .folder(folder.path())
}
