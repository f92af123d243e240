//! Tests the controller on an in-process cluster, under virtual time.

use std::time::Duration;

use crontab::CronTab;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use pintle_cluster::Cluster;
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn cron_job_follows_its_crontab() -> anyhow::Result<()> {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    crds.create(&PostParams::default(), &CronTab::crd()).await?;
    let shutdown = CancellationToken::new();
    let (controller_client, stop) = (client.clone(), shutdown.clone());
    let controller = tokio::spawn(async move { crontab::run(controller_client, &stop).await });

    let crontabs = Api::<CronTab>::default_namespaced(client.clone());
    let nightly = serde_json::from_value(json!({
        "metadata": { "name": "nightly" },
        "spec": { "cronSpec": "0 3 * * *", "image": "cleaner" },
    }))?;
    crontabs.create(&PostParams::default(), &nightly).await?;
    tokio::time::sleep(Duration::from_secs(5)).await; // Takes no time: the clock is virtual.
    let jobs = Api::<CronJob>::default_namespaced(client);
    let schedule = async || anyhow::Ok(jobs.get("nightly").await?.spec.schedule);
    assert_eq!(schedule().await?, "0 3 * * *");

    let hourly = Patch::Merge(json!({ "spec": { "cronSpec": "0 * * * *" } }));
    crontabs
        .patch("nightly", &PatchParams::default(), &hourly)
        .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(schedule().await?, "0 * * * *");

    shutdown.cancel();
    controller.await?
}
