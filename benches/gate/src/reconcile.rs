//! Reconciles: a no-op, and a full one with its writes and events.

use std::{hint::black_box, sync::Arc};

use bytes::Bytes;
use http::Method;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::api::Patch;
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, Controller, ReconcileError},
    informer::{InformerFactory, SharedInformer, WatchInput},
    owner::controller_reference,
    queue::WorkQueue,
};
use serde_json::json;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use crate::{
    Counter,
    follow::{OBJECTS, Recorded},
    measured, runtime, server, small,
};

/// Reconciles all objects in turn, more than the cache keeps decoded.
pub(crate) fn noop(count: usize) {
    noops(count, OBJECTS);
}

/// Reconciles a few objects again and again.
pub(crate) fn noop_recent(count: usize) {
    noops(count, OBJECTS / 10);
}

fn noops(count: usize, objects: usize) {
    let runtime = runtime();
    let queue = WorkQueue::<ObjectKey>::new("gate");
    let done = Arc::new(Counter::default());
    let informers = runtime.block_on(async { InformerFactory::new(server::server().client()) });
    // The factory does not keep an adopted informer alive.
    let informer = SharedInformer::<Pod>::new(Recorded);
    informers.adopt(&WatchInput::new(), &informer);
    let controller = Controller::<Pod>::new("gate", &informers).queue(queue.clone());
    let counted = Arc::clone(&done);
    runtime.spawn(async move {
        let reconcile = move |key: ObjectKey, cx: Context| {
            let counted = Arc::clone(&counted);
            async move {
                let pod = cx.lister::<Pod>()?.get(&key).unwrap();
                black_box(pod.get()?);
                counted.one();
                Ok(Action::await_change())
            }
        };
        controller
            .run_by_key(reconcile, &CancellationToken::new())
            .await
            .unwrap();
    });
    // The first list warms up.
    runtime.block_on(done.reaches(OBJECTS));
    let keys: Vec<ObjectKey> = (0..objects)
        .map(|i| ObjectKey::namespaced(&small::namespace(i), &small::name(i)))
        .collect();
    let round = || {
        let wanted = done.count() + objects;
        for key in &keys {
            queue.add(key.clone());
        }
        runtime.block_on(done.reaches(wanted));
    };
    round();
    measured(&mut || {
        for _ in 0..count / objects {
            round();
        }
    });
}

/// Objects that change in turn.
const OWNERS: usize = 10;

fn config_map(owner: usize, replicas: usize) -> Bytes {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("app-{owner}") },
        "data": { "replicas": replicas.to_string() },
    });
    map.to_string().into()
}

fn deployment(owner: &ConfigMap, replicas: i32) -> Result<Deployment, ReconcileError> {
    let labels = json!({ "app": owner.metadata.name });
    let container = json!({ "name": "web", "image": "registry.example.com/shop/web:1.27.3" });
    let deployment = json!({
        "metadata": {
            "name": owner.metadata.name, "namespace": owner.metadata.namespace,
            "ownerReferences": [controller_reference(owner).map_err(ReconcileError::terminal)?],
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [container] },
            },
        },
    });
    serde_json::from_value(deployment).map_err(ReconcileError::terminal)
}

/// Scales the Deployment of a `ConfigMap` to the replicas in its data.
async fn scale(key: ObjectKey, cx: Context, written: &Counter) -> Result<Action, ReconcileError> {
    let Some(owner) = cx.lister::<ConfigMap>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let owner = owner.get()?;
    let replicas = owner.data.as_ref().and_then(|data| data.get("replicas"));
    let replicas = replicas.and_then(|replicas| replicas.parse::<i32>().ok());
    let Some(replicas) = replicas else {
        return Ok(Action::await_change());
    };
    let Some(child) = cx.lister::<Deployment>()?.get(&key) else {
        cx.create(&deployment(&owner, replicas)?).await?;
        written.one();
        return Ok(Action::await_change());
    };
    let spec = child.get()?.spec.clone().unwrap_or_default();
    if spec.replicas != Some(replicas) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        cx.patch::<Deployment, _>(&key, &patch).await?;
        written.one();
    }
    Ok(Action::await_change())
}

/// One turn of the loop: a client writes an object and the controller patches its child. Includes
/// the child's event and the reconcile that finds nothing left to do.
pub(crate) fn whole(count: usize) {
    let runtime = runtime();
    let server = server::server();
    let service = server.service();
    let informers = runtime.block_on(async { InformerFactory::new(server.client()) });
    let controller = Controller::<ConfigMap>::new("gate", &informers).owns::<Deployment>();
    let written = Arc::new(Counter::default());
    let counted = Arc::clone(&written);
    runtime.spawn(async move {
        let reconcile = move |key, cx| {
            let counted = Arc::clone(&counted);
            async move { scale(key, cx, &counted).await }
        };
        let shutdown = CancellationToken::new();
        controller.run_by_key(reconcile, &shutdown).await.unwrap();
    });
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut turns = 0;
    let mut turn = |method: Method| {
        turns += 1;
        runtime.block_on(async {
            for owner in 0..OWNERS {
                let path = match method {
                    Method::POST => maps.to_owned(),
                    _ => format!("{maps}/app-{owner}"),
                };
                let body = config_map(owner, turns);
                server::send(&service, method.clone(), &path, body).await;
                written.reaches((turns - 1) * OWNERS + owner + 1).await;
                // Nothing waits for a timer or a socket, so yielding is enough for everything
                // caused by the write to finish.
                for _ in 0..40 {
                    yield_now().await;
                }
            }
        });
    };
    turn(Method::POST);
    turn(Method::PUT);
    measured(&mut || {
        for _ in 0..count / OWNERS {
            turn(Method::PUT);
        }
    });
}
