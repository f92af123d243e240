//! The embedded cluster's loops beside the controller manager of Kubernetes: the same steps lead to
//! the same objects.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use pintle_cluster::{Cluster, Loops};
use real_tests::{TestNamespace, eventually};
use serde_json::{Value, from_value, json, to_value};

/// One of the two clusters, and a namespace in it.
struct Side {
    client: Client,
    namespace: String,
}

impl Side {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create(&self, replicas: i32) {
        let deployment: Deployment = from_value(json!({
            "metadata": { "name": "web", "labels": { "app": "web" }, "annotations": { "team": "red" } },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "main", "image": "nginx:1" }] },
                },
            },
        }))
        .unwrap();
        let deployments = self.api::<Deployment>();
        deployments
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    async fn patch(&self, patch: Value) {
        let patch = Patch::Merge(patch);
        let deployments = self.api::<Deployment>();
        deployments
            .patch("web", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "main", "image": image }]);
        self.patch(json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
            .await;
    }

    /// Neither side has nodes, so the test says that Pods are ready, until the rollout is complete.
    async fn settle(&self) {
        eventually("the rollout", async || {
            for pod in self.list::<Pod>().await {
                self.make_ready(&pod).await;
            }
            let deployment = self.api::<Deployment>().get("web").await.unwrap();
            let wanted = deployment.spec?.replicas;
            let status = deployment.status?;
            let conditions = status.conditions.unwrap_or_default();
            let complete = conditions
                .iter()
                .any(|c| c.reason.as_deref() == Some("NewReplicaSetAvailable"));
            let sets = self.list::<ReplicaSet>().await;
            let reported = sets.iter().all(|set| {
                let status = set.status.clone().unwrap_or_default();
                status.observed_generation == set.metadata.generation
                    && Some(status.replicas) == set.spec.as_ref().unwrap().replicas
            });
            (complete
                && reported
                && status.observed_generation == deployment.metadata.generation
                && status.replicas == wanted
                && status.updated_replicas == wanted
                && status.available_replicas == wanted)
                .then_some(())
        })
        .await;
    }

    async fn make_ready(&self, pod: &Pod) {
        let conditions = pod
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        if pod.metadata.deletion_timestamp.is_some()
            || conditions.into_iter().any(|c| c.type_ == "Ready")
        {
            return;
        }
        let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let patch =
            Patch::Merge(json!({ "status": { "phase": "Running", "conditions": [ready] } }));
        // It may be gone by now.
        let _ = self
            .api::<Pod>()
            .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await;
    }

    async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        self.api::<K>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// Everything there is, without what differs from run to run.
    async fn snapshot(&self) -> Value {
        let mut sets = self.list::<ReplicaSet>().await;
        sets.sort_by_key(|set| set.annotations()["deployment.kubernetes.io/revision"].clone());
        let hashes: Vec<String> = sets
            .iter()
            .map(|set| set.labels()["pod-template-hash"].clone())
            .collect();
        let deployment = self.api::<Deployment>().get("web").await.unwrap();
        let mut pods: Vec<Value> = self
            .list::<Pod>()
            .await
            .iter()
            .map(|pod| to_value(pod).unwrap())
            .map(|pod| json!({ "labels": pod["metadata"]["labels"], "owners": pod["metadata"]["ownerReferences"] }))
            .collect();
        pods.sort_by_key(Value::to_string);
        let all = json!({ "deployment": deployment, "sets": sets, "pods": pods });
        masked(all, &hashes)
    }
}

fn masked(value: Value, hashes: &[String]) -> Value {
    const VARYING: [&str; 9] = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "observedGeneration",
        "managedFields",
        "lastUpdateTime",
        "lastTransitionTime",
        "namespace",
    ];
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| !VARYING.contains(&key.as_str()))
            .map(|(key, value)| (key, masked(value, hashes)))
            .collect(),
        Value::Array(values) => {
            let mut values: Vec<Value> = values
                .into_iter()
                .map(|value| masked(value, hashes))
                .collect();
            // Conditions are a map by type; their order says nothing.
            if values.iter().all(|value| value["type"].is_string()) {
                values.sort_by_key(|value| value["type"].to_string());
            }
            values.into()
        }
        Value::String(text) => {
            let mut text = text;
            for (index, hash) in hashes.iter().enumerate() {
                text = text.replace(hash, &format!("HASH-{index}"));
            }
            text.into()
        }
        other => other,
    }
}

/// Proves PC-12.
#[tokio::test]
async fn rollouts_lead_to_the_same_objects_as_on_kubernetes() {
    let namespace = TestNamespace::create().await;
    let real = Side {
        client: namespace.client(),
        namespace: namespace.name(),
    };
    let cluster = Cluster::builder()
        .loops(Loops::ALL.without(Loops::PODS | Loops::NODES))
        .start()
        .await;
    let ours = Side {
        client: cluster.client(),
        namespace: "default".into(),
    };

    let mut pictures = Vec::new();
    for side in [&real, &ours] {
        let mut pages = Vec::new();
        side.create(3).await;
        side.settle().await;
        pages.push(("created", side.snapshot().await));
        side.set_image("nginx:2").await;
        side.settle().await;
        pages.push(("new image", side.snapshot().await));
        side.set_image("nginx:1").await;
        side.settle().await;
        pages.push(("back to the old one", side.snapshot().await));
        side.patch(json!({ "spec": { "replicas": 5 } })).await;
        side.settle().await;
        pages.push(("scaled", side.snapshot().await));
        let deployments = side.api::<Deployment>();
        deployments
            .delete("web", &DeleteParams::background())
            .await
            .unwrap();
        eventually("everything to be gone", async || {
            let gone =
                side.list::<ReplicaSet>().await.is_empty() && side.list::<Pod>().await.is_empty();
            gone.then_some(())
        })
        .await;
        pictures.push(pages);
    }
    for ((step, real), (_, ours)) in pictures[0].iter().zip(&pictures[1]) {
        let text = |value| serde_json::to_string_pretty(value).unwrap();
        assert_eq!(
            text(real),
            text(ours),
            "{step}: Kubernetes left, ours right"
        );
    }
    cluster.stop().await;
}
