//! A WebApp is a page, an image that serves it, and a Secret the image needs. The operator
//! maintains a ConfigMap, a Deployment and a Service for it, restarts it when the Secret changes,
//! and registers a DNS name that is removed with the WebApp.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret, Service},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{Client, CustomResource, ResourceExt};
use parking_lot::Mutex;
use pintle::{
    cache::ObjectKey,
    conditions::NewCondition,
    controller::{ApplyError, ErrorAction},
    prelude::*,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The desired state.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "web.example.com", version = "v1", kind = "WebApp", namespaced)]
#[kube(status = "WebAppStatus")]
#[serde(rename_all = "camelCase")]
pub struct WebAppSpec {
    /// The image that serves the page on port 8080.
    pub image: String,
    /// The page.
    pub page: String,
    /// The number of Pods.
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// The Secret whose entries are the environment of the Pods.
    pub secret_name: String,
}

/// The observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct WebAppStatus {
    /// `Ready`: whether all Pods are available.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A fake DNS provider: the WebApps that have a name there.
#[derive(Clone, Debug, Default)]
pub struct Dns(pub Arc<Mutex<BTreeSet<ObjectKey>>>);

/// Runs the operator until `shutdown` is cancelled.
pub async fn run(client: Client, dns: Dns, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let informers = InformerFactory::new(client);
    Controller::new("webapp-operator", &informers)
        .state(dns)
        .owns::<ConfigMap>()
        .owns::<Deployment>()
        .owns::<Service>()
        .watches_referenced::<Secret>("/spec/secretName")
        .finalizer("web.example.com/dns", clean_up)
        .run(reconcile, shutdown)
        .await?;
    Ok(())
}

/// Reconciles a WebApp: its children, its DNS name and its status. Reports errors that the author
/// of the WebApp has to fix.
async fn reconcile(webapp: Arc<WebApp>, cx: Context<Dns>) -> Result<Action, ReconcileError> {
    let result = sync(&webapp, &cx).await;
    if let Err(error) = &result
        && error.action() != ErrorAction::Retry
    {
        let why = error.get_ref();
        cx.report_error(&*webapp, "Ready", "NotApplied", why)
            .await?;
    }
    result.map(|()| Action::await_change())
}

async fn sync(webapp: &WebApp, cx: &Context<Dns>) -> Result<(), ReconcileError> {
    let (name, spec) = (webapp.name_any(), &webapp.spec);
    let key = ObjectKey::new(cx.key().namespace(), &spec.secret_name);
    let Some(secret) = cx.lister::<Secret>()?.get(&key) else {
        // Not retried: the watch reports when the Secret is created.
        let missing = format!("Secret {:?} does not exist", spec.secret_name);
        return Err(ReconcileError::terminal(missing));
    };
    let config: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": name },
        "data": { "index.html": spec.page },
    }))?;
    let labels = json!({ "app": name });
    // A new version of the Secret changes the Pod template, so the Pods restart.
    let annotations = json!({ "web.example.com/secret-version": secret.resource_version() });
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": {
                    "containers": [{
                        "name": "web",
                        "image": spec.image,
                        "envFrom": [{ "secretRef": { "name": spec.secret_name } }],
                        "ports": [{ "containerPort": 8080 }],
                        "volumeMounts": [{ "name": "page", "mountPath": "/srv" }],
                    }],
                    "volumes": [{ "name": "page", "configMap": { "name": name } }],
                },
            },
        },
    }))?;
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
    }))?;
    let config = cx.apply_owned(config).await.map_err(refused)?;
    let deployment = cx.apply_owned(deployment).await.map_err(refused)?;
    let service = cx.apply_owned(service).await.map_err(refused)?;
    cx.0.lock().insert(cx.key().clone());
    if config.is_changed() || deployment.is_changed() || service.is_changed() {
        cx.event(EventType::Normal, "Applied", format!("Applied {name}"));
    }
    let status = deployment.status.as_ref();
    let available = status.and_then(|status| status.available_replicas);
    let (available, wanted) = (available.unwrap_or(0), spec.replicas);
    let is_ready = available >= wanted;
    let reason = if is_ready { "Available" } else { "Progressing" };
    let message = format!("{available} of {wanted} Pods are available");
    let ready = NewCondition::new("Ready", is_ready, reason, message);
    cx.set_condition(webapp, ready).await?;
    Ok(())
}

/// Waits a minute if the name is taken: no watch reports when it becomes free.
fn refused(error: ApplyError) -> ReconcileError {
    if error.is_foreign() {
        return ReconcileError::retry_after(error, Duration::from_secs(60));
    }
    error.into()
}

/// Removes the DNS name, which the garbage collector does not know about.
async fn clean_up(_: Arc<WebApp>, cx: Context<Dns>) -> Result<(), ReconcileError> {
    cx.0.lock().remove(cx.key());
    Ok(())
}
