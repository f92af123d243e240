//! The overhead of a controller per reconcile.
//!
//! Run it with `cargo bench -p pintle --bench reconcile`. Keys pass through the queue of a running
//! controller whose reconcile function returns immediately, or looks up its object first. Each
//! figure is the CPU time of the only thread, the best of several rounds.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its results"
)]
#![allow(clippy::cast_precision_loss, reason = "results are approximate")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, Controller},
    informer::{InformerFactory, SharedInformer, WatchInput},
    queue::WorkQueue,
    source::{ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent},
};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Lists this many objects and then opens a watch without events.
struct Source(usize);

impl ListWatch for Source {
    type Watch = stream::Pending<Result<WatchEvent, SourceError>>;

    fn resource(&self) -> &'static str {
        "configmaps"
    }

    fn supports_watch_list(&self) -> bool {
        false
    }

    async fn list(
        &self,
        _: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        for n in 0..self.0 {
            let json = format!(
                r#"{{"metadata":{{"namespace":"default","name":"some-object-{n}","uid":"{n}","resourceVersion":"1"}}}}"#
            );
            on_item(RawItem::Json(json.as_bytes()));
        }
        Ok(Page {
            resource_version: "1".into(),
            ..Page::default()
        })
    }

    async fn watch(&self, _: ListOptions) -> Result<Self::Watch, SourceError> {
        Ok(stream::pending())
    }
}

/// Returns the CPU time of this thread so far. Everything here runs on one thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// Counts reconciles and signals when a number of them is reached.
#[derive(Default)]
struct Done {
    count: AtomicUsize,
    wanted: AtomicUsize,
    reached: Notify,
}

impl Done {
    fn one(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// Waits for this many. There is one thread, so no reconcile can run between check and wait.
    async fn wait(&self, wanted: usize) {
        self.wanted.store(wanted, Ordering::Relaxed);
        while self.count.load(Ordering::Relaxed) < wanted {
            self.reached.notified().await;
        }
    }
}

async fn row(objects: usize, workers: usize, reads: bool, rounds: usize) {
    // The informer has its own source, so no request reaches this client.
    let no_server = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, tower::BoxError>("no server".into())
    });
    let informers = InformerFactory::new(Client::new(no_server, "default"));
    let informer = SharedInformer::<ConfigMap>::new(Source(objects));
    informers.adopt(&WatchInput::new(), &informer);
    let queue = WorkQueue::<ObjectKey>::new("bench");
    let done = Arc::new(Done::default());
    let shutdown = CancellationToken::new();
    let controller = Controller::<ConfigMap>::new("bench", &informers)
        .queue(queue.clone())
        .workers(workers);
    let (counted, stop) = (Arc::clone(&done), shutdown.clone());
    let running = tokio::spawn(async move {
        let reconcile = move |key: ObjectKey, cx: Context| {
            let done = Arc::clone(&counted);
            async move {
                if reads {
                    black_box(cx.lister::<ConfigMap>()?.get(&key).unwrap());
                }
                done.one();
                Ok(Action::await_change())
            }
        };
        controller.run_by_key(reconcile, &stop).await.unwrap();
    });
    // The keys of the first list.
    done.wait(objects).await;
    let keys: Vec<ObjectKey> = informer
        .lister()
        .list()
        .iter()
        .map(|map| map.key().clone())
        .collect();
    let mut best = Duration::MAX;
    for round in 0..rounds {
        let begin = cpu();
        for key in &keys {
            queue.add(key.clone());
        }
        done.wait(objects * (round + 2)).await;
        best = best.min(cpu().saturating_sub(begin));
    }
    println!(
        "{objects:>7} keys, {workers:>2} workers, reading the object: {:<5} {:>7.1} ns each",
        reads,
        best.as_nanos() as f64 / objects as f64
    );
    shutdown.cancel();
    running.await.unwrap();
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    for reads in [false, true] {
        for workers in [1, 4] {
            runtime.block_on(row(5_000, workers, reads, 40));
            runtime.block_on(row(100_000, workers, reads, 4));
        }
    }
}
