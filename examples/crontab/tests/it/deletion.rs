//! Deletion of `CronTab`s, and `CronJob`s of other controllers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crontab::CronTab;
use http::{Method, Request};
use k8s_openapi::{
    api::{batch::v1::CronJob, core::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    client::Body,
};
use pintle_cluster::Cluster;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A cluster with a running controller, and a counter of its applies of a `CronJob`.
struct World {
    cluster: Cluster,
    applies: Arc<AtomicUsize>,
    _stop: tokio_util::sync::DropGuard,
}

impl World {
    async fn new() -> Self {
        let cluster = Cluster::start().await;
        let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
        let definition = CronTab::crd();
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        let applies = Arc::new(AtomicUsize::new(0));
        let (inner, count) = (cluster.client(), Arc::clone(&applies));
        let counting = tower::service_fn(move |request: Request<Body>| {
            let job = request.uri().path().contains("/cronjobs/");
            if request.method() == Method::PATCH && job {
                count.fetch_add(1, Ordering::SeqCst);
            }
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        let client = Client::new(counting, "default");
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { crontab::run(client, &stopped).await });
        Self {
            cluster,
            applies,
            _stop: stop.drop_guard(),
        }
    }

    async fn create_crontab(&self) {
        let crontab = json!({
            "metadata": { "name": "nightly" },
            "spec": { "cronSpec": "0 3 * * *", "image": "cleaner" },
        });
        let crontab = serde_json::from_value(crontab).unwrap();
        let crontabs = self.api::<CronTab>();
        crontabs
            .create(&PostParams::default(), &crontab)
            .await
            .unwrap();
        sleep(Duration::from_secs(5)).await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.cluster.client())
    }
}

/// Proves controller/deletion-visible.
#[tokio::test(start_paused = true)]
async fn foreground_deletion_does_not_recreate_the_cron_job() {
    let world = World::new().await;
    world.create_crontab().await;
    assert!(
        world
            .api::<CronJob>()
            .get_opt("nightly")
            .await
            .unwrap()
            .is_some()
    );
    let crontabs = world.api::<CronTab>();
    let foreground = DeleteParams::foreground();
    crontabs.delete("nightly", &foreground).await.unwrap();
    sleep(Duration::from_mins(1)).await;
    assert!(crontabs.get_opt("nightly").await.unwrap().is_none(), "gone");
    assert!(
        world
            .api::<CronJob>()
            .get_opt("nightly")
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(world.applies.load(Ordering::SeqCst), 1, "applied once");
}

#[tokio::test(start_paused = true)]
async fn cron_job_of_another_controller_is_reported() {
    let world = World::new().await;
    let pod = json!({
        "containers": [{ "name": "main", "image": "other" }], "restartPolicy": "OnFailure",
    });
    let foreign = json!({
        "metadata": { "name": "nightly" },
        "spec": {
            "schedule": "0 4 * * *",
            "jobTemplate": { "spec": { "template": { "spec": pod } } },
        },
    });
    let foreign = serde_json::from_value(foreign).unwrap();
    let jobs = world.api::<CronJob>();
    jobs.create(&PostParams::default(), &foreign).await.unwrap();
    world.create_crontab().await;
    let events = world
        .api::<Event>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let event = events
        .items
        .iter()
        .find(|event| event.reason.as_deref() == Some("CronJobExists"));
    let event = event.expect("an event");
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.kind.as_deref(), Some("CronTab"));
    assert_eq!(
        event.message.as_deref(),
        Some("CronJob default/nightly already exists and is not controlled by CronTab nightly")
    );
    assert_eq!(
        jobs.get("nightly").await.unwrap().spec.schedule,
        "0 4 * * *"
    );
}
