//! A state machine in the status: Updating, Ready. The bug resembles pingcap/tidb-operator#4946:
//! while an update is in progress, changes to the spec are ignored, and nothing picks them up
//! afterwards.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::{Controller, controller::Action, watcher};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Cluster",
    namespaced
)]
#[kube(status = "ClusterStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterSpec {
    size: i32,
    image: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct ClusterStatus {
    phase: Phase,
    image: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Phase {
    #[default]
    Updating,
    Ready,
}

async fn reconcile(cluster: Arc<Cluster>, cx: Arc<(Client, bool)>) -> Result<Action, kube::Error> {
    let (client, broken) = (cx.0.clone(), cx.1);
    let name = cluster.name_any();
    let status = cluster.status.clone();
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let clusters = Api::<Cluster>::default_namespaced(client);
    let busy = status
        .as_ref()
        .is_some_and(|it| it.phase == Phase::Updating);
    let set = async |status: ClusterStatus| {
        let patch = Patch::Merge(json!({ "status": status }));
        clusters
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
    };
    let current = deployments.get_opt(&name).await?;
    let available = current
        .as_ref()
        .and_then(|it| it.status.as_ref()?.available_replicas);
    if busy && broken && current.is_some() {
        // Do not disturb a cluster that is being updated.
        let target = current.and_then(|it| it.spec?.replicas);
        if available == target {
            let image = status.map(|it| it.image).unwrap_or_default();
            set(ClusterStatus {
                phase: Phase::Ready,
                image,
            })
            .await?;
        }
        return Ok(Action::await_change());
    }
    let unchanged = status
        .as_ref()
        .is_some_and(|it| it.image == cluster.spec.image)
        && current.as_ref().is_some_and(|it| {
            it.spec
                .as_ref()
                .is_some_and(|it| it.replicas == Some(cluster.spec.size))
        });
    if unchanged && !busy {
        return Ok(Action::await_change());
    }
    if !busy {
        let image = cluster.spec.image.clone();
        set(ClusterStatus {
            phase: Phase::Updating,
            image,
        })
        .await?;
    }
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "ownerReferences": [cluster.controller_owner_ref(&())]},
        "spec": {
            "replicas": cluster.spec.size, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "node", "image": cluster.spec.image}]},
            },
        },
    });
    let params = PatchParams::apply("clusters").force();
    let done = deployments
        .patch(&name, &params, &Patch::Apply(deployment))
        .await?;
    let observed = done.status.as_ref().and_then(|it| it.observed_generation);
    let available = done.status.as_ref().and_then(|it| it.available_replicas);
    let is_complete = available.unwrap_or(0) == cluster.spec.size;
    if !broken && observed == done.metadata.generation && is_complete {
        let image = cluster.spec.image.clone();
        set(ClusterStatus {
            phase: Phase::Ready,
            image,
        })
        .await?;
    }
    Ok(Action::await_change())
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let all = watcher::Config::default;
    Controller::new(Api::<Cluster>::all(client.clone()), all())
        .owns(Api::<Deployment>::all(client.clone()), all())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(15)),
            Arc::new((client, broken)),
        )
        .for_each(async |_| ())
        .await;
}

fn cluster() -> Cluster {
    let spec = ClusterSpec {
        size: 1,
        image: "node:1".to_owned(),
    };
    Cluster::new("main", spec)
}

super::twins!(controller, cluster(), PathFree);
