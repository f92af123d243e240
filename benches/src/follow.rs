//! Benchmarks that follow a server: from the first byte to the handler.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, client::Body};
use pintle::{
    cache::{Lister, ObjectKey, Reader},
    informer::{Event, Registration, SharedInformer},
    source::{KubeSource, Scope},
};
use serde_json::{Map, json};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    CannotDo, Encoding, Flags, ManagedFields,
    connect::connect,
    measure::{Outcome, Phase, peak, reset_peak, resident},
    pods,
};

/// Counts delivered events without blocking the handlers.
#[derive(Default)]
pub(crate) struct EventCounter {
    added: AtomicU64,
    updated: AtomicU64,
    /// The count at which the waiter is woken.
    enough: AtomicU64,
    woken: Notify,
}

impl EventCounter {
    pub(crate) fn handle(&self, event: &Event<Pod>) {
        let counter = match event {
            Event::Added { .. } => &self.added,
            Event::Updated { .. } => &self.updated,
            Event::Deleted(_) => return,
        };
        let count = counter.fetch_add(1, Ordering::SeqCst) + 1;
        if count == self.enough.load(Ordering::SeqCst) {
            self.woken.notify_one();
        }
    }

    /// Sets the target first: either the counting side sees it, or we see the count.
    async fn wait(&self, counter: &AtomicU64, count: u64) {
        self.enough.store(count, Ordering::SeqCst);
        while counter.load(Ordering::SeqCst) < count {
            self.woken.notified().await;
        }
    }

    pub(crate) async fn added(&self, count: u64) {
        self.wait(&self.added, count).await;
    }

    pub(crate) async fn updated(&self, count: u64) {
        self.wait(&self.updated, count).await;
    }
}

/// A running informer with indexes and counting handlers.
struct Follower {
    lister: Lister<Pod>,
    counters: Vec<Arc<EventCounter>>,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
    _handlers: Vec<Registration>,
}

impl Follower {
    fn start(client: Client, flags: &Flags) -> Result<Self> {
        let keep = flags.managed_fields == ManagedFields::Keep;
        let streaming = flags.streaming.is_on();
        let eager = flags.eager.is_on();
        let pods = SharedInformer::<Pod>::builder(KubeSource::<Pod>::new(client, Scope::all()))
            .reader(Reader::new().keep_managed_fields(keep).eager(eager))
            .reflector(move |reflector| reflector.watch_list(streaming))
            .build();
        // The index by namespace is built in.
        pods.index_field("node", "/spec/nodeName")?;
        let counters: Vec<_> = (0..flags.handlers.max(1))
            .map(|_| Arc::<EventCounter>::default())
            .collect();
        let handlers = counters
            .iter()
            .map(|counter| {
                let counter = Arc::clone(counter);
                pods.on_event(move |event| counter.handle(&event))
            })
            .collect();
        let lister = pods.lister();
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let running = tokio::spawn(async move { pods.run(&stop).await });
        Ok(Self {
            lister,
            counters,
            shutdown,
            running,
            _handlers: handlers,
        })
    }

    /// Waits until every handler has seen every object, and checks the cache.
    async fn synced(&self, flags: &Flags) -> Result<()> {
        for counter in &self.counters {
            counter.added(flags.objects as u64).await;
        }
        let (found, wanted) = (self.lister.len(), flags.objects);
        if found != wanted {
            bail!("the cache holds {found} Pods instead of {wanted}");
        }
        let group = self.lister.by_index("node", &pods::node(0))?.len();
        if group != pods::GROUP.min(wanted) {
            bail!("the node index holds {group} Pods for the first node");
        }
        Ok(())
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let _ = self.running.await;
    }
}

fn can_do(flags: &Flags) -> Result<()> {
    if flags.encoding == Encoding::Protobuf {
        bail!(CannotDo("no protobuf: the cache holds JSON"));
    }
    Ok(())
}

/// Posts to the replay server.
async fn ask(client: &Client, path: &str) -> Result<()> {
    let request = http::Request::post(path).body(Body::empty())?;
    let response = client.send(request).await?;
    if !response.status().is_success() {
        bail!("POST {path} failed: {}", response.status());
    }
    Ok(())
}

pub(crate) async fn sync(flags: &Flags) -> Result<Outcome> {
    can_do(flags)?;
    let (client, received) = connect(flags).await?;
    let phase = Phase::begin()?;
    let follower = Follower::start(client, flags)?;
    follower.synced(flags).await?;
    let cost = phase.end()?.settled(flags).await?;
    follower.stop().await;
    Ok(Outcome {
        work: "sync",
        count: flags.objects as u64,
        cost,
        bytes_received: received.load(Ordering::Relaxed),
        extra: Map::new(),
    })
}

pub(crate) async fn relist(flags: &Flags) -> Result<Outcome> {
    can_do(flags)?;
    let (client, received) = connect(flags).await?;
    let follower = Follower::start(client.clone(), flags)?;
    follower.synced(flags).await?;
    tokio::time::sleep(flags.settle()).await;
    reset_peak()?;
    let before = resident()?;
    let phase = Phase::begin()?;
    ask(&client, "/_bench/expire").await?;
    let marker: ObjectKey = format!("{}/{}", pods::namespace(0), crate::replay::MARKER).parse()?;
    loop {
        let changed = follower.lister.changed();
        if follower.lister.get(&marker).is_some() {
            break;
        }
        changed.await;
    }
    let cost = phase.end()?.settled(flags).await?;
    let extra = json!({"steady_before_kib": before, "peak_kib": peak()?});
    follower.stop().await;
    Ok(Outcome {
        work: "relist",
        count: flags.objects as u64,
        cost,
        bytes_received: received.load(Ordering::Relaxed),
        extra: extra.as_object().cloned().context("not an object")?,
    })
}

pub(crate) async fn watch(flags: &Flags) -> Result<Outcome> {
    can_do(flags)?;
    let (client, received) = connect(flags).await?;
    let follower = Follower::start(client.clone(), flags)?;
    follower.synced(flags).await?;
    tokio::time::sleep(flags.settle()).await;
    let before = received.load(Ordering::Relaxed);
    let phase = Phase::begin()?;
    ask(&client, &format!("/_bench/events?count={}", flags.count())).await?;
    for counter in &follower.counters {
        counter.updated(flags.count()).await;
    }
    let cost = phase.end()?;
    let bytes = received.load(Ordering::Relaxed) - before;
    follower.stop().await;
    Ok(Outcome {
        work: "watch",
        count: flags.count(),
        cost,
        bytes_received: bytes,
        extra: Map::new(),
    })
}
