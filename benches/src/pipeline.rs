//! From the delta FIFO to the handlers, without network and parsing.

use std::sync::{Arc, mpsc};

use anyhow::{Context as _, Result, bail};
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use pintle::{
    cache::{Object, Reader},
    informer::SharedInformer,
    source::{ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent},
};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use crate::{
    Flags,
    follow::EventCounter,
    measure::{Outcome, Phase},
    small,
};

/// A source that lists small Pods and whose watch stays silent.
struct Recorded {
    objects: usize,
}

impl ListWatch for Recorded {
    type Watch = stream::Pending<Result<WatchEvent, SourceError>>;

    fn resource(&self) -> &'static str {
        "pods"
    }

    async fn list(
        &self,
        _: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        for i in 0..self.objects {
            on_item(RawItem::Json(small::pod(i, 1).as_bytes()));
        }
        let resource_version = "1".to_owned();
        Ok(Page {
            resource_version,
            ..Page::default()
        })
    }

    async fn watch(&self, _: ListOptions) -> Result<Self::Watch, SourceError> {
        Ok(stream::pending())
    }

    fn supports_watch_list(&self) -> bool {
        false
    }
}

/// Enqueues updates in place of the reflector and waits until every handler has them.
pub(crate) async fn pipeline(flags: &Flags) -> Result<Outcome> {
    let count = flags.count();
    let source = Recorded {
        objects: flags.objects,
    };
    let (give, take) = mpsc::channel();
    let pods = SharedInformer::<Pod>::builder(source)
        .reflector(move |reflector| {
            // The receiver is alive: it is read right below.
            let _ = give.send(Arc::clone(reflector.sink()));
            reflector
        })
        .build();
    let log = take.recv().context("the informer has no delta FIFO")?;
    pods.index_field("node", "/spec/nodeName")?;
    let counters: Vec<_> = (0..flags.handlers)
        .map(|_| Arc::<EventCounter>::default())
        .collect();
    let handlers: Vec<_> = counters
        .iter()
        .map(|counter| {
            let counter = Arc::clone(counter);
            pods.on_event(move |event| counter.handle(&event))
        })
        .collect();
    let reader = Reader::<Pod>::new();
    let mut updates: Vec<Object<Pod>> = Vec::new();
    for n in 0..count {
        let i = usize::try_from(n)? % flags.objects;
        updates.push(reader.read(small::pod(i, n + 2).as_bytes())?);
    }
    let shutdown = CancellationToken::new();
    let (lister, stop) = (pods.lister(), shutdown.clone());
    let running = tokio::spawn(async move { pods.run(&stop).await });
    for handler in &handlers {
        handler.synced().await;
    }
    let phase = Phase::begin()?;
    // Like the reflector: wait for capacity, then push.
    let feeder = tokio::spawn(async move {
        for update in updates {
            log.ready().await;
            log.update(update);
        }
    });
    for counter in &counters {
        counter.updated(count).await;
    }
    let cost = phase.end()?;
    feeder.await?;
    if lister.len() != flags.objects {
        bail!("the cache holds {} Pods", lister.len());
    }
    shutdown.cancel();
    running.await?;
    Ok(Outcome {
        work: "pipeline",
        count,
        cost,
        bytes_received: 0,
        extra: Map::new(),
    })
}
