//! No-op reconciles through the applier, the part of a controller behind its watches.

use std::{convert::Infallible, sync::Arc};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, channel::mpsc};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{
    controller::{self, Action, applier},
    reflector::{self, Lookup as _, ObjectRef},
};

use crate::{Flags, measure::Phase, small};

async fn reconcile(_: Arc<Pod>, _: Arc<()>) -> Result<Action, Infallible> {
    Ok(Action::await_change())
}

pub async fn run(flags: &mut Flags) -> Result<Phase> {
    // The applier reads the object of each request from the store, with or without `--reads on`.
    let (store, mut writer) = reflector::store();
    small::fill(&mut writer, flags.objects);
    let keys: Vec<ObjectRef<Pod>> = (0..flags.objects)
        .map(|i| small::pod(i, 1).to_object_ref(()))
        .collect();
    let (requests, queue) = mpsc::unbounded();
    let mut reconciled = Box::pin(applier(
        |pod, context| Box::pin(reconcile(pod, context)),
        |_, never: &Infallible, _| match *never {},
        Arc::new(()),
        store,
        queue.map(Ok::<_, Infallible>),
        controller::Config::default().concurrency(flags.workers),
    ));
    let rounds = (flags.count / flags.objects).max(1);
    flags.count = rounds * flags.objects;
    // In a task, like a real controller: the thread of `block_on` is not a worker.
    let (phase, rest) = tokio::spawn(async move {
        let mut phase = Phase::begin()?;
        for _ in 0..rounds {
            for key in &keys {
                requests.unbounded_send(key.clone())?;
            }
            for _ in &keys {
                let done = reconciled.next().await.context("the applier ended")?;
                done.context("a reconcile failed")?;
            }
        }
        phase.end()?;
        phase.extra.insert("reads".into(), "always".into());
        anyhow::Ok((phase, (keys, writer)))
    })
    .await??;
    let mut phase = phase;
    phase.keep(rest);
    Ok(phase)
}
