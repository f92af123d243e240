//! A real and an embedded cluster, for performing the same actions on both.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use pintle_cluster::{Cluster, Loops};
use real_tests::{TestNamespace, eventually};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, from_value, json};
use tokio::time::{Instant, sleep};

use super::mask::masked;

/// How long the two sides may take to agree.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A static, namespaced kind.
pub(super) trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
{
}

/// Both clusters.
pub(super) struct Pair {
    pub(super) real: Side,
    pub(super) ours: Side,
    cluster: Cluster,
    _namespace: TestNamespace,
}

impl Pair {
    pub(super) async fn start() -> Self {
        let namespace = TestNamespace::create().await;
        let real = Side {
            client: namespace.client(),
            namespace: namespace.name(),
        };
        // The real control plane has neither nodes nor a scheduler, and no storage driver.
        let missing = Loops::PODS | Loops::NODES | Loops::PROVISIONER;
        let loops = Loops::ALL.without(missing);
        let cluster = Cluster::builder().loops(loops).start().await;
        let ours = Side {
            client: cluster.client(),
            namespace: "default".into(),
        };
        Self {
            real,
            ours,
            cluster,
            _namespace: namespace,
        }
    }

    /// Performs an action on both sides concurrently.
    pub(super) async fn both(&self, act: impl AsyncFn(&Side)) {
        tokio::join!(Box::pin(act(&self.real)), Box::pin(act(&self.ours)));
    }

    /// Waits until the [snapshots](Side::snapshot) of both sides are equal.
    ///
    /// # Panics
    ///
    /// Panics with the difference after a timeout.
    pub(super) async fn converge(&self, when: &str) {
        self.agree(when, async |side| side.snapshot().await).await;
    }

    /// Waits until `query` returns the same value on both sides.
    ///
    /// # Panics
    ///
    /// Panics with the difference after a timeout.
    pub(super) async fn agree(&self, when: &str, query: impl AsyncFn(&Side) -> Value) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (real, ours) = tokio::join!(query(&self.real), query(&self.ours));
            if real == ours {
                return;
            }
            if Instant::now() > deadline {
                let text = |value| serde_json::to_string_pretty(value).unwrap();
                let (real, ours) = (text(&real), text(&ours));
                panic!("{when}: the clusters differ\n{}", difference(&real, &ours));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) async fn stop(self) {
        self.cluster.stop().await;
    }
}

/// Marks the lines that only one side has.
pub(super) fn difference(real: &str, ours: &str) -> String {
    let only = |here: &str, there: &str, mark: &str| {
        let there: Vec<&str> = there.lines().collect();
        let lines = here.lines().map(|line| {
            let mark = if there.contains(&line) { " " } else { mark };
            format!("{mark} {line}\n")
        });
        lines.collect::<String>()
    };
    let (kubernetes, embedded) = (only(real, ours, "-"), only(ours, real, "+"));
    format!("on Kubernetes:\n{kubernetes}\non ours:\n{embedded}")
}

/// A namespace in one of the clusters.
pub(super) struct Side {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Side {
    pub(super) fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) async fn create<K: Namespaced>(&self, object: Value) -> K {
        self.try_create(object).await.unwrap()
    }

    pub(super) async fn try_create<K: Namespaced>(&self, object: Value) -> kube::Result<K> {
        let object = from_value(object).unwrap();
        self.api::<K>()
            .create(&PostParams::default(), &object)
            .await
    }

    pub(super) async fn patch<K: Namespaced>(&self, name: &str, patch: Value) {
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Patches the spec of the Deployment `web`.
    pub(super) async fn set(&self, spec: Value) {
        self.patch::<Deployment>("web", json!({ "spec": spec }))
            .await;
    }

    pub(super) async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "main", "image": image }]);
        self.set(json!({ "template": { "spec": { "containers": containers } } }))
            .await;
    }

    pub(super) async fn list<K: Namespaced>(&self) -> Vec<K> {
        let listed = self.api::<K>().list(&ListParams::default()).await;
        listed.unwrap().items
    }

    /// Waits for the rollout of `web`, marking Pods as ready, because there is no kubelet.
    pub(super) async fn roll_out(&self) {
        eventually("the rollout", async || {
            self.make_ready(|_| true).await;
            let deployment = self.api::<Deployment>().get("web").await.unwrap();
            let desired = deployment.spec?.replicas.filter(|n| *n > 0);
            let status = deployment.status?;
            let conditions = status.conditions.unwrap_or_default();
            let complete = conditions
                .iter()
                .any(|c| c.reason.as_deref() == Some("NewReplicaSetAvailable"));
            (complete
                && status.observed_generation == deployment.metadata.generation
                && status.replicas.filter(|n| *n > 0) == desired
                && status.updated_replicas.filter(|n| *n > 0) == desired
                && status.available_replicas.filter(|n| *n > 0) == desired)
                .then_some(())
        })
        .await;
    }

    /// Waits until the status of `web` is current and `done` returns true.
    pub(super) async fn until(&self, what: &str, done: impl Fn(&Deployment) -> bool) {
        eventually(what, async || {
            let web = self.api::<Deployment>().get("web").await.unwrap();
            let observed = web.status.as_ref()?.observed_generation;
            (observed == web.metadata.generation && done(&web)).then_some(())
        })
        .await;
    }

    /// Waits until all objects of kind `K` are gone.
    pub(super) async fn until_none_left<K: Namespaced>(&self) {
        let what = format!("{}s to be gone", K::kind(&()));
        eventually(&what, async || {
            self.list::<K>().await.is_empty().then_some(())
        })
        .await;
    }

    /// Marks the Pods selected by `which` as ready.
    pub(super) async fn make_ready(&self, which: impl Fn(&Pod) -> bool) {
        for pod in self.list::<Pod>().await {
            let conditions = pod
                .status
                .iter()
                .flat_map(|s| s.conditions.iter().flatten());
            let ready = conditions.into_iter().any(|c| c.type_ == "Ready");
            if !ready && pod.metadata.deletion_timestamp.is_none() && which(&pod) {
                let ready = json!({
                    "type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                });
                self.set_status(&pod, json!({ "phase": "Running", "conditions": [ready] }))
                    .await;
            }
        }
    }

    pub(super) async fn set_status(&self, pod: &Pod, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        // The Pod may have been deleted.
        let _ = self
            .api::<Pod>()
            .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await;
    }

    /// Returns the events, masked.
    pub(super) async fn events(&self) -> Value {
        let sets = self.list::<ReplicaSet>().await;
        let hashes: Vec<String> = sets
            .iter()
            .filter_map(|set| set.labels().get("pod-template-hash").cloned())
            .collect();
        let mut events: Vec<Value> = Vec::new();
        for event in self.list::<Event>().await {
            let mut message = event.message.unwrap_or_default();
            if event.involved_object.kind.as_deref() == Some("ReplicaSet") {
                // The message ends with a generated Pod name.
                let end = message.rfind('-').map_or(message.len(), |dash| dash + 1);
                message.truncate(end);
            }
            let source = event.source.and_then(|source| source.component);
            let object = event.involved_object;
            let event = json!({
                "involved": [object.api_version, object.kind, object.field_path],
                "type": event.type_, "reason": event.reason, "source": source,
                "message": message,
            });
            events.push(masked(event, &hashes));
        }
        events.sort_by_key(Value::to_string);
        events.into()
    }

    /// Returns the objects of all compared kinds, masked.
    pub(super) async fn snapshot(&self) -> Value {
        let mut sets = self.list::<ReplicaSet>().await;
        let revision = |set: &ReplicaSet| {
            let text = set.annotations().get("deployment.kubernetes.io/revision");
            text.and_then(|text| text.parse::<i64>().ok())
        };
        sets.sort_by_key(|set| (revision(set), set.name_any()));
        let hashes: Vec<String> = sets
            .iter()
            .filter_map(|set| set.labels().get("pod-template-hash").cloned())
            .collect();
        let mut maps = self.list::<ConfigMap>().await;
        maps.retain(|map| map.name_any() != "kube-root-ca.crt");
        let mut pods: Vec<Value> = self
            .list::<Pod>()
            .await
            .iter()
            .map(|pod| masked(json!(pod), &hashes))
            .collect();
        pods.sort_by_key(Value::to_string);
        json!({
            "deployments": masked(json!(self.list::<Deployment>().await), &hashes),
            "sets": masked(json!(sets), &hashes),
            "pods": pods,
            "maps": masked(json!(maps), &hashes),
        })
    }
}
