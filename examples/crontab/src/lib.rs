//! A CronTab says what to run and when; the controller maintains a CronJob that does it.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::CronJob;
use kube::{CustomResource, ResourceExt};
use pintle::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The desired state.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "CronTab",
    plural = "crontabs",
    singular = "crontab",
    shortname = "ct",
    namespaced,
    status = "CronTabStatus",
    printcolumn = r#"{"name":"Spec","type":"string","jsonPath":".spec.cronSpec"}"#,
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"CronJob","type":"string","jsonPath":".status.cronJob"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CronTabSpec {
    /// When to run: minute, hour, day of the month, month, day of the week.
    #[schemars(regex(pattern = r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"))]
    pub cron_spec: String,
    /// The image to run.
    pub image: String,
    /// The number of Pods to run in parallel.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

fn one() -> i32 {
    1
}

/// The observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronTabStatus {
    /// The name of the CronJob.
    #[serde(default)]
    pub cron_job: String,
}

/// Builds the CronJob of a CronTab.
fn cron_job(crontab: &CronTab) -> serde_json::Result<CronJob> {
    let CronTabSpec {
        cron_spec,
        image,
        replicas,
    } = &crontab.spec;
    let container = json!({ "name": "main", "image": image });
    let pod = json!({ "containers": [container], "restartPolicy": "OnFailure" });
    serde_json::from_value(json!({
        "metadata": { "name": crontab.name_any() },
        "spec": {
            "schedule": cron_spec,
            "jobTemplate": { "spec": { "parallelism": replicas, "template": { "spec": pod } } },
        },
    }))
}

/// Creates or updates the CronJob of a CronTab and reports it in the status.
async fn reconcile(crontab: Arc<CronTab>, cx: Context) -> Result<Action, ReconcileError> {
    let job = match cx.apply_owned(cron_job(&crontab)?).await {
        Ok(job) => job,
        Err(error) => {
            if error.is_foreign() {
                cx.event(EventType::Warning, "CronJobExists", error.to_string());
            }
            return Err(error.into()); // Retried with back-off.
        }
    };
    let status = CronTabStatus {
        cron_job: job.name_any(),
    };
    cx.update_status(&*crontab, &status).await?;
    Ok(Action::await_change())
}

/// Runs the controller until `shutdown` is cancelled.
pub async fn run(client: kube::Client, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let informers = InformerFactory::new(client);
    Controller::<CronTab>::new("crontab", &informers)
        .owns::<CronJob>()
        .run(reconcile, shutdown)
        .await?;
    Ok(())
}
