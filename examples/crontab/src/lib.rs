//! A CronTab says what to run and when; the controller keeps a CronJob that does it.

use std::time::Duration;

use k8s_openapi::api::batch::v1::CronJob;
use kube::{CustomResource, ResourceExt, api::Patch};
use pintle::{
    cache::{ObjectKey, OwnerRef},
    controller::{Action, Context, Controller, Primary, ReconcileError},
    events::{EventBroadcaster, EventRecorder, EventType},
    informer::InformerFactory,
    owner::controller_reference,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// What a user writes.
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
    /// How many of it run at once.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

fn one() -> i32 {
    1
}

/// What the controller reports.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronTabStatus {
    /// The CronJob that does the work.
    #[serde(default)]
    pub cron_job: String,
}

/// The CronJob that a CronTab asks for, owned by it: it goes when the CronTab goes.
fn cron_job(crontab: &CronTab) -> Result<CronJob, ReconcileError> {
    let CronTabSpec {
        cron_spec,
        image,
        replicas,
    } = &crontab.spec;
    let container = json!({ "name": "main", "image": image });
    let pod = json!({ "containers": [container], "restartPolicy": "OnFailure" });
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": crontab.name_any(),
            "namespace": crontab.namespace(),
            "ownerReferences": [controller_reference(crontab)?],
        },
        "spec": {
            "schedule": cron_spec,
            "jobTemplate": { "spec": { "parallelism": replicas, "template": { "spec": pod } } },
        },
    }))?)
}

/// What of a CronJob is ours to say.
fn said(job: &CronJob) -> Option<(&str, Option<&str>, Option<i32>)> {
    let schedule = &job.spec.schedule;
    let job = job.spec.job_template.spec.as_ref()?;
    let pod = job.template.spec.as_ref()?;
    let image = pod.containers.first()?.image.as_deref();
    Some((schedule, image, job.parallelism))
}

/// Compares what is with what should be, and writes only the difference.
async fn reconcile(
    key: ObjectKey,
    cx: Context,
    events: EventRecorder,
) -> Result<Action, ReconcileError> {
    // Gone, or on its way: under foreground deletion a CronTab outlives its CronJob, which must not
    // be created again.
    let Primary::Live(cached) = cx.primary::<CronTab>()? else {
        return Ok(Action::await_change());
    };
    let crontab = cached.get()?;
    let wanted = cron_job(&crontab)?;
    match cx.lister::<CronJob>()?.get(&key) {
        None => {
            cx.create(&wanted).await?;
        }
        Some(other) if other.controller_owner().map(OwnerRef::uid) != Some(cached.uid()) => {
            let message = format!("CronJob {key} exists and belongs to another controller");
            events.event(&*crontab, EventType::Warning, "CronJobExists", &message);
            return Err(ReconcileError::retry(message));
        }
        Some(ours) if said(&*ours.get()?) != said(&wanted) => {
            let patch = Patch::Merge(json!({ "spec": wanted.spec }));
            cx.patch::<CronJob, _>(&key, &patch).await?;
        }
        Some(_) => {}
    }
    let reported = crontab.status.as_ref().map(|status| &status.cron_job);
    if reported.is_none_or(|name| name != key.name()) {
        let patch = Patch::Merge(json!({ "status": { "cronJob": key.name() } }));
        cx.patch_status::<CronTab, _>(&key, &patch).await?;
    }
    Ok(Action::await_change())
}

/// Runs the controller until `shutdown`.
pub async fn run(client: kube::Client, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let events = EventBroadcaster::new();
    let _sink = events.start_recording(client.clone());
    let recorder = events.recorder("crontab");
    let informers = InformerFactory::new(client);
    let ran = Controller::<CronTab>::new("crontabs", &informers)
        .owns::<CronJob>()
        .run_by_key(
            move |key, cx| reconcile(key, cx, recorder.clone()),
            shutdown,
        )
        .await;
    let _ = events.shutdown(Duration::from_secs(5)).await; // Writes the last ones.
    ran?;
    Ok(())
}
