//! A kube-runtime controller next to a reflector for its children, as people build a cache. The bug
//! is like ray-project/kuberay#715: replicas have generated names, and the controller counts them
//! in a cache that does not show its own writes yet.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use kube_runtime::{
    Controller, WatchStreamExt,
    controller::Action,
    reflector::{self, Store},
    watcher,
};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Pool",
    namespaced
)]
pub(crate) struct PoolSpec {
    #[schemars(range(min = 0, max = 3))]
    size: usize,
}

struct State {
    client: Client,
    cached: Store<Pod>,
    broken: bool,
}

async fn reconcile(pool: Arc<Pool>, state: Arc<State>) -> Result<Action, kube::Error> {
    let pods = Api::<Pod>::default_namespaced(state.client.clone());
    let uid = pool.uid().unwrap_or_default();
    let all: Vec<Pod> = if state.broken {
        state
            .cached
            .state()
            .iter()
            .map(|it| (**it).clone())
            .collect()
    } else {
        pods.list(&ListParams::default()).await?.items
    };
    let mine = |pod: &&Pod| {
        pod.metadata.deletion_timestamp.is_none()
            && pod.owner_references().iter().any(|it| it.uid == uid)
    };
    let alive: Vec<&Pod> = all.iter().filter(mine).collect();
    for _ in alive.len()..pool.spec.size {
        let pod = serde_json::from_value(json!({
            "metadata": {"generateName": "pool-",
                "ownerReferences": [pool.controller_owner_ref(&())]},
            "spec": {"containers": [{"name": "worker", "image": "worker"}]},
        }));
        pods.create(&PostParams::default(), &pod.unwrap()).await?;
    }
    for pod in alive.iter().skip(pool.spec.size) {
        let same = Preconditions {
            uid: pod.uid(),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(same);
        match pods.delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    let done = alive.len() == pool.spec.size;
    // Check again soon if something was changed.
    Ok(Action::requeue(Duration::from_secs(if done {
        600
    } else {
        1
    })))
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let all = watcher::Config::default;
    let (cached, writer) = reflector::store();
    let pods = watcher(Api::<Pod>::all(client.clone()), all()).default_backoff();
    let pods = reflector::reflector(writer, pods);
    let state = State {
        client: client.clone(),
        cached,
        broken,
    };
    let pools = Controller::new(Api::<Pool>::all(client.clone()), all())
        .owns(Api::<Pod>::all(client), all())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(state),
        );
    join(pods.for_each(async |_| ()), pools.for_each(async |_| ())).await;
}

fn pool() -> Pool {
    Pool::new("pool", PoolSpec { size: 1 })
}

super::twins!(controller, pool(), Quiescent);
