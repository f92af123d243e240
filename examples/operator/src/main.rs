//! An operator with three controllers, as a team would deploy it: any number of replicas, one of
//! them active, with probes, metrics and traces.
//!
//! `operator` runs it. `operator manifests` prints its CRD and the permissions it needs, for
//! `kubectl apply -f -`.

#![allow(clippy::print_stdout, reason = "prints to the terminal")]

mod telemetry;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use jiff::ToSpan;
use k8s_openapi::{
    api::{
        apps::v1::Deployment, core::v1::Namespace, core::v1::Pod, networking::v1::NetworkPolicy,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use pintle::{
    client::{self, Target},
    controller::{Action, Context, Controller, Primary, ReconcileError},
    manager::{Builder, Manager},
    rbac::{Account, Rules, Verb},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, json};

/// A web site: an image, and how many copies of it run.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced)]
#[kube(status = "SiteStatus")]
struct SiteSpec {
    image: String,
    replicas: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SiteStatus {
    observed_generation: Option<i64>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Runs every `Site` as a Deployment, and reports when it is rolled out.
async fn run_site(site: Arc<Site>, cx: Context) -> Result<Action, ReconcileError> {
    let labels = json!({"site": site.name_any()});
    let deployment: Deployment = from_value(json!({
        "metadata": {"name": site.name_any()},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "site", "image": site.spec.image}]},
            },
        },
    }))?;
    let children = cx.apply_set().child(deployment).await?;
    let readiness = children.readiness(cx.clock().now());
    cx.report(&*site, readiness).await?;
    Ok(Action::await_change())
}

/// Denies all traffic in namespaces while they are labelled `isolated=true`.
async fn isolate(namespace: Arc<Namespace>, cx: Context) -> Result<Action, ReconcileError> {
    let mut children = cx.apply_set();
    if namespace
        .labels()
        .get("isolated")
        .is_some_and(|value| value == "true")
    {
        let metadata = json!({"name": "deny-all", "namespace": namespace.name_any()});
        let policy = json!({"metadata": metadata, "spec": {"podSelector": {}}});
        children = children.child(from_value::<NetworkPolicy>(policy)?);
    }
    children.await?;
    Ok(Action::await_change())
}

/// Deletes Pods an hour after they have finished.
async fn sweep(pod: Arc<Pod>, cx: Context) -> Result<Action, ReconcileError> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default().into_iter();
    let ends = containers.map(|one| Some(one.state?.terminated?.finished_at?.0));
    let Some(end) = ends
        .collect::<Option<Vec<_>>>()
        .and_then(|all| all.into_iter().max())
    else {
        return Ok(Action::await_change());
    };
    let left = (end + 1.hour()).duration_since(cx.clock().now());
    if left.is_positive() {
        return Ok(Action::requeue_after(Duration::try_from(left)?));
    }
    if let Primary::Live(pod) = cx.primary::<Pod>()? {
        cx.delete(&pod).await?;
    }
    Ok(Action::await_change())
}

/// Where the operator and its Lease live.
const NAMESPACE: &str = "operator-system";

/// Builds the manager with all controllers.
fn operator(builder: Builder) -> Manager {
    let mut manager = builder
        .leader_election_with(|election| election.namespace(NAMESPACE))
        .version(env!("CARGO_PKG_VERSION"))
        .build();
    let sites = Controller::<Site>::new("sites", manager.informers())
        .owns::<Deployment>()
        .declares(Rules::new().applies_sets::<Deployment>().reports::<Site>())
        .workers(4);
    manager.add(sites.build(run_site));
    let isolation = Controller::<Namespace>::new("isolation", manager.informers())
        .owns::<NetworkPolicy>()
        .declares(Rules::new().applies_sets::<NetworkPolicy>());
    manager.add(isolation.build(isolate));
    let sweeper = Controller::<Pod>::new("sweeper", manager.informers())
        .declares(Rules::new().writes::<Pod>([Verb::Delete]));
    manager.add(sweeper.build(sweep));
    manager
}

/// Returns the CRD, and the permissions that the controllers need.
fn manifests() -> serde_json::Result<Value> {
    let rules = operator(Manager::builder("operator", client::offline())).rules();
    let mut objects = rules
        .manifests(&Account::new("operator", NAMESPACE))
        .objects()?;
    objects.push(serde_json::to_value(Site::crd())?);
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": objects}))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("manifests") {
        println!("{:#}", manifests()?);
        return Ok(());
    }
    let _traces = telemetry::install();
    let client = Target::from_env().await?.client("operator/0.1")?;
    let builder = Manager::builder("operator", client).probes("0.0.0.0:8080");
    operator(builder).run().await?;
    Ok(())
}
