//! Benchmarks that follow a server: from the first byte to the handler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store, store::Writer},
        watcher::{self, Config, Event, watcher},
    },
};

use crate::{
    CannotDo, Encoding, Flags, ManagedFields, Switch, client,
    measure::{Countdown, Phase, reset_peak, resident},
};

/// Buffer size when there are several handlers.
const SHARED_BUFFER: usize = 1024;

/// Creates a store that supports `handlers` handlers.
pub fn store(handlers: usize) -> (Store<Pod>, Writer<Pod>) {
    if handlers == 1 {
        reflector::store()
    } else {
        reflector::store_shared(SHARED_BUFFER)
    }
}

/// Drives the stream into the store. A single handler reads the stream itself, as in the examples of
/// kube-rs; several handlers are subscribers of the shared store, each with its own task.
pub fn drive(
    stream: impl Stream<Item = watcher::Result<Event<Pod>>> + Send + 'static,
    writer: Writer<Pod>,
    handlers: Vec<impl Fn(&Pod) + Send + 'static>,
) {
    let mut handlers = handlers.into_iter();
    match (handlers.len(), handlers.next()) {
        (1, Some(handler)) => {
            let objects = stream.reflect(writer).applied_objects();
            tokio::spawn(objects.for_each(move |pod| {
                match pod {
                    Ok(pod) => handler(&pod),
                    Err(error) => eprintln!("watch error: {error}"),
                }
                std::future::ready(())
            }));
        }
        (_, first) => {
            for handler in first.into_iter().chain(handlers) {
                let Some(subscriber) = writer.subscribe() else {
                    unreachable!("the store of several handlers is a shared one");
                };
                tokio::spawn(subscriber.for_each(move |pod| {
                    handler(&pod);
                    std::future::ready(())
                }));
            }
            tokio::spawn(async move {
                let mut stream = Box::pin(stream.reflect_shared(writer));
                while let Some(event) = stream.next().await {
                    if let Err(error) = event {
                        eprintln!("watch error: {error}");
                    }
                }
            });
        }
    }
}

/// Watches all Pods of the server.
async fn follow(
    flags: &Flags,
    writer: Writer<Pod>,
    handlers: Vec<impl Fn(&Pod) + Send + 'static>,
) -> Result<impl FnOnce()> {
    if flags.encoding == Encoding::Protobuf {
        return Err(CannotDo("kube-rs reads JSON only").into());
    }
    let pods: Api<Pod> = Api::all(client::connect(flags).await?);
    let mut config = Config::default();
    if flags.streaming == Switch::On {
        config = config.streaming_lists();
    }
    let strip = flags.managed_fields == ManagedFields::Strip;
    Ok(move || {
        let stream = watcher(pods, config).default_backoff();
        if strip {
            let stream = stream.modify(|pod| pod.metadata.managed_fields = None);
            drive(stream, writer, handlers);
        } else {
            drive(stream, writer, handlers);
        }
    })
}

fn holds(store: &Store<Pod>, objects: usize) -> Result<()> {
    let held = store.len();
    ensure!(
        held == objects,
        "the store holds {held} Pods, not {objects}"
    );
    Ok(())
}

/// Lists and watches until the store holds every Pod and every handler has seen each.
pub async fn sync(flags: &Flags) -> Result<Phase> {
    let (store, writer) = store(flags.handlers);
    let seen = Countdown::new(flags.objects * flags.handlers);
    let handlers = (0..flags.handlers)
        .map(|_| {
            let seen = seen.clone();
            move |_: &Pod| seen.decrement()
        })
        .collect();
    let start = follow(flags, writer, handlers).await?;
    let mut phase = Phase::begin()?;
    start();
    seen.wait("the handlers have seen every Pod").await?;
    store.wait_until_ready().await?;
    phase.end()?;
    holds(&store, flags.objects)?;
    phase.keep(store);
    Ok(phase)
}

/// Watches until the store holds every Pod; counts the events delivered from then on.
async fn synced(flags: &Flags, updates: &Countdown) -> Result<Store<Pod>> {
    let (store, writer) = store(flags.handlers);
    let first = Countdown::new(flags.objects * flags.handlers);
    let synced = Arc::new(AtomicBool::new(false));
    let handlers = (0..flags.handlers)
        .map(|_| {
            let (synced, first, updates) = (Arc::clone(&synced), first.clone(), updates.clone());
            move |_: &Pod| {
                if synced.load(Ordering::Relaxed) {
                    updates.decrement();
                } else {
                    first.decrement();
                }
            }
        })
        .collect();
    follow(flags, writer, handlers).await?();
    first.wait("the handlers have seen every Pod").await?;
    store.wait_until_ready().await?;
    synced.store(true, Ordering::SeqCst);
    holds(&store, flags.objects)?;
    Ok(store)
}

/// Ends the watch of a full store with 410 and waits for the relist.
pub async fn relist(flags: &Flags) -> Result<Phase> {
    let store = synced(flags, &Countdown::new(usize::MAX)).await?;
    flags.settle().await;
    reset_peak()?;
    let mut phase = Phase::begin()?;
    let steady = resident()?;
    phase
        .extra
        .insert("steady_before_kib".into(), steady.into());
    client::post(flags, "/_bench/expire").await?;
    // The store swaps its content once the list is complete.
    while store.len() <= flags.objects {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    phase.end()?;
    holds(&store, flags.objects + 1)?;
    let marker = store.find(|pod| pod.name_any() == "relist-marker");
    ensure!(marker.is_some(), "the marker is not in the store");
    phase.keep(store);
    Ok(phase)
}

/// Sends updates through watch and store to every handler.
pub async fn watch(flags: &Flags) -> Result<Phase> {
    let updates = Countdown::new(flags.count * flags.handlers);
    let store = synced(flags, &updates).await?;
    // The watch opens after the list.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut phase = Phase::begin()?;
    client::post(flags, &format!("/_bench/events?count={}", flags.count)).await?;
    updates.wait("every handler has seen every update").await?;
    phase.end()?;
    phase.keep(store);
    Ok(phase)
}
