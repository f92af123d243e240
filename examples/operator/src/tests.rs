//! The operator on an in-process cluster, under virtual time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use pintle::clock::Clock;
use pintle_cluster::Cluster;
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

struct Replica {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn start(cluster: &Cluster) -> Replica {
    let stop = CancellationToken::new();
    let clock = Clock::starting_at(START.parse().unwrap());
    let manager = operator(Manager::builder("operator", cluster.client()).clock(clock));
    let shutdown = stop.clone();
    let task = tokio::spawn(async move {
        let stopped = manager.run_until(&shutdown).await.unwrap();
        assert_eq!(stopped.left, []);
    });
    Replica { stop, task }
}

const START: &str = "2026-01-01T00:00:00Z";

async fn cluster() -> Cluster {
    LazyLock::force(&EXPORTED);
    let cluster = Cluster::builder()
        .starting_at(START.parse().unwrap())
        .start()
        .await;
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    let namespaces = Api::<Namespace>::all(cluster.client());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let crds = Api::<CustomResourceDefinition>::all(cluster.client());
    crds.create(&PostParams::default(), &Site::crd())
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    cluster
}

async fn create_site(cluster: &Cluster, name: &str) {
    let site = Site::new(
        name,
        SiteSpec {
            image: "nginx".to_owned(),
            replicas: 2,
        },
    );
    let sites = Api::<Site>::default_namespaced(cluster.client());
    sites.create(&PostParams::default(), &site).await.unwrap();
    sleep(Duration::from_secs(10)).await;
}

async fn is_ready(cluster: &Cluster, name: &str) -> bool {
    let sites = Api::<Site>::default_namespaced(cluster.client());
    let status = sites.get(name).await.unwrap().status.unwrap_or_default();
    status
        .conditions
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

#[tokio::test(start_paused = true)]
async fn all_three_controllers_work() {
    let cluster = cluster().await;
    let replica = start(&cluster);
    create_site(&cluster, "shop").await;
    assert!(is_ready(&cluster, "shop").await);

    let namespaces = Api::<Namespace>::all(cluster.client());
    let label = Patch::Merge(json!({"metadata": {"labels": {"isolated": "true"}}}));
    namespaces
        .patch("default", &PatchParams::default(), &label)
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    let policies = Api::<NetworkPolicy>::default_namespaced(cluster.client());
    assert!(policies.get_opt("deny-all").await.unwrap().is_some());
    let label = Patch::Merge(json!({"metadata": {"labels": {"isolated": null}}}));
    namespaces
        .patch("default", &PatchParams::default(), &label)
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(policies.get_opt("deny-all").await.unwrap().is_none());

    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let job = json!({"metadata": {"name": "job"}, "spec": {"containers": [{"name": "job", "image": "job"}]}});
    pods.create(&PostParams::default(), &from_value(job).unwrap())
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": START}});
    let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
        "name": "job", "image": "job", "imageID": "", "ready": false, "restartCount": 0, "state": ended,
    }]}});
    pods.patch_status("job", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    sleep(Duration::from_mins(59)).await;
    assert!(pods.get_opt("job").await.unwrap().is_some());
    sleep(Duration::from_mins(2)).await;
    assert!(pods.get_opt("job").await.unwrap().is_none());
    replica.stop.cancel();
    replica.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over() {
    let cluster = cluster().await;
    let first = start(&cluster);
    sleep(Duration::from_secs(1)).await;
    let second = start(&cluster);
    create_site(&cluster, "shop").await;
    first.stop.cancel();
    first.task.await.unwrap();
    create_site(&cluster, "blog").await;
    assert!(is_ready(&cluster, "blog").await);
    second.stop.cancel();
    second.task.await.unwrap();
}

/// The attributes of the spans of every test in this process.
///
/// The subscriber is global and installed before the first span of any test. With a subscriber for
/// a single thread, a span that another thread opens first would be disabled on all threads.
static EXPORTED: LazyLock<Exported> = LazyLock::new(|| {
    let exported = Exported::default();
    let provider = telemetry::provider(exported.clone());
    let subscriber = tracing_subscriber::registry().with(telemetry::layer(&provider));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    exported
});

/// Collects the attributes of exported spans.
#[derive(Clone, Debug, Default)]
struct Exported(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl SpanExporter for Exported {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        let attributes = |span: SpanData| {
            let pairs = span.attributes.into_iter();
            let pairs = pairs.map(|pair| (pair.key.to_string(), pair.value.to_string()));
            pairs.collect()
        };
        let mut exported = self.0.lock().unwrap();
        exported.extend(spans.into_iter().map(attributes));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_exported_as_opentelemetry_spans() {
    let cluster = cluster().await;
    let _replica = start(&cluster);
    create_site(&cluster, "traced").await;

    let spans = EXPORTED.0.lock().unwrap().clone();
    let of_the_site =
        |span: &&BTreeMap<String, String>| span.get("name").is_some_and(|name| name == "traced");
    let first = spans.iter().find(of_the_site).unwrap();
    assert_eq!(first["controller"], "sites");
    assert_eq!(first["namespace"], "default");
    assert_eq!(first["attempt"], "1");
    assert_eq!(first["cause"], "Site added");
}

/// The output of `operator manifests` lists everything that the operator needs in a cluster.
#[tokio::test(start_paused = true)]
async fn manifests_contain_the_crd_and_the_permissions() {
    let manifests = manifests().unwrap();
    let items = manifests["items"].as_array().unwrap();
    let names: Vec<String> = items
        .iter()
        .map(|item| {
            let (kind, meta) = (item["kind"].as_str().unwrap(), &item["metadata"]);
            format!("{kind} {}", meta["name"].as_str().unwrap())
        })
        .collect();
    let expected = [
        "ServiceAccount operator",
        "ClusterRole operator:operator-system",
        "ClusterRoleBinding operator:operator-system",
        "Role operator",
        "RoleBinding operator",
        "CustomResourceDefinition sites.example.com",
    ];
    assert_eq!(names, expected);
}
