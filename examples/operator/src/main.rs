//! An operator with three controllers, as a team would deploy it: any number of replicas, one of
//! which works, with probes, metrics and traces.
//!
//! `operator crd` prints the CRD, `operator rbac` the rights it needs, and `operator` runs it.

#![allow(clippy::print_stdout, reason = "prints to the terminal")]

mod telemetry;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod},
    networking::v1::{NetworkPolicy, NetworkPolicySpec},
};
use kube::{Client, Config, CustomResource, CustomResourceExt, ResourceExt};
use pintle::{
    client::Target,
    conditions::Readiness,
    controller::{Action, Context, Controller, ReconcileError},
    manager::{Builder, Manager},
    rbac::{Account, Rules, Verb},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A web site: an image, and how many copies of it run.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced)]
#[kube(status = "SiteStatus", derive = "PartialEq")]
#[derive(PartialEq)]
struct SiteSpec {
    image: String,
    replicas: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SiteStatus {
    observed_generation: Option<i64>,
    #[serde(default)]
    conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

/// Runs every `Site` as a Deployment, and reports when all its replicas are available.
async fn run_site(site: Arc<Site>, cx: Context) -> Result<Action, ReconcileError> {
    let labels = BTreeMap::from([("site", site.name_any())]);
    let deployment = json!({
        "metadata": {"name": site.name_any()},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "site", "image": site.spec.image}]},
            },
        },
    });
    let deployment: Deployment = serde_json::from_value(deployment)?;
    let deployment = cx.apply_owned(deployment).await?;
    let status = deployment.status.as_ref();
    let available = status
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    let readiness = if available < site.spec.replicas {
        let message = format!(
            "{available} of {} replicas are available",
            site.spec.replicas
        );
        Readiness::in_progress("RollingOut", message)
    } else {
        Readiness::ready("Available", "")
    };
    cx.report(&*site, readiness).await?;
    Ok(Action::await_change())
}

/// Denies all traffic in namespaces labelled `isolated=true`.
async fn isolate(namespace: Arc<Namespace>, cx: Context) -> Result<Action, ReconcileError> {
    if namespace
        .labels()
        .get("isolated")
        .is_some_and(|value| value == "true")
    {
        let mut policy = NetworkPolicy::default();
        policy.metadata.name = Some("deny-all".to_owned());
        policy.metadata.namespace = Some(namespace.name_any());
        policy.spec = Some(NetworkPolicySpec::default());
        cx.apply_owned(policy).await?;
    }
    Ok(Action::await_change())
}

/// Deletes Pods an hour after they have finished.
async fn sweep(pod: Arc<Pod>, cx: Context) -> Result<Action, ReconcileError> {
    let finished = pod.status.as_ref().and_then(|status| {
        let containers = status.container_statuses.as_ref()?;
        let ends = containers
            .iter()
            .map(|one| one.state.as_ref()?.terminated.as_ref()?.finished_at.clone());
        ends.collect::<Option<Vec<_>>>()?
            .into_iter()
            .map(|end| end.0)
            .max()
    });
    let Some(finished) = finished else {
        return Ok(Action::await_change());
    };
    let due = finished + 1.hour();
    let now: Timestamp = cx.clock().now();
    if now < due {
        let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        return Ok(Action::requeue_after(wait));
    }
    if let Some(cached) = cx.lister::<Pod>()?.get(cx.key()) {
        cx.delete(&cached).await?;
    }
    Ok(Action::await_change())
}

/// Where the operator and its Lease live.
const NAMESPACE: &str = "operator-system";

/// Puts the operator together.
fn operator(client: Client, configure: impl FnOnce(Builder) -> Builder) -> Manager {
    let builder = Manager::builder("operator", client)
        .leader_election_with(|election| election.namespace(NAMESPACE))
        .version(env!("CARGO_PKG_VERSION"));
    let mut manager = configure(builder).build();
    let sites = Controller::<Site>::new("sites", manager.informers())
        .owns::<Deployment>()
        .declares(Rules::new().applies::<Deployment>().reports::<Site>())
        .workers(4);
    manager.add(sites.build(run_site));
    let isolation = Controller::<Namespace>::new("isolation", manager.informers())
        .owns::<NetworkPolicy>()
        .declares(Rules::new().applies::<NetworkPolicy>());
    manager.add(isolation.build(isolate));
    let sweeper = Controller::<Pod>::new("sweeper", manager.informers())
        .declares(Rules::new().writes::<Pod>([Verb::Delete]));
    manager.add(sweeper.build(sweep));
    manager
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("crd") => print!("{}", serde_saphyr::to_string(&Site::crd())?),
        Some("rbac") => {
            // Nothing is sent, so any address will do.
            let nowhere = Client::try_from(Config::new("http://localhost".parse()?))?;
            let rules = operator(nowhere, |builder| builder).rules();
            for object in rules
                .manifests(&Account::new("operator", NAMESPACE))
                .objects()?
            {
                println!("---\n{}", serde_saphyr::to_string(&object)?);
            }
        }
        _ => {
            let traces = telemetry::install();
            let target = Target::named(None, None).await?;
            let target = target.context("no cluster configured: set KUBECONFIG")?;
            let client = target.client("operator/0.1")?;
            let manager = operator(client, |builder| builder.probes("0.0.0.0:8080"));
            manager.run().await?;
            traces.map(|traces| traces.shutdown()).transpose()?;
        }
    }
    Ok(())
}
