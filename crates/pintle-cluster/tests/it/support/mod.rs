//! Helpers shared by the tests: start a cluster, act like kubectl, wait for results.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the real tier uses only some helpers"
)]

pub mod faulty;
pub mod gateway;
#[cfg(unix)]
pub mod program;

use std::{fmt::Debug, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::Pod,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use pintle_apiserver::{ApiServer, Clock, PodDeletion};
use pintle_cluster::{Builder, Cluster};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Returns a builder for a reproducible cluster under virtual time.
pub fn virtual_cluster() -> Builder {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
    Cluster::builder()
        .starting_at(start_of_time())
        .seed(7)
        .nodes(2)
}

/// Starts a cluster and returns it with a client that acts like kubectl.
pub async fn start(builder: Builder) -> (Cluster, Kubectl) {
    let cluster = builder.start().await;
    let kubectl = Kubectl::new(cluster.client());
    (cluster, kubectl)
}

/// Returns a server for a [`virtual_cluster`], for tests that put something between server and
/// loops.
pub fn virtual_server() -> ApiServer {
    ApiServer::builder()
        .clock(Clock::starting_at(start_of_time()))
        .seed(7)
        .pod_deletion(PodDeletion::Leave)
        .build()
}

pub fn start_of_time() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub trait Namespaced:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Namespaced for K where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// Acts like kubectl in one namespace.
#[derive(Clone)]
pub struct Kubectl {
    pub client: Client,
    pub namespace: String,
}

impl Kubectl {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: "default".into(),
        }
    }

    /// Returns the same client for another namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self
        }
    }

    pub fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create<K: Namespaced>(&self, object: Value) -> K {
        let object = serde_json::from_value(object).unwrap();
        self.api::<K>()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    /// `kubectl create deployment NAME --image=IMAGE --replicas=N`
    pub async fn create_deployment(&self, name: &str, image: &str, replicas: i32) -> Deployment {
        self.create(json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": name, "labels": { "app": name } },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": name } },
                "strategy": {},
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "main", "image": image }] },
                },
            },
        }))
        .await
    }

    /// Creates a `StatefulSet` with a claim per Pod.
    pub async fn create_stateful_set(&self, name: &str, image: &str, replicas: i32) -> StatefulSet {
        self.create(json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "main", "image": image }] },
                },
                "volumeClaimTemplates": [{
                    "metadata": { "name": "data" },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": { "requests": { "storage": "1Gi" } },
                    },
                }],
            },
        }))
        .await
    }

    /// Creates a `DaemonSet` for all nodes.
    pub async fn create_daemon_set(&self, name: &str, image: &str) -> DaemonSet {
        self.create(json!({
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "main", "image": image }] },
                },
            },
        }))
        .await
    }

    /// Creates a Job with this number of completions.
    pub async fn create_job(&self, name: &str, image: &str, completions: i32) -> Job {
        self.create(json!({
            "metadata": { "name": name },
            "spec": {
                "completions": completions,
                "template": { "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "main", "image": image }],
                }},
            },
        }))
        .await
    }

    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> K {
        let patch = Patch::Merge(patch);
        self.api::<K>()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap()
    }

    /// `kubectl scale deployment NAME --replicas=N`
    pub async fn scale(&self, name: &str, replicas: i32) {
        self.patch::<Deployment>(name, json!({ "spec": { "replicas": replicas } }))
            .await;
    }

    /// `kubectl set image deployment/NAME main=IMAGE`
    pub async fn set_image(&self, name: &str, image: &str) {
        let containers = json!([{ "name": "main", "image": image }]);
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        self.patch::<Deployment>(name, patch).await;
    }

    /// `kubectl rollout undo deployment NAME`
    pub async fn undo(&self, name: &str) {
        let mut sets = self.list::<ReplicaSet>().await;
        sets.sort_by_key(revision);
        let previous = sets[sets.len() - 2].clone();
        let mut template = previous.spec.unwrap().template.unwrap();
        let labels = template.metadata.as_mut().unwrap().labels.as_mut().unwrap();
        labels.remove("pod-template-hash");
        self.patch::<Deployment>(name, json!({ "spec": { "template": template } }))
            .await;
    }

    pub async fn delete<K: Namespaced>(&self, name: &str, params: &DeleteParams) {
        self.api::<K>().delete(name, params).await.unwrap();
    }

    pub async fn get<K: Namespaced>(&self, name: &str) -> K {
        self.api::<K>().get(name).await.unwrap()
    }

    pub async fn list<K: Namespaced>(&self) -> Vec<K> {
        self.api::<K>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// `kubectl rollout status deployment NAME`
    pub async fn rollout(&self, name: &str) -> Deployment {
        wait_for(&format!("rollout of {name}"), async || {
            let deployment = self.get::<Deployment>(name).await;
            is_rolled_out(&deployment).then_some(deployment)
        })
        .await
    }

    /// Returns the Pods that are not being deleted.
    pub async fn pods(&self) -> Vec<Pod> {
        let mut pods = self.list::<Pod>().await;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods
    }
}

/// Returns whether `kubectl rollout status` would report success.
pub fn is_rolled_out(deployment: &Deployment) -> bool {
    let desired = deployment.spec.as_ref().unwrap().replicas.unwrap();
    let Some(status) = &deployment.status else {
        return false;
    };
    let count = Option::<i32>::unwrap_or_default;
    status.observed_generation >= deployment.metadata.generation
        && count(status.updated_replicas) == desired
        && count(status.replicas) == desired
        && count(status.available_replicas) == desired
}

pub fn revision(set: &ReplicaSet) -> i64 {
    annotation(&set.metadata, "deployment.kubernetes.io/revision")
        .parse()
        .unwrap_or_default()
}

pub fn annotation(
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    key: &str,
) -> String {
    meta.annotations
        .as_ref()
        .and_then(|all| all.get(key))
        .cloned()
        .unwrap_or_default()
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

pub fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0]
        .image
        .as_deref()
        .unwrap()
}

/// Polls until `check` returns a value, for at most ten minutes.
pub async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(
            start.elapsed() < Duration::from_mins(10),
            "timed out waiting for {what}"
        );
        sleep(Duration::from_millis(250)).await;
    }
}

/// Waits until the object is gone.
pub async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + Debug + DeserializeOwned,
{
    wait_for(&format!("{name} to be gone"), async || {
        api.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}
