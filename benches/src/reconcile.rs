//! A controller with a no-op reconcile that optionally reads its object, decoded.

use std::{convert::Infallible, hint::black_box, sync::Arc};

use anyhow::Result;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, client::Body};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Controller, ReconcileError},
    informer::InformerFactory,
    queue::WorkQueue,
};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use crate::{
    Flags,
    measure::{Outcome, Phase},
    queue::{Countdown, keys},
    small,
};

/// An in-process server that lists small Pods and whose watches stay silent.
fn server(objects: usize) -> Client {
    let items: Vec<String> = (0..objects).map(|i| small::pod(i, 1)).collect();
    let list = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
        items.join(",")
    );
    let list = Bytes::from(list);
    let answer = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let (code, frames) = if query.contains("sendInitialEvents=true") {
            (422, stream::empty().boxed())
        } else if query.contains("watch=") {
            (200, stream::pending().boxed())
        } else {
            (200, stream::iter([list.clone()]).boxed())
        };
        let frames = frames.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
        let body: UnsyncBoxBody<Bytes, Infallible> = StreamBody::new(frames).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = code.try_into().unwrap_or_default();
        async move { Ok::<_, Infallible>(response) }
    };
    Client::new(tower::service_fn(answer), "default")
}

pub(crate) async fn reconcile(flags: &Flags) -> Result<Outcome> {
    let reads = flags.reads.is_on();
    let keys: Vec<ObjectKey> = if reads {
        (0..flags.objects)
            .map(|i| ObjectKey::namespaced(&small::namespace(i), &small::name(i)))
            .collect()
    } else {
        keys(flags.objects as u64)
    };
    let listed = if reads { flags.objects } else { 0 };
    let informers = InformerFactory::new(server(listed));
    let queue = WorkQueue::<ObjectKey>::new("bench");
    let done = Arc::new(Countdown::new(listed as u64));
    let shutdown = CancellationToken::new();
    let controller = Controller::<Pod>::new("bench", &informers)
        .queue(queue.clone())
        .workers(flags.workers);
    let (counted, stop) = (Arc::clone(&done), shutdown.clone());
    let running = tokio::spawn(async move {
        let reconcile = move |key, cx: pintle::controller::Context| {
            let done = Arc::clone(&counted);
            async move {
                if reads {
                    // The peers' caches hold decoded objects; ours decodes on demand.
                    let Some(pod) = cx.lister::<Pod>()?.get(&key) else {
                        return Err(ReconcileError::terminal("the object is not in the cache"));
                    };
                    black_box(pod.get().map_err(ReconcileError::terminal)?);
                }
                done.decrement();
                Ok(Action::await_change())
            }
        };
        controller.run_by_key(reconcile, &stop).await
    });
    if reads {
        // Reconcile the initial list before measuring.
        done.wait().await;
    }
    let rounds = (flags.count() / flags.objects as u64).max(1);
    let phase = Phase::begin()?;
    for _ in 0..rounds {
        done.reset(keys.len() as u64);
        for key in &keys {
            queue.add(key.clone());
        }
        done.wait().await;
    }
    let cost = phase.end()?;
    shutdown.cancel();
    running.await??;
    Ok(Outcome {
        work: "reconcile",
        count: rounds * flags.objects as u64,
        cost,
        bytes_received: 0,
        extra: Map::new(),
    })
}
